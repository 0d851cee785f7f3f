"""ONNX Runtime on the CPU in float32, which has little overhead for a single short text."""

from __future__ import annotations

from pathlib import Path

from maskwright.model.graph.engines.base.engine import Ids, States, feeds
from maskwright.model.graph.session import Session

NEEDS = ("onnxruntime", "onnx", "onnxscript")
PRECISIONS = ("float32",)


class OnnxRuntime:
    """A session over the graph."""

    name = "onnxruntime"
    precision = "float32"

    def __init__(self, file: Path, threads: int) -> None:
        self._session = Session(file, threads=threads)
        self.bytes = sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*"))

    def run(self, ids: Ids, mask: Ids, segments: Ids | None = None) -> States:
        outputs = self._session.run(feeds(ids, mask, segments, self._session.inputs))
        return outputs[self._session.outputs[0]]


def load(file: Path, threads: int, precision: str) -> OnnxRuntime:
    """The graph in `file`."""
    return OnnxRuntime(file, threads)
