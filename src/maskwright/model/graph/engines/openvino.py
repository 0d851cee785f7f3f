"""OpenVINO on the CPU, in float32 or, if the hardware supports it, in bfloat16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from maskwright.model.graph.engines.base.engine import Ids, States, feeds

NEEDS = ("openvino", "onnx", "onnxscript")
PRECISIONS = ("float32", "bfloat16")
HINTS = {"float32": "f32", "bfloat16": "bf16"}


class OpenVino:
    """A graph compiled for this CPU."""

    name = "openvino"

    def __init__(self, file: Path, threads: int, precision: str) -> None:
        self.precision = precision
        self._model = compiled(file, threads, precision)
        self._inputs = [port.get_any_name() for port in self._model.inputs]
        self._request = self._model.create_infer_request()
        self.bytes = sum(port.stat().st_size for port in file.parent.glob(f"{file.stem}.*"))

    def run(self, ids: Ids, mask: Ids, segments: Ids | None = None) -> States:
        outputs = self._request.infer(feeds(ids, mask, segments, self._inputs))
        return np.array(outputs[self._model.output(0)], np.float32)


def compiled(file: Path | str, threads: int, precision: str | None = None) -> Any:
    """Compile the graph; `precision` None leaves the precision to OpenVINO."""
    import openvino

    core = openvino.Core()
    settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    if precision is not None:
        settings["INFERENCE_PRECISION_HINT"] = HINTS[precision]
    return core.compile_model(core.read_model(str(file)), "CPU", settings)


def load(file: Path, threads: int, precision: str) -> OpenVino:
    """The graph in `file`."""
    return OpenVino(file, threads, precision)
