"""Which curves a run's page shows: loss large, the others small beside each other.

The horizontal axis is tokens seen, so that runs with different batches compare; it is steps where
the records do not say how many tokens a step saw.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from maskwright.report.drawing.curves import Chart, Line, Point
from maskwright.report.run_folder import Record, RunFolder
from maskwright.report.wording import count, figure, number, token_loss, token_parts

SMALL = (372, 216)  # width, height


def main_chart(folder: RunFolder) -> Chart:
    """Training and held-out loss, between the lines that need no model."""
    axis = Axis(folder)
    references = [
        (name, number(folder.references, f"{name}_loss")) for name in ("uniform", "unigram")
    ]
    held_out = axis.points(folder.evaluations, "loss")
    training = [(axis.at(r), token_loss(r, folder.run)) for r in folder.train]
    return Chart(
        title="Loss, nats per predicted token",
        lines=(
            Line("training", training, band=True),
            Line("held-out", held_out, css="two", dots=len(held_out) <= 40),
        ),
        references=references,
        across=axis.name,
        say=lambda value: figure(value, 2),
        height=330,
    )


def small_charts(folder: RunFolder) -> list[Chart]:
    """Accuracy, other parts of the loss, learning rate, gradient norm, speed: those that exist."""
    axis = Axis(folder)
    apart = axis.points(folder.evaluations, "told_apart")
    charts = [_accuracy(folder, axis), *_other_parts(folder, axis)]
    what = str(next((r["decides"] for r in folder.evaluations if "decides" in r), "")).capitalize()
    charts.append(_single(f"{what} told apart (0.5 is chance)", apart, axis, _short))
    charts.append(_single("Learning rate", axis.points(folder.train, "learning_rate"), axis, _rate))
    charts.append(
        _single(
            "Gradient norm", axis.points(folder.train, "gradient_norm"), axis, _short, band=True
        )
    )
    speed = axis.points(folder.timings, "tokens_per_second")
    charts.append(_single("Tokens per second", speed, axis, count))
    return [chart for chart in charts if chart]


class Axis:
    """Where a record lies across: its tokens, or those of the step it belongs to."""

    def __init__(self, folder: RunFolder) -> None:
        steps = [*folder.train, *folder.skipped]
        self._tokens = {number(r, "step"): number(r, "tokens") for r in steps}
        known = any(math.isfinite(t) for t in self._tokens.values())
        self.name = "tokens" if known else "steps"

    def at(self, record: Record) -> float:
        step = number(record, "step")
        return self._tokens.get(step, math.nan) if self.name == "tokens" else step

    def points(self, records: list[Record], name: str) -> list[Point]:
        return [(self.at(r), number(r, name)) for r in records]


def _accuracy(folder: RunFolder, axis: Axis) -> Chart:
    lines = [
        Line(
            name, axis.points(folder.evaluations, key), css=css, dots=len(folder.evaluations) <= 40
        )
        for name, key, css in (("first guess", "top1", "one"), ("in five", "top5", "three"))
    ]
    references = []
    if lines[0].finite:
        references.append(("unigram", number(folder.references, "unigram_top1")))
    return Chart(
        title="Held-out tokens predicted right",
        lines=lines,
        references=references,
        across=axis.name,
        say=lambda value: f"{value * 100:.0f} %" if value >= 0.1 else f"{value * 100:.2g} %",
        from_zero=True,
        width=SMALL[0],
        height=SMALL[1],
    )


def _other_parts(folder: RunFolder, axis: Axis) -> list[Chart]:
    """A chart for each part of the loss that does not predict tokens, such as sentence pairs."""
    names: dict[str, None] = {}
    for record in folder.train:
        parts = record.get("parts")
        names.update(dict.fromkeys(parts if isinstance(parts, dict) else ()))
    charts = []
    for name in names:
        if name not in token_parts(folder.run):
            points = [
                (axis.at(r), number(r["parts"], name))
                for r in folder.train
                if isinstance(r.get("parts"), dict)
            ]
            charts.append(_single(f"Loss of the part “{name}”", points, axis, _short, band=True))
    return charts


def _single(
    title: str, points: list[Point], axis: Axis, say: Callable[[float], str], *, band: bool = False
) -> Chart:
    return Chart(
        title=title,
        lines=(Line("last", points, band=band),),
        across=axis.name,
        say=say,
        from_zero=True,
        width=SMALL[0],
        height=SMALL[1],
    )


def _rate(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}"


def _short(value: float) -> str:
    return f"{value:.3g}"
