"""ONNX Runtime on the CPU: run graphs in files, and write graphs with 8-bit weights.

8-bit weights are of its dynamic quantisation, with one scale for each output channel; the inputs of
products are quantised at run time.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.catalogue import require_packages
from maskwright.base.errors import CheckpointError

WEIGHT = {"MatMul": 1, "Gather": 0}  # which input of a node is its weight


class Session:
    """A loaded graph; `inputs` and `outputs` are the names of its tensors in order."""

    def __init__(self, file: Path, *, threads: int | None = None) -> None:
        """
        Args:
            threads: number of threads; None for that of PyTorch.

        Raises:
            UsageError: ONNX Runtime is missing.
            CheckpointError: the file cannot be read.
        """
        import torch

        onnxruntime = require_packages("running a graph", "onnxruntime")

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or torch.get_num_threads()
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors
        # Spinning threads would take CPU time from subsequent computations.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(file), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its errors have no class of their own
            raise CheckpointError(
                "ONNX Runtime cannot read the graph",
                where=file,
                found=str(error).splitlines()[0][:300] if str(error) else type(error).__name__,
            ) from error
        self.inputs = tuple(port.name for port in self._session.get_inputs())
        self.outputs = tuple(port.name for port in self._session.get_outputs())

    def run(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """Return the outputs by name; arrays that are no inputs of the graph are ignored."""
        inputs = {name: arrays[name] for name in self.inputs}
        results = self._session.run(self.outputs, inputs)
        return dict(zip(self.outputs, results, strict=True))


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
