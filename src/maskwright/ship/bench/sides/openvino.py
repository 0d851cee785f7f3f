"""OpenVINO over the model's graph, with its own choice of precision: bfloat16 where it has units
for it."""

from __future__ import annotations

from maskwright.ship.bench import side
from maskwright.ship.bench.side import Side
from maskwright.ship.bench.work import Work

LABEL = "OpenVINO"
NEEDS = ("openvino", "onnx", "onnxscript")
PRECISION = ""
GRAPH = True
refusal = side.refusal


def open(work: Work, threads: int) -> Side:
    """The compiled graph."""
    from maskwright.model.graph.engines.openvino import compiled, precision_of

    model = compiled(work.graph, threads)
    inputs = [each.get_any_name() for each in model.inputs]
    return Side(side.loop(work, inputs, lambda feeds: model(feeds)[0]), precision_of(model))
