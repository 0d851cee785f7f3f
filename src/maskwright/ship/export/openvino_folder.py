"""A model as a folder of OpenVINO graphs, each compiled again and compared before it is committed.

The graphs are those of the target onnx, read by `Core.read_model`. Products in bfloat16 are no
matter of the files: whoever compiles them chooses (`INFERENCE_PRECISION_HINT`), and what that
changes is measured here where the processor has units for it.
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
HALF = 0.05
"""The most that weights of 16 bits may move an output, beside the largest number of it."""


def export_openvino(model: Model, out: Path, half: bool, note: Note) -> Report:
    """Write the graphs of `model` and what belongs to them into the new folder `out`.

    Args:
        half: weights in float16.

    Raises:
        UsageError: a package is missing.
        IncompatibleError: the model has no graph.
        CheckpointError: a graph, read again, computes something else.
    """
    require("an export to OpenVINO", *engine.NEEDS)
    answers = predictor_of(model)
    wanted = graphs(model, answers)
    found: list[proof.Compared] = []
    of_bfloat16: list[proof.Compared] = []

    def fill(staging: commit.Staging) -> dict[str, Any]:
        found.clear()
        of_bfloat16.clear()
        with tempfile.TemporaryDirectory(dir=staging.path.parent, prefix=".tmp-graph-") as place:
            for graph in wanted:
                (source, *_) = onnx.write(graph, Path(place))
                size = graph_folder.add_files(staging, converted(source, half=half))
                written = staging.path / f"{graph.name}.xml"
                compared = proof.compare(graph, _runner(written, "float32"), size)
                proof.require_equal(compared, out, HALF if half else proof.TOLERANCE)
                found.append(compared)
                if matrix_units("cpu"):
                    run = _runner(written, "bfloat16")
                    of_bfloat16.append(proof.compare(graph, run, size, timed=False))
        return {
            **graph_folder.about_source(model),
            "target": TARGET,
            "weights": "float16" if half else "float32",
            "graphs": [each.plain() for each in found],
            "bfloat16": [each.plain() for each in of_bfloat16],
        }

    texts = graph_folder.documents(model, answers)
    size = weights.num_bytes(dict(model.network.named_parameters()))
    said = graph_folder.write_folder(out, fill, texts, target=TARGET, expected_bytes=3 * size)
    for each in of_bfloat16:
        note(
            Finding(
                "bfloat16-measured",
                f"{each.graph}: products in bfloat16, which OpenVINO takes by itself here, move an "
                f"output by at most {each.difference:.2g}",
                f"{each.agreement:.2%} of the answers are the same",
            )
        )
    names = [f"{graph.name}.xml" for graph in wanted]
    return Report(
        target=TARGET,
        folder=out,
        about=said,
        tables=[proof.table("compiled again and compared with the model", found)],
        load=[f'openvino.Core().compile_model("{out / name}", "CPU")' for name in names],
    )


def converted(source: Path, *, half: bool) -> list[Path]:
    """The files of OpenVINO for the ONNX graph in `source`, beside it."""
    import openvino

    target = source.with_suffix(".xml")
    model = openvino.Core().read_model(str(source))
    openvino.save_model(model, str(target), compress_to_fp16=half)
    return [target, target.with_suffix(".bin")]


def _runner(file: Path, precision: str) -> proof.Run:
    """What runs a graph of OpenVINO by the names of its inputs and outputs."""
    model = engine.compiled(file, torch.get_num_threads(), precision)
    inputs = [each.get_any_name() for each in model.inputs]

    def run(given: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        found = model({name: np.asarray(given[name]) for name in inputs})
        return {each.get_any_name(): np.array(found[each]) for each in model.outputs}

    return run
