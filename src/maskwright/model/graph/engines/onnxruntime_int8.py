"""ONNX Runtime with products of 8 bits: weights are rounded once for each output, what is read is
rounded anew for each row of products. Answers are others, so it answers only where it is named."""

from __future__ import annotations

from pathlib import Path

from maskwright.model.graph.eight_bits import write_eight_bits
from maskwright.model.graph.engines.onnxruntime import NEEDS, OnnxRuntime

EXACT = False
PRECISIONS = ("int8",)
__all__ = ["EXACT", "NEEDS", "PRECISIONS", "OnnxRuntimeInt8", "load"]


class OnnxRuntimeInt8(OnnxRuntime):
    """A session over the graph with weights of 8 bits."""

    name = "onnxruntime-int8"
    precision = "int8"


def load(file: Path, threads: int, precision: str) -> OnnxRuntimeInt8:
    """The graph in `file`, whose weights are rounded beside it."""
    return OnnxRuntimeInt8(quantised(file), threads)


def quantised(file: Path) -> Path:
    """The same graph with weights of 8 bits, beside `file`."""
    target = file.with_name("int8.onnx")
    write_eight_bits(file, target)
    return target
