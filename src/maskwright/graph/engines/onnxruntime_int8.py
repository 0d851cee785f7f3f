"""ONNX Runtime with products of 8 bits: weights are rounded once for each output, what is read is
rounded anew for each row of products. Answers are others, so it answers only where it is named."""

from __future__ import annotations

from pathlib import Path

from maskwright.graph.engines.onnxruntime import INSTALL, NEEDS, OnnxRuntime

EXACT = False
PRECISIONS = ("int8",)
__all__ = ["EXACT", "INSTALL", "NEEDS", "PRECISIONS", "OnnxRuntimeInt8", "load"]


class OnnxRuntimeInt8(OnnxRuntime):
    """A session over the graph with weights of 8 bits."""

    name = "onnxruntime-int8"
    precision = "int8"


def load(file: Path, threads: int, precision: str) -> OnnxRuntimeInt8:
    """The graph in `file`, whose weights are rounded beside it."""
    return OnnxRuntimeInt8(quantised(file), threads)


def quantised(file: Path) -> Path:
    """The same graph with weights of 8 bits, beside `file`."""
    import logging

    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Without VNNI a sum of two products of bytes overflows 16 bits: one bit less for weights.
    narrow = not torch.cpu.get_capabilities().get("avx512_vnni", False)
    target = file.with_name("int8.onnx")
    logging.disable(logging.WARNING)  # advice about models of images
    try:
        quantize_dynamic(
            file, target, per_channel=True, reduce_range=narrow, weight_type=QuantType.QInt8
        )
    finally:
        logging.disable(logging.NOTSET)
    return target
