"""A model as a folder of ONNX graphs, each compared with the model before it is committed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.ask.evaluate.labelled_rows import rows_for
from maskwright.ask.predict.predictor import Predictor
from maskwright.base.errors import UsageError
from maskwright.base.findings import Finding, Note
from maskwright.base.packages import require
from maskwright.base.storage import commit
from maskwright.model.checkpoint import files as weights
from maskwright.model.graph import onnx
from maskwright.model.graph.eight_bits import has_vnni
from maskwright.model.graph.graphs import Graph, Ids, Port
from maskwright.model.graph.session import Session
from maskwright.model.opening.model import Model
from maskwright.ship.export import graph_folder, int8, proof
from maskwright.ship.export.answers import Rows
from maskwright.ship.export.model_folder import graphs, predictor_of, vectors_of
from maskwright.ship.export.target import Report
from maskwright.text.tables.split_files import TEST, VALIDATION

QUANTIZATION = "quantization.json"
MOST_ROWS = 500  # by which the cost of 8 bits is measured
CUT = ("head", "tail", "head-and-tail")  # what becomes of longer texts that stay one text
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
    require("an export to ONNX", "onnx", "onnxscript", "onnxruntime")
    answers = predictor_of(model)
    wanted = graphs(model, answers, choices.ids)
    within = SUBFOLDER if vectors_of(answers) is not None else ""
    if answers is not None and answers.frame.long not in CUT:
        note(_pieces(answers.frame.long))
    rows = _rows(model, answers, choices, note) if choices.int8 else None
    found: list[proof.Compared] = []
    in_8_bits: list[int8.Quantised] = []

    def fill(staging: commit.Staging) -> dict[str, Any]:
        found.clear()
        in_8_bits.clear()
        with tempfile.TemporaryDirectory(dir=staging.path.parent, prefix=".tmp-graph-") as place:
            for graph in wanted:
                made = onnx.write(graph, Path(place), opset=choices.opset)
                size = graph_folder.add_files(staging, made, within)
                if len(made) > 1:
                    note(_beside(graph.name, made))
                written = staging.path / within / made[0].name
                compared = proof.compare(graph, Session(written).run, size)
                proof.require_equal(compared, out)
                found.append(compared)
                if choices.int8:
                    small = Path(place) / f"{graph.name}{_ending(within)}"
                    made_small = int8.quantise(graph, written, small, choices.max_loss, rows)
                    size = graph_folder.add_files(staging, [small], within)
                    written = staging.path / within / small.name
                    compared = proof.compare(graph, Session(written).run, size)
                    found.append(replace(compared, graph=small.stem))
                    in_8_bits.append(made_small)
        if choices.int8:
            plain = {g.name: q.plain() for g, q in zip(wanted, in_8_bits, strict=True)}
            staging.write_json(QUANTIZATION, plain)
        return {
            **graph_folder.about_source(model),
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
                for graph, compared in zip(wanted, found[:: 1 + choices.int8], strict=True)
            ],
            **({"int8": [each.plain() for each in found[1::2]]} if choices.int8 else {}),
        }

    said = graph_folder.write_folder(
        out,
        fill,
        graph_folder.documents(model, answers),
        target="onnx",
        expected_bytes=2 * weights.num_bytes(dict(model.network.named_parameters())),
    )
    return Report(
        target="onnx",
        folder=out,
        about=said,
        tables=[
            *(each.table(graph.name) for graph, each in zip(wanted, in_8_bits, strict=False)),
            proof.table("read again and compared with the model", found),
        ],
        load=_load(out, within, wanted),
    )


def _rows(model: Model, answers: Predictor | None, choices: OnnxChoices, note: Note) -> Rows | None:
    """The held-out rows by which the cost of 8 bits is measured; None where there are none.

    Raises:
        UsageError: rows for a model that answers no task.
        As `rows_for`.
    """
    if choices.data is None:
        what = "the cost of 8 bits is measured on ids by chance, not on texts"
        do = "give labelled rows: --data FILE" if answers is not None else ""
        note(Finding("measured-on-random-ids", what, remedy=do))
        return None
    if answers is None:
        raise UsageError(
            "rows are for a model that answers a task",
            where="--data",
            found=str(choices.data),
            do="leave it out",
        )
    part, rows, task_type = rows_for(
        model.folder,
        answers,
        choices.data,
        parts=(VALIDATION, TEST),
        say=lambda text: note(Finding.of_line("rows", text)) if text.strip() else None,
    )
    if len(rows) > MOST_ROWS:
        rows = [rows[place] for place in np.linspace(0, len(rows) - 1, MOST_ROWS).astype(int)]
    encoded = task_type.encode(rows, answers.frame)
    for found in encoded.findings:
        note(found)
    return Rows(task_type, encoded, answers.collation, part)


def _pieces(long: str) -> Finding:
    """Of a model that answers a long text by its pieces."""
    return Finding(
        "pieces-are-not-joined",
        f"longer texts were read in pieces ({long}), and a graph reads one piece",
        remedy="join the answers of the pieces where the graph is used",
        severity="warning",
    )


def _ending(within: str) -> str:
    """Of the file in 8 bits: what sentence-transformers calls such a one, or a plain name."""
    if not within:
        return f"_int8{onnx.ENDING}"
    return f"_qint8_avx512_vnni{onnx.ENDING}" if has_vnni() else f"_qint8{onnx.ENDING}"


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
