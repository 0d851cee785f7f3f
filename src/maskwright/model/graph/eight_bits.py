"""8-bit weights by ONNX Runtime's dynamic quantisation, with one scale for each output channel; the
inputs of products are quantised at run time."""

from __future__ import annotations

import contextlib
import logging
import platform
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

WEIGHT = {"MatMul": 1, "Gather": 0}  # which input of a node is its weight


def write_eight_bits(
    source: Path, target: Path, names: Sequence[str] | None = None, narrow: bool | None = None
) -> None:
    """Write the graph of `source` with 8-bit weights to `target`.

    Args:
        names: names of the nodes to quantise; None for all.
        narrow: use 7 bits, since sums of two products overflow 16 bits on CPUs without VNNI; None
            to decide by the CPU.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet_quantizer():
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=list(WEIGHT),
            per_channel=True,
            reduce_range=not has_vnni() if narrow is None else narrow,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=None if names is None else list(names),
        )


def has_vnni() -> bool:
    """Whether the CPU multiplies 8-bit numbers without overflow of 16-bit intermediate sums."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    try:
        return "vnni" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


@contextlib.contextmanager
def _quiet_quantizer() -> Iterator[None]:
    """Context manager: silence a warning about preprocessing that these graphs do not need."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
