"""A model as a folder of ONNX graphs, each compared with the model before it is committed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.checkpoint import files as weights
from maskwright.export.parts import folder, proof
from maskwright.export.parts.asked import graphs, predictor_of, vectors_of
from maskwright.export.parts.target import Report
from maskwright.findings import Finding, Note
from maskwright.graph import onnx
from maskwright.graph.graphs import Ids
from maskwright.graph.ports import Graph, Port
from maskwright.graph.session import Session
from maskwright.models.model import Model
from maskwright.storage import commit

SUBFOLDER = "onnx"  # where sentence-transformers looks for a graph


@dataclass(frozen=True, kw_only=True)
class OnnxChoices:
    """What is written: the type of ids, the opset, whether 8-bit weights are wanted and what they
    may cost on which rows."""

    ids: Ids = "int64"
    opset: int = onnx.OPSET
    int8: bool = False
    max_loss: float = 1.0
    data: Path | None = None


def export_onnx(model: Model, out: Path, choices: OnnxChoices, note: Note) -> Report:
    """Write the graphs of `model` and what belongs to them into the new folder `out`.

    Raises:
        UsageError: a package is missing.
        IncompatibleError: the model has no graph.
        CheckpointError: a graph, read again, computes something else.
    """
    onnx.require_packages("onnx", "onnxscript", "onnxruntime")
    answers = predictor_of(model)
    wanted = graphs(model, answers, choices.ids)
    within = SUBFOLDER if vectors_of(answers) is not None else ""
    found: list[proof.Compared] = []

    def fill(staging: commit.Staging) -> dict[str, Any]:
        found.clear()
        with tempfile.TemporaryDirectory(dir=staging.path.parent, prefix=".tmp-graph-") as place:
            for graph in wanted:
                made = onnx.write(graph, Path(place), opset=choices.opset)
                size = folder.add_files(staging, made, within)
                if len(made) > 1:
                    note(_beside(graph.name, made))
                written = staging.path / within / made[0].name
                compared = proof.compare(graph, Session(written).run, size)
                proof.require_equal(compared, out)
                found.append(compared)
        return {
            **folder.about_source(model),
            "target": "onnx",
            "opset": choices.opset,
            "asked": _asked(model),
            "graphs": [
                {
                    "file": "/".join(filter(None, (within, f"{graph.name}{onnx.ENDING}"))),
                    "inputs": [_port(port) for port in graph.inputs],
                    "outputs": [_port(port) for port in graph.outputs],
                    "longest": graph.longest,
                    "measured": compared.plain(),
                }
                for graph, compared in zip(wanted, found, strict=True)
            ],
        }

    said = folder.write_folder(
        out,
        fill,
        folder.documents(model, answers),
        target="onnx",
        expected_bytes=2 * weights.num_bytes(dict(model.network.named_parameters())),
    )
    return Report(
        target="onnx",
        folder=out,
        about=said,
        tables=[proof.table("read again and compared with the model", found)],
        load=_load(out, within, wanted),
    )


def _asked(model: Model) -> dict[str, Any]:
    """What the graphs do not say of how their outputs are read."""
    labels = list(model.about.labels)
    return {
        "prediction_offset": model.conventions.prediction_offset,
        "problem_type": model.about.problem_type,
        **({"labels": labels} if labels else {}),
    }


def _port(port: Port) -> dict[str, Any]:
    return {"name": port.name, "shape": list(port.axes), "type": port.dtype}


def _beside(name: str, made: Sequence[Path]) -> Finding:
    return Finding(
        "weights-beside-the-graph",
        f"{name}: the weights lie in {made[1].name}, beside {made[0].name}",
        "a file of ONNX cannot be larger than 2 GB",
        "keep both together",
    )


def _load(out: Path, within: str, wanted: Sequence[Graph]) -> list[str]:
    if within:
        return [f'SentenceTransformer("{out}", backend="onnx")   # optimum-onnx is needed']
    return [
        f'onnxruntime.InferenceSession("{out / (graph.name + onnx.ENDING)}")' for graph in wanted
    ]
