"""Export to a folder of ONNX graphs, each compared with the model before it is committed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
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
from maskwright.model.graph.graphs import Graph, Port
from maskwright.model.graph.session import Session
from maskwright.model.opening.model import Model
from maskwright.ship.export import graph_folder, proof
from maskwright.ship.export import int8 as quantization
from maskwright.ship.export.answers import EvaluationRows
from maskwright.ship.export.model_folder import graphs, predictor_of, vectors_of
from maskwright.ship.export.target import Report
from maskwright.text.tables.rows import TEST, VALIDATION

QUANTIZATION = "quantization.json"
MOST_ROWS = 500  # maximum number of rows for measuring the loss of 8-bit weights
TRUNCATIONS = ("head", "tail", "head-and-tail")
SUBFOLDER = "onnx"  # where sentence-transformers expects a graph


def export_onnx(
    model: Model,
    out: Path,
    note: Note,
    *,
    int8: bool,
    max_loss: float,
    data: str | None,
    int32: bool,
    opset: int,
) -> Report:
    """Write the graphs of `model` with tokenizer and configuration into the new folder `out`;
    options as in `targets.onnx.Options`.

    Raises:
        UsageError: a package is missing.
        IncompatibleError: the model cannot be exported as a graph.
        CheckpointError: outputs of a written graph differ from those of the model.
    """
    require("an export to ONNX", "onnx", "onnxscript", "onnxruntime")
    task_predictor = predictor_of(model)
    model_graphs = graphs(model, task_predictor, "int32" if int32 else "int64")
    subfolder = SUBFOLDER if vectors_of(task_predictor) is not None else ""
    if task_predictor is not None and task_predictor.frame.long not in TRUNCATIONS:
        note(_unjoined_pieces(task_predictor.frame.long))
    rows = _rows(model, task_predictor, data, note) if int8 else None
    comparisons: list[proof.GraphComparison] = []
    quantizations: list[quantization.Quantization] = []

    def fill(staging: commit.Staging) -> dict[str, Any]:
        comparisons.clear()
        quantizations.clear()
        with tempfile.TemporaryDirectory(dir=staging.path.parent, prefix=".tmp-graph-") as folder:
            for graph in model_graphs:
                onnx_files = onnx.write(graph, Path(folder), opset=opset)
                size = graph_folder.add_files(staging, onnx_files, subfolder)
                if len(onnx_files) > 1:
                    note(_external_weights(graph.name, onnx_files))
                graph_file = staging.path / subfolder / onnx_files[0].name
                compared = proof.compare(graph, Session(graph_file).run, size)
                proof.require_equal(compared, out)
                comparisons.append(compared)
                if int8:
                    int8_file = Path(folder) / f"{graph.name}{_int8_ending(subfolder)}"
                    quantized = quantization.quantise(graph, graph_file, int8_file, max_loss, rows)
                    size = graph_folder.add_files(staging, [int8_file], subfolder)
                    graph_file = staging.path / subfolder / int8_file.name
                    compared = proof.compare(graph, Session(graph_file).run, size)
                    comparisons.append(replace(compared, graph=int8_file.stem))
                    quantizations.append(quantized)
        if int8:
            plain = {g.name: q.plain() for g, q in zip(model_graphs, quantizations, strict=True)}
            staging.write_json(QUANTIZATION, plain)
        return {
            **graph_folder.about_source(model),
            "target": "onnx",
            "opset": opset,
            "asked": _output_settings(model),
            "graphs": [
                {
                    "file": "/".join(filter(None, (subfolder, f"{graph.name}{onnx.ENDING}"))),
                    "inputs": [_port(port) for port in graph.inputs],
                    "outputs": [_port(port) for port in graph.outputs],
                    "longest": graph.longest,
                    "measured": compared.plain(),
                }
                for graph, compared in zip(model_graphs, comparisons[:: 1 + int8], strict=True)
            ],
            **({"int8": [comparison.plain() for comparison in comparisons[1::2]]} if int8 else {}),
        }

    about = graph_folder.write_folder(
        out,
        fill,
        graph_folder.documents(model, task_predictor),
        target="onnx",
        expected_bytes=2 * weights.num_bytes(dict(model.network.named_parameters())),
    )
    return Report(
        target="onnx",
        folder=out,
        about=about,
        tables=[
            *(
                quantized.table(graph.name)
                for graph, quantized in zip(model_graphs, quantizations, strict=False)
            ),
            proof.table("read again and compared with the model", comparisons),
        ],
        load=_load(out, subfolder, model_graphs),
    )


def _rows(
    model: Model, answers: Predictor | None, data: str | None, note: Note
) -> EvaluationRows | None:
    """Return the held-out rows for measuring the loss of 8-bit weights; None without `data`.

    Raises:
        UsageError: rows are given for a model without a task.
        Others: as `rows_for`.
    """
    if data is None:
        message = "the cost of 8 bits is measured on random ids, not on texts"
        do = "give labelled rows: --data FILE" if answers is not None else ""
        note(Finding("measured-on-random-ids", message, remedy=do))
        return None
    if answers is None:
        raise UsageError(
            "rows are for a model that answers a task",
            where="--data",
            found=data,
            do="leave it out",
        )
    split, rows, task_type = rows_for(
        model.folder,
        answers,
        data,
        parts=(VALIDATION, TEST),
        say=lambda text: note(Finding.of_line("rows", text)) if text.strip() else None,
    )
    if len(rows) > MOST_ROWS:
        rows = [rows[index] for index in np.linspace(0, len(rows) - 1, MOST_ROWS).astype(int)]
    encoded = task_type.encode(rows, answers.frame)
    for finding in encoded.findings:
        note(finding)
    return EvaluationRows(task_type, encoded, answers.collation, split)


def _unjoined_pieces(long: str) -> Finding:
    return Finding(
        "pieces-are-not-joined",
        f"longer texts were read in pieces ({long}), and a graph reads one piece",
        remedy="join the answers of the pieces where the graph is used",
        severity="warning",
    )


def _int8_ending(subfolder: str) -> str:
    """Return the suffix of an 8-bit graph's file; in a subfolder that of sentence-transformers."""
    if not subfolder:
        return f"_int8{onnx.ENDING}"
    return f"_qint8_avx512_vnni{onnx.ENDING}" if has_vnni() else f"_qint8{onnx.ENDING}"


def _output_settings(model: Model) -> dict[str, Any]:
    """Return the settings that are needed to interpret the outputs of the graphs."""
    labels = list(model.about.labels)
    return {
        "prediction_offset": model.conventions.prediction_offset,
        "problem_type": model.about.problem_type,
        **({"labels": labels} if labels else {}),
    }


def _port(port: Port) -> dict[str, Any]:
    return {"name": port.name, "shape": list(port.axes), "type": port.dtype}


def _external_weights(name: str, onnx_files: Sequence[Path]) -> Finding:
    return Finding(
        "weights-beside-the-graph",
        f"{name}: the weights lie in {onnx_files[1].name}, beside {onnx_files[0].name}",
        "a file of ONNX cannot be larger than 2 GB",
        "keep both together",
    )


def _load(out: Path, subfolder: str, model_graphs: Sequence[Graph]) -> list[str]:
    if subfolder:
        return [f'SentenceTransformer("{out}", backend="onnx")   # optimum-onnx is needed']
    return [
        f'onnxruntime.InferenceSession("{out / (graph.name + onnx.ENDING)}")'
        for graph in model_graphs
    ]
