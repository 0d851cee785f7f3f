"""Load and run ONNX files with ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import CheckpointError
from maskwright.base.packages import require


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

        onnxruntime = require("running a graph", "onnxruntime")

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
