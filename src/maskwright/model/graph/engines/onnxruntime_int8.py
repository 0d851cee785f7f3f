"""ONNX Runtime with 8-bit products: static quantisation of weights for each output, dynamic
quantisation of inputs. Results differ, so it is used only if named explicitly."""

from __future__ import annotations

from pathlib import Path

from maskwright.model.graph.engines.onnxruntime import NEEDS, OnnxRuntime
from maskwright.model.graph.session import write_eight_bits

PRECISIONS = ("int8",)
__all__ = ["NEEDS", "PRECISIONS", "OnnxRuntimeInt8", "load"]


class OnnxRuntimeInt8(OnnxRuntime):
    """A session on the graph with 8-bit weights."""

    name = "onnxruntime-int8"
    precision = "int8"


def load(file: Path, threads: int, precision: str) -> OnnxRuntimeInt8:
    """Quantise the graph in `file` and load it."""
    target = file.with_name("int8.onnx")
    write_eight_bits(file, target)
    return OnnxRuntimeInt8(target, threads)
