"""ONNX Runtime over the model's graph, in float32."""

from __future__ import annotations

from pathlib import Path

from maskwright.ship.bench import side
from maskwright.ship.bench.side import Side
from maskwright.ship.bench.work import Work

LABEL = "ONNX Runtime"
NEEDS = ("onnxruntime", "onnx", "onnxscript")
PRECISION = "float32"
GRAPH = True
refusal = side.refusal


def open(work: Work, threads: int) -> Side:
    """A session over the graph."""
    from maskwright.model.graph.session import Session

    session = Session(Path(work.graph), threads=threads)
    output = session.outputs[0]
    return Side(
        side.loop(work, session.inputs, lambda feeds: session.run(feeds)[output]), PRECISION
    )
