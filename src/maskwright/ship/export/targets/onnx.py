"""ONNX: graphs for ONNX Runtime, in the layout that optimum, transformers.js and
sentence-transformers open at their defaults.

onnx/model.onnx                     an encoder, or a decoder with its past
onnx/encoder_model.onnx             an encoder-decoder that generates text
onnx/decoder_model_merged.onnx
onnx/…_quantized.onnx               each of them with 8-bit weights, `q8` of transformers.js
config.json  tokenizer.json  …      beside the folder of the graphs

Each graph is read again and compared with the model before the folder is committed.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwright.base import catalogue
from maskwright.base.config import require
from maskwright.base.errors import Finding, Note, UsageError
from maskwright.base.storage import commit
from maskwright.ship.export.target import Report

if TYPE_CHECKING:
    from maskwright.ask.predict.predictor import Predictor
    from maskwright.model.graph.graphs import Graph, Port
    from maskwright.model.opening.folders import Model
    from maskwright.ship.export.folder import GraphComparison
    from maskwright.ship.export.int8 import EvaluationRows, Quantization

SUMMARY = "graphs of ONNX, in float32 or with 8-bit weights, compared after they were read again"
QUANTIZATION = "quantization.json"
MOST_ROWS = 500  # maximum number of rows for measuring the loss of 8-bit weights
TRUNCATIONS = ("head", "tail", "head-and-tail")
SUBFOLDER, QUANTIZED = "onnx", "_quantized"


@dataclass(frozen=True, kw_only=True)
class Options:
    """How graphs of ONNX are written.

    Attributes:
        int8: weights in 8 bits as well, where accuracy allows
        max_loss: what 8 bits may cost at most, in points of the task's measure or of 100 answers
        data: labelled rows that were not trained on, by which the cost of 8 bits is measured
        int32: ids and masks in 32 bits, for browsers
        opset: of ONNX
    """

    int8: bool = False
    max_loss: float = 1.0
    data: str | None = None
    int32: bool = False
    opset: int = 18

    def __post_init__(self) -> None:
        require("max_loss", self.max_loss, 0.0, 100.0)
        require("opset", self.opset, 18, 23)
        usual = {field.name: field.default for field in fields(self)}
        for name in () if self.int8 else ("data", "max_loss"):
            if getattr(self, name) != usual[name]:
                raise UsageError(
                    "only weights in 8 bits have a cost",
                    where=f"--{name.replace('_', '-')}",
                    found=getattr(self, name),
                    do="ask for them: --int8, or leave it out",
                )


def export(model: Model, out: Path, options: Options, note: Note) -> Report:
    """Write the graphs of `model` with tokenizer and configuration into the new folder `out`.

    Raises:
        UsageError: a package is missing.
        IncompatibleError: the model cannot be exported as a graph.
        CheckpointError: outputs of a written graph differ from those of the model.
    """
    from maskwright.learn.tasks.base.sentence_transformers_folder import about_of
    from maskwright.model.checkpoint.safe_read import write_json
    from maskwright.model.graph import onnx
    from maskwright.model.graph.session import Session
    from maskwright.ship.export import folder
    from maskwright.ship.export.int8 import quantise

    catalogue.require_packages("an export to ONNX", "onnx", "onnxscript", "onnxruntime")
    predictor = folder.predictor_of(model)
    graphs = folder.graphs(model, predictor, "int32" if options.int32 else "int64")
    makes_vectors = predictor is not None and bool(predictor.task_type.alone)
    if predictor is not None and predictor.frame.long not in TRUNCATIONS:
        pieces = f"longer texts were read in pieces ({predictor.frame.long})"
        message = f"{pieces}, and a graph reads one piece"
        remedy = "join the answers of the pieces where the graph is used"
        note(Finding("pieces-are-not-joined", message, remedy=remedy, severity="warning"))
    rows = _evaluation_rows(model, predictor, options.data, note) if options.int8 else None
    # These are filled by `fill`, by the name of the graph.
    comparisons: dict[str, GraphComparison] = {}
    int8_comparisons: dict[str, GraphComparison] = {}
    quantizations: dict[str, Quantization] = {}
    external_weights: dict[str, int] = {}  # number of further files, by name of the file

    def fill(staging: commit.Staging) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(dir=staging.path.parent, prefix=".tmp-graph-") as scratch:
            for graph in graphs:
                files = onnx.write(graph, Path(scratch), opset=options.opset)
                size = folder.add_files(staging, files, SUBFOLDER)
                if len(files) > 1:
                    external_weights[files[0].name] = 1
                    note(_external_weights(graph.name, files))
                graph_file = staging.path / SUBFOLDER / files[0].name
                comparison = folder.compare_graph(graph, Session(graph_file).run, size)
                folder.require_equal(comparison, out)
                comparisons[graph.name] = comparison
                if options.int8:
                    int8_file = Path(scratch) / f"{graph.name}{QUANTIZED}{onnx.ENDING}"
                    quantizations[graph.name] = quantise(
                        graph, graph_file, int8_file, options.max_loss, rows
                    )
                    size = folder.add_files(staging, [int8_file], SUBFOLDER)
                    int8_run = Session(staging.path / SUBFOLDER / int8_file.name).run
                    comparison = folder.compare_graph(graph, int8_run, size)
                    int8_comparisons[graph.name] = replace(comparison, graph=int8_file.stem)
        about: dict[str, Any] = {
            "opset": options.opset,
            "asked": _output_settings(model),
            "graphs": [_graph_facts(graph, comparisons[graph.name]) for graph in graphs],
        }
        if options.int8:
            plain = {name: quantized.plain() for name, quantized in quantizations.items()}
            staging.write_json(QUANTIZATION, plain)
            about["int8"] = [*map(vars, int8_comparisons.values())]
        return about

    documents = folder.documents(model, predictor)
    config = documents["config.json"]
    assert isinstance(config, bytes)

    def config_of_graphs() -> Iterator[bytes]:
        plain = json.loads(config)
        if external_weights:  # transformers.js does not look for them otherwise
            plain["transformers.js_config"] = {"use_external_data_format": external_weights}
        yield write_json(plain)

    about = folder.write_folder(
        out,
        fill,
        {**documents, "config.json": config_of_graphs},
        model=model,
        target="onnx",
    )
    compared = [
        by_name[graph.name]
        for graph in graphs
        for by_name in (comparisons, int8_comparisons)
        if graph.name in by_name
    ]
    files = [out / SUBFOLDER / f"{graph.name}{onnx.ENDING}" for graph in graphs]
    load = [f'onnxruntime.InferenceSession("{file}")' for file in files]
    if makes_vectors or model.has_modules:
        loader = about_of(out).get("model_type", "SentenceTransformer")
        load.append(f'{loader}("{out}", backend="onnx")   # optimum-onnx is needed')
    return Report(
        target="onnx",
        folder=out,
        about=about,
        tables=[
            *(quantized.table(name) for name, quantized in quantizations.items()),
            folder.table_of_comparisons("read again and compared with the model", compared),
        ],
        load=load,
    )


def _evaluation_rows(
    model: Model, predictor: Predictor | None, data: str | None, note: Note
) -> EvaluationRows | None:
    """Return the held-out rows for measuring the loss of 8-bit weights; None without `data`."""
    import numpy as np

    from maskwright.ask.evaluate.labelled_rows import rows_for
    from maskwright.ship.export.int8 import EvaluationRows
    from maskwright.text.tables.rows import TEST, VALIDATION

    if data is None:
        message = "the cost of 8 bits is measured on random ids, not on texts"
        do = "give labelled rows: --data FILE" if predictor is not None else ""
        note(Finding("measured-on-random-ids", message, remedy=do))
        return None
    if predictor is None:
        raise UsageError(
            "rows are for a model that answers a task",
            where="--data",
            found=data,
            do="leave it out",
        )
    labelled = rows_for(
        predictor,
        data,
        parts=(VALIDATION, TEST),
        say=lambda text: note(Finding.of_line("rows", text)) if text.strip() else None,
    )
    rows, task_type = labelled.examples, labelled.task_type
    if len(rows) > MOST_ROWS:
        rows = [rows[index] for index in np.linspace(0, len(rows) - 1, MOST_ROWS).astype(int)]
    encoded = task_type.encode(rows, predictor.frame)
    for finding in encoded.findings:
        note(finding)
    return EvaluationRows(task_type, encoded, predictor.collation, labelled.part)


def _output_settings(model: Model) -> dict[str, Any]:
    """Return the settings that are needed to interpret the outputs of the graphs."""
    labels = list(model.about.labels)
    return {
        "prediction_offset": model.conventions.prediction_offset,
        "problem_type": model.about.problem_type,
        **({"labels": labels} if labels else {}),
    }


def _graph_facts(graph: Graph, comparison: GraphComparison) -> dict[str, Any]:
    """Return the entry of a graph in `export.json`."""
    from maskwright.model.graph.onnx import ENDING

    return {
        "file": f"{SUBFOLDER}/{graph.name}{ENDING}",
        "inputs": [_port(port) for port in graph.inputs],
        "outputs": [_port(port) for port in graph.outputs],
        "longest": graph.longest,
        "measured": vars(comparison),
    }


def _port(port: Port) -> dict[str, Any]:
    from maskwright.model.graph.onnx import AXES

    shape = [AXES[axis] if isinstance(axis, str) else axis for axis in port.axes]
    return {"name": port.name, "shape": shape, "type": port.dtype}


def _external_weights(name: str, files: Sequence[Path]) -> Finding:
    return Finding(
        "weights-beside-the-graph",
        f"{name}: the weights lie in {files[1].name}, beside {files[0].name}",
        "a file of ONNX cannot be larger than 2 GB",
        "keep both together",
    )
