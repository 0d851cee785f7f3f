"""Export to a folder of OpenVINO graphs, each compiled and compared before it is committed.

The graphs are those of the target onnx, read by `Core.read_model`. The precision of products is not
stored: it is chosen at compilation (`INFERENCE_PRECISION_HINT`). The effect of bfloat16 is measured
if the processor has matrix units for it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.base.findings import Finding, Note
from maskwright.base.packages import require
from maskwright.base.storage import commit
from maskwright.model.checkpoint import files as weights
from maskwright.model.device.machine import matrix_units
from maskwright.model.graph import onnx
from maskwright.model.graph.engines import openvino as engine
from maskwright.model.opening.model import Model
from maskwright.ship.export import graph_folder, proof
from maskwright.ship.export.model_folder import graphs, predictor_of
from maskwright.ship.export.target import Report

TARGET = "openvino"
HALF = 0.05  # maximum relative difference of an output with float16 weights


def export_openvino(model: Model, out: Path, half: bool, note: Note) -> Report:
    """Write the graphs of `model` with tokenizer and configuration into the new folder `out`.

    Args:
        half: whether weights are in float16.

    Raises:
        UsageError: a package is missing.
        IncompatibleError: the model cannot be exported as a graph.
        CheckpointError: outputs of a written graph differ from those of the model.
    """
    require("an export to OpenVINO", *engine.NEEDS)
    task_predictor = predictor_of(model)
    model_graphs = graphs(model, task_predictor)
    comparisons: list[proof.GraphComparison] = []
    bfloat16_comparisons: list[proof.GraphComparison] = []

    def fill(staging: commit.Staging) -> dict[str, Any]:
        comparisons.clear()
        bfloat16_comparisons.clear()
        with tempfile.TemporaryDirectory(dir=staging.path.parent, prefix=".tmp-graph-") as folder:
            for graph in model_graphs:
                (source, *_) = onnx.write(graph, Path(folder))
                size = graph_folder.add_files(staging, convert(source, half=half))
                graph_file = staging.path / f"{graph.name}.xml"
                compared = proof.compare(graph, _runner(graph_file, "float32"), size)
                proof.require_equal(compared, out, HALF if half else proof.TOLERANCE)
                comparisons.append(compared)
                if matrix_units("cpu"):
                    run = _runner(graph_file, "bfloat16")
                    bfloat16_comparisons.append(proof.compare(graph, run, size, timed=False))
        return {
            **graph_folder.about_source(model),
            "target": TARGET,
            "weights": "float16" if half else "float32",
            "graphs": [comparison.plain() for comparison in comparisons],
            "bfloat16": [comparison.plain() for comparison in bfloat16_comparisons],
        }

    texts = graph_folder.documents(model, task_predictor)
    size = weights.num_bytes(dict(model.network.named_parameters()))
    about = graph_folder.write_folder(out, fill, texts, target=TARGET, expected_bytes=3 * size)
    for comparison in bfloat16_comparisons:
        note(
            Finding(
                "bfloat16-measured",
                f"{comparison.graph}: products in bfloat16, which OpenVINO takes by itself here, "
                f"move an output by at most {comparison.difference:.2g}",
                f"{comparison.agreement:.2%} of the answers are the same",
            )
        )
    names = [f"{graph.name}.xml" for graph in model_graphs]
    return Report(
        target=TARGET,
        folder=out,
        about=about,
        tables=[proof.table("compiled again and compared with the model", comparisons)],
        load=[f'openvino.Core().compile_model("{out / name}", "CPU")' for name in names],
    )


def convert(source: Path, *, half: bool) -> list[Path]:
    """Convert the ONNX graph in `source`. Return the OpenVINO files in the same folder."""
    import openvino

    target = source.with_suffix(".xml")
    model = openvino.Core().read_model(str(source))
    openvino.save_model(model, str(target), compress_to_fp16=half)
    return [target, target.with_suffix(".bin")]


def _runner(file: Path, precision: str) -> proof.Run:
    """Return a function that runs an OpenVINO graph, from inputs by name to outputs by name."""
    model = engine.compiled(file, torch.get_num_threads(), precision)
    inputs = [port.get_any_name() for port in model.inputs]

    def run(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        results = model({name: np.asarray(arrays[name]) for name in inputs})
        return {port.get_any_name(): np.array(results[port]) for port in model.outputs}

    return run
