"""Export of a graph to ONNX, with `torch.export` and the exporter of PyTorch.

The network runs on its plain paths meanwhile (`nn/kernels`). Operations are of opset 18, in which
GELU is an `Erf`, for compatibility with older runtimes. Metadata of the exporter (paths, source
lines) are removed. Above 2 GB, the limit of protobuf, the weights are in a separate file
`NAME.onnx_data`, where optimum and transformers.js look for them.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from maskwright.base.catalogue import require_packages
from maskwright.base.errors import IncompatibleError, MaskwrightError
from maskwright.base.version import VERSION
from maskwright.model.graph.graphs import Graph
from maskwright.model.nn import kernels

OPSET = 18
LARGEST = 2**31 - 2**24  # maximum bytes of weights in one file, which also has the graph
TORCH_CACHE = "TORCHINDUCTOR_CACHE_DIR"  # torch creates this folder on export
TALKERS = ("torch.onnx", "torch.export", "torch.__trace", "onnxscript")  # loggers to silence
# Metadata key for the modules around a node; types of nodes that get names from it.
SCOPES, NAMED = "pkg.torch.onnx.name_scopes", ("MatMul", "Gather")
ENDING, BESIDE = ".onnx", "_data"
# Sizes must differ from each other and from 0 and 1, which the exporter treats as constants.
EXAMPLE = {"batch": 2, "choices": 3, "length": 5, "past": 4, "memory": 9, "projected": 7}
# Names of dynamic sizes in files: transformers.js fills in `batch_size`, and 0 for others.
AXES = {
    "batch": "batch_size",
    "choices": "num_choices",
    "length": "sequence_length",
    "past": "past_sequence_length",
    "total": "past_sequence_length + sequence_length",
    "memory": "encoder_sequence_length",
    "projected": "past_encoder_sequence_length",
}


def write(graph: Graph, folder: Path, *, opset: int = OPSET) -> list[Path]:
    """Write the graph into `folder` and return its files, the graph itself first.

    Raises:
        UsageError: a package is not installed.
        IncompatibleError: the exporter failed; the message has its error.
    """
    model = traced(graph, opset=opset)
    return save(model, folder / f"{graph.name}{ENDING}")


def traced(graph: Graph, *, opset: int = OPSET) -> Any:
    """Return the graph as an `onnx.ModelProto` with weights.

    Raises:
        As `write`.
    """
    require_packages("writing a graph", "onnx", "onnxscript")
    inputs = graph.example(EXAMPLE)
    shapes = {
        port.name: {number: axis for number, axis in enumerate(port.axes) if isinstance(axis, str)}
        for port in graph.inputs
    }
    graph.module.eval()
    try:
        with kernels.plain(), torch.no_grad(), _quiet():
            program = torch.onnx.export(
                graph.module,
                kwargs=graph.arguments(inputs),
                dynamo=True,
                input_names=[port.name for port in graph.inputs],
                output_names=[port.name for port in graph.outputs],
                dynamic_shapes=graph.arguments(shapes),
                opset_version=opset,
                verbose=False,
            )
            assert program is not None
            model = program.model_proto
    except (MaskwrightError, MemoryError):
        raise
    except Exception as error:
        raise IncompatibleError(
            "the exporter of PyTorch cannot follow the network",
            where=f"{graph.name}{ENDING}",
            found=_last_words(error),
            do="use a version of torch in the range that Maskwright names, or use the model with "
            "maskwright itself",
        ) from error
    _tidy(model, graph)
    return model


def save(model: Any, path: Path) -> list[Path]:
    """Write a model to `path`, with weights in a second file if one is too small; return both."""
    import onnx

    if model.ByteSize() < LARGEST:
        path.write_bytes(model.SerializeToString())
        return [path]
    data_path = path.with_name(path.name + BESIDE)
    onnx.save_model(
        model,
        str(path),
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=data_path.name,
        size_threshold=1024,
    )
    return [path, data_path]


def _tidy(model: Any, graph: Graph) -> None:
    """Remove metadata of the exporter; set the producer and the names of dynamic sizes."""
    _name_products(model)
    model.producer_name, model.producer_version = "maskwright", VERSION
    model.doc_string = model.graph.doc_string = ""
    model.graph.name = graph.name
    bodies = [model.graph, *model.functions]
    elements = [element for body in bodies for element in body.node]
    elements += [*model.graph.input, *model.graph.output, *model.graph.initializer]
    for element in [model, *bodies, *elements, *model.graph.value_info]:
        if hasattr(element, "metadata_props"):
            del element.metadata_props[:]
        if hasattr(element, "doc_string"):
            element.doc_string = ""
    del model.graph.value_info[:]
    exported_inputs = [port.name for port in model.graph.input]
    graph_inputs = [port.name for port in graph.inputs]
    if sorted(exported_inputs) != sorted(graph_inputs):
        raise IncompatibleError(
            "the exporter of PyTorch gave the graph other inputs",
            where=graph.name,
            found=", ".join(exported_inputs),
            wanted=", ".join(graph_inputs),
            do="use a version of torch in the range that Maskwright names",
        )
    ports = {port.name: port for port in (*graph.inputs, *graph.outputs)}
    for element in (*model.graph.input, *model.graph.output):
        for dim, axis in zip(
            element.type.tensor_type.shape.dim, ports[element.name].axes, strict=True
        ):
            if isinstance(axis, str):
                dim.dim_param = AXES[axis]


def _name_products(model: Any) -> None:
    """Name MatMul and Gather nodes after their modules: `encoder.blocks.0.attention.query`."""
    names_in_use: set[str] = {node.name for node in model.graph.node}
    for node in model.graph.node:
        module_names = {note.key: note.value for note in node.metadata_props}.get(SCOPES, "")
        scopes = re.findall(r"'network\.([\w.]+)'", module_names)
        if node.op_type not in NAMED or not scopes:
            continue
        name, number = scopes[-1], 1
        while name in names_in_use:
            number += 1
            name = f"{scopes[-1]}.{number}"
        names_in_use.add(name)
        node.name = name


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Context manager: silence the exporter, and remove its temporary cache."""
    loggers = [logging.getLogger(name) for name in TALKERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            cache = os.environ.setdefault(TORCH_CACHE, folder)
            try:
                yield
            finally:
                if cache == folder:
                    del os.environ[TORCH_CACHE]
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _last_words(error: BaseException) -> str:
    """Return the type and first line of the innermost cause of an error."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
