"""A label curve: figures by way, number of labels and seed; and what is told of them, as tables,
sentences and a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from maskwright.counted import counted
from maskwright.metrics import seeds as intervals
from maskwright.report import document
from maskwright.report.drawing.curves import Chart, Line, draw
from maskwright.report.drawing.svg import COLOURS, style
from maskwright.report.tables import Table
from maskwright.report.wording import figure

SCRATCH = "from scratch"
UNTRAINED = " (no pretraining)"
ASKED_AGAIN = 500  # rows of the training part
LEVEL = 0.05
NOT_KNOWN = "not known"


@dataclass
class Curve:
    """Figures by way, number of labels, and seed.

    Attributes:
        baselines: ways that need no training of a model.
        moved, learned: as `figures`, of what is trained: how far the weights moved, and the figure
            on (some of) what was learned from.
    """

    measure: str
    counts: list[int]
    figures: dict[str, dict[int, dict[int, float]]] = field(default_factory=dict)
    baselines: list[str] = field(default_factory=list)
    moved: dict[str, dict[int, dict[int, float]]] = field(default_factory=dict)
    learned: dict[str, dict[int, dict[int, float]]] = field(default_factory=dict)

    def put(self, approach: str, count: int, seed: int, value: float) -> None:
        self.figures.setdefault(approach, {}).setdefault(count, {})[seed] = value

    def put_trained(
        self, approach: str, count: int, seed: int, evaluation: Mapping[str, float]
    ) -> None:
        """What one training came to (`measure_curve.py`)."""
        self.put(approach, count, seed, evaluation["value"])
        for name, each in (("moved", self.moved), ("learned", self.learned)):
            each.setdefault(approach, {}).setdefault(count, {})[seed] = evaluation[name]

    def mean(self, approach: str, count: int) -> float:
        return intervals.over_seeds(list(self.figures[approach][count].values())).mean

    def best(self, count: int, approaches: Sequence[str] | None = None) -> str:
        """The way with the best mean; of equals the first."""
        return max(
            approaches or list(self.figures), key=lambda approach: self.mean(approach, count)
        )

    def apart(self, approach: str, other: str, count: int) -> bool | None:
        """Whether the seeds tell the two apart; None where that cannot be known."""
        gap = intervals.difference(self.figures[approach][count], self.figures[other][count])
        return None if gap is None else gap.welch < LEVEL


# ------------------------------------------------------------------------------ what is told
def table(curve: Curve) -> Table:
    """Mean and deviation of each way at each number of labels."""
    rows = []
    for approach, by_count in curve.figures.items():
        cells = []
        for count in curve.counts:
            spread = intervals.over_seeds(list(by_count[count].values()))
            known = math.isfinite(spread.deviation)
            cells.append(figure(spread.mean) + (f" ± {figure(spread.deviation)}" if known else ""))
        rows.append([approach, *cells])
    return {
        "title": f"{curve.measure} by number of labels",
        "head": ["", *(f"{count:,}" for count in curve.counts)],
        "rows": rows,
        "note": "± is the standard deviation over seeds; each seed draws its own labels.",
    }


def strategy(curve: Curve) -> Table:
    """Which way to take: the best by its mean, and what the seeds do not tell apart from it."""
    rows = []
    for count in curve.counts:
        best = curve.best(count)
        apart = {w: curve.apart(w, best, count) for w in curve.figures if w != best}
        alike = [approach for approach, differs in apart.items() if differs is False]
        unknown = [approach for approach, differs in apart.items() if differs is None]
        shown_names = ", ".join(alike) or "–"
        if unknown:
            every = len(unknown) == len(apart)
            shown_names = (
                NOT_KNOWN if every else f"{shown_names}; {NOT_KNOWN}: {', '.join(unknown)}"
            )
        rows.append([f"{count:,}", best, figure(curve.mean(best, count)), shown_names])
    return {
        "title": "Which way at which number of labels",
        "head": ["labels", "best mean", curve.measure, "not told apart from it"],
        "rows": rows,
        "note": f"Told apart: Welch's test over the seeds, p < {LEVEL:g}, for each pair by itself; "
        "of one seed, or where no seed changed either of two figures, it is not known.",
    }


def journeys(curve: Curve) -> Table:
    """How far the weights moved, and what is lost from known texts to new ones."""
    rows = []
    for approach, by_count in curve.moved.items():
        for count in curve.counts:
            far = intervals.over_seeds(list(by_count[count].values())).mean
            known = intervals.over_seeds(list(curve.learned[approach][count].values())).mean
            new = curve.mean(approach, count)
            cells = (figure(far), figure(known), figure(new), figure(known - new))
            rows.append([approach, f"{count:,}", *cells])
    return {
        "title": "How far the weights moved, and what that cost on new texts",
        "head": ["", "labels", "moved", "known texts", "new texts", "gap"],
        "rows": rows,
        "note": "Moved: the distance of all weights below the head from where they began, beside "
        f"their length there. Known texts: at most {ASKED_AGAIN} of those learned from.",
    }


def verdicts(curve: Curve) -> list[str]:
    """What pretraining is worth at each number of labels, in a sentence."""
    without = [*curve.baselines, SCRATCH]
    ours = [approach for approach in curve.figures if approach not in without]
    found = []
    for count in curve.counts:
        best, rival = curve.best(count, ours), curve.best(count, without)
        gap = curve.mean(best, count) - curve.mean(rival, count)
        apart = curve.apart(best, rival, count)
        many_seeds = len(curve.figures[best][count]) > 1
        unknown = "and as no seed changed either" if many_seeds else "with one seed"
        word = {
            None: f"{unknown} there is no verdict",
            False: "which these seeds do not tell from nothing",
            True: "by more than the spread",
        }[apart]
        found.append(
            f"With {counted(count, 'label')} the best with pretraining ({best}) is "
            f"{figure(abs(gap))} {'above' if gap >= 0 else 'below'} the best without it "
            f"({rival.removesuffix(UNTRAINED)}), "
            f"{word}."
        )
    return found


def _lines(curve: Curve) -> Iterator[Line]:
    shown = len(curve.figures) <= len(COLOURS)  # more areas than that hide each other
    for place, (approach, by_count) in enumerate(curve.figures.items()):
        spread = [
            (float(c), min(by_count[c].values()), max(by_count[c].values())) for c in curve.counts
        ]
        points = [(float(c), curve.mean(approach, c)) for c in curve.counts]
        many_seeds = max(map(len, by_count.values())) > 1
        yield Line(
            approach, points, style(place), dots=True, spread=spread if many_seeds and shown else ()
        )


def render(curve: Curve, about: dict[str, Any]) -> str:
    """The page as text."""
    lines = list(_lines(curve))
    places = list(curve.figures)
    moved = [
        Line(
            approach,
            [(float(c), intervals.over_seeds(list(each.values())).mean) for c, each in far.items()],
            style(places.index(approach)),
            dots=True,
        )
        for approach, far in curve.moved.items()
    ]
    chart = partial(
        Chart,
        across="labels, logarithmic",
        say=figure,
        logarithmic=True,
        marks=[float(count) for count in curve.counts],
    )
    return document.render(
        "label_curve.html",
        name=f"{about['task']}: {Path(about['model']).name}",
        kind="Maskwright label curve",
        curve=draw(chart(f"{curve.measure} on the {about['asked']} part", lines, height=360)),
        areas=any(line.spread for line in lines),
        verdicts=verdicts(curve),
        moved=draw(chart("How far the weights moved from where they began", moved, from_zero=True)),
        tables=[strategy(curve), table(curve), journeys(curve)],
    )
