"""OpenVINO: the graphs of the model in its own form, compiled again and compared.

openvino/openvino_model.xml and .bin    an encoder, or a decoder with its past; of the other graphs
                                        `openvino_` and the name that the target onnx gives them

This is the layout of optimum-intel, which sentence-transformers opens, too. The graphs are those of
the target onnx, read by `Core.read_model`. The precision of products is not
stored: it is chosen at compilation (`INFERENCE_PRECISION_HINT`). The effect of bfloat16 is measured
if the processor has matrix units for it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwright.base.catalogue import require_packages
from maskwright.base.errors import Finding, Note
from maskwright.base.storage import commit
from maskwright.ship.export.target import Report

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maskwright.model.opening.folders import Model
    from maskwright.ship.export.folder import GraphComparison, Run

SUMMARY = "graphs in the form of OpenVINO, compiled again and compared"
SUBFOLDER = "openvino"
HALF = 0.05  # maximum relative difference of an output with float16 weights


@dataclass(frozen=True, kw_only=True)
class Options:
    """How graphs of OpenVINO are written.

    Attributes:
        half: weights in 16 bits (float16), at half the size
    """

    half: bool = False


def export(model: Model, out: Path, options: Options, note: Note) -> Report:
    """Write the graphs of `model` with tokenizer and configuration into the new folder `out`.

    Raises:
        UsageError: a package is missing.
        IncompatibleError: the model cannot be exported as a graph.
        CheckpointError: outputs of a written graph differ from those of the model.
    """
    from maskwright.model.device.machine import matrix_units
    from maskwright.model.graph import onnx
    from maskwright.model.graph.engines import openvino as engine
    from maskwright.ship.export import folder

    require_packages("an export to OpenVINO", *engine.NEEDS)
    predictor = folder.predictor_of(model)
    graphs = folder.graphs(model, predictor)
    comparisons: dict[str, GraphComparison] = {}
    bfloat16_comparisons: dict[str, GraphComparison] = {}

    def fill(staging: commit.Staging) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(dir=staging.path.parent, prefix=".tmp-graph-") as scratch:
            for graph in graphs:
                (source, *_) = onnx.write(graph, Path(scratch))
                size = folder.add_files(staging, _convert(source, half=options.half), SUBFOLDER)
                graph_file = staging.path / _file(graph.name)
                comparison = folder.compare_graph(graph, _runner(graph_file, "float32"), size)
                folder.require_equal(comparison, out, HALF if options.half else folder.TOLERANCE)
                comparisons[graph.name] = comparison
                if matrix_units("cpu"):
                    run = _runner(graph_file, "bfloat16")
                    comparison = folder.compare_graph(graph, run, size, timed=False)
                    bfloat16_comparisons[graph.name] = comparison
        return {
            "weights": "float16" if options.half else "float32",
            "graphs": [*map(vars, comparisons.values())],
            "bfloat16": [*map(vars, bfloat16_comparisons.values())],
        }

    documents = folder.documents(model, predictor)
    about = folder.write_folder(out, fill, documents, model=model, target="openvino", copies=3)
    for comparison in bfloat16_comparisons.values():
        note(
            Finding(
                "bfloat16-measured",
                f"{comparison.graph}: products in bfloat16, which OpenVINO takes by itself here, "
                f"move an output by at most {comparison.difference:.2g}",
                f"{comparison.agreement:.2%} of the answers are the same",
            )
        )
    names = [_file(graph.name) for graph in graphs]
    load = [f'openvino.Core().compile_model("{out / name}", "CPU")' for name in names]
    if folder.vectors_of(predictor) is not None:
        load.append(f'SentenceTransformer("{out}", backend="openvino")   # optimum-intel is needed')
    return Report(
        target="openvino",
        folder=out,
        about=about,
        tables=[
            folder.table_of_comparisons(
                "compiled again and compared with the model", [*comparisons.values()]
            )
        ],
        load=load,
    )


def _file(graph_name: str) -> str:
    return f"{SUBFOLDER}/openvino_{graph_name}.xml"


def _convert(source: Path, *, half: bool) -> list[Path]:
    """Convert the ONNX graph in `source`. Return the OpenVINO files in the same folder."""
    import openvino

    target = source.parent / Path(_file(source.stem)).name
    model = openvino.Core().read_model(str(source))
    openvino.save_model(model, str(target), compress_to_fp16=half)
    return [target, target.with_suffix(".bin")]


def _runner(file: Path, precision: str) -> Run:
    """Return a function that runs an OpenVINO graph, from inputs by name to outputs by name."""
    import numpy as np
    import torch

    from maskwright.model.graph.engines import openvino as engine

    model = engine.compiled(file, torch.get_num_threads(), precision)
    inputs = [port.get_any_name() for port in model.inputs]

    def run(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        results = model({name: np.asarray(arrays[name]) for name in inputs})
        return {port.get_any_name(): np.array(results[port]) for port in model.outputs}

    return run
