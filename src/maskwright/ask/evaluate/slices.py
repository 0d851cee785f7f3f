"""Metrics of a model by the values of a column: where is it worse than elsewhere?

Each value with enough rows is a slice; rarer values are pooled. A slice is compared with all other
rows by the metric that selected the model: by Fisher's exact test for accuracy, else by a
permutation test of which rows belong to it. All slices are one family of tests (Holm 1979), so that
in at most 5 % of columns that have nothing to do with the errors a slice is called worse or better.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import UsageError, shorten, unknown
from maskwright.base.metrics.intervals import LEVEL, RESAMPLES, Estimate
from maskwright.base.metrics.paired import holm
from maskwright.base.metrics.row_metrics import ArrayMetric, SumMetric
from maskwright.base.report.document import Table
from maskwright.base.terminal import counted, decimals
from maskwright.learn.tasks.base.task_type import TaskMetrics
from maskwright.text.tables.cell_values import group_name
from maskwright.text.tables.rows import Row, has_column, value_of

LEAST_ROWS = 10  # of a slice
MOST_SLICES = 40
# The least p of a permutation test is 1 / (resamples + 1), which Holm multiplies by the tests.
RESAMPLES_PER_SLICE = 50


@dataclass(frozen=True)
class Slice:
    """The rows with one value, or with one of several rare ones (`pooled`: how many).

    Attributes:
        gap: how much better the measure is than `rest`; NaN if it is not compared.
        p: of no difference, adjusted for all slices; NaN as `gap`.
    """

    name: str
    rows: int
    pooled: int
    estimates: Mapping[str, Estimate]
    gap: float
    rest: float
    p: float

    @property
    def standing(self) -> str:
        """How the slice compares with the other rows."""
        if math.isnan(self.p):
            return "not compared"
        if self.p >= 1 - LEVEL:
            return "not significant"
        return "worse" if self.gap < 0 else "better"


@dataclass(frozen=True)
class SliceComparison:
    """All slices of a column, the worst first by the metric `measure`."""

    column: str
    measure: str
    slices: Sequence[Slice]

    @property
    def sentence(self) -> str:
        """Which slices are worse than the other rows."""
        worse = [
            f"{part.name} ({decimals(part.estimates[self.measure].value)} on "
            f"{counted(part.rows, 'row')}, {decimals(part.rest)} elsewhere, p = {part.p:.2g})"
            for part in self.slices
            if part.standing == "worse"
        ]
        by = f"By {self.column!r}"
        if all(math.isnan(part.p) for part in self.slices):
            return f"{by}: nothing is compared."
        if not worse:
            return f"{by}: no value is shown to be worse than the other rows by {self.measure}."
        are = "is" if len(worse) == 1 else "are"
        return f"{by}: worse than the other rows by {self.measure} {are} {', '.join(worse)}."

    @property
    def table(self) -> Table:
        note = f"Compared with all other rows by {self.measure}, p adjusted for all values (Holm)."
        if pooled := sum(part.pooled for part in self.slices):
            note += (
                f" Values with fewer than {LEAST_ROWS} rows, or beyond the {MOST_SLICES} most "
                f"frequent ones, are pooled ({pooled})."
            )
        return {
            "title": f"By {self.column}",
            "head": ["", "rows", *self.slices[0].estimates, "than the rest", "p"],
            "rows": [
                [
                    part.name,
                    f"{part.rows:,}",
                    *(estimate.render() for estimate in part.estimates.values()),
                    part.standing,
                    "–" if math.isnan(part.p) else f"{part.p:.2g}",
                ]
                for part in self.slices
            ],
            "note": note,
        }

    def to_json(self) -> dict[str, Any]:
        slices = [
            {
                "value": part.name,
                "rows": part.rows,
                "pooled": part.pooled,
                "figures": {name: e.to_json() for name, e in part.estimates.items()},
                "p": None if math.isnan(part.p) else part.p,
                "standing": part.standing,
            }
            for part in self.slices
        ]
        return {"column": self.column, "measure": self.measure, "slices": slices}


def values_of(
    column: str, examples: Sequence[Any], rows: Sequence[Row], columns: Sequence[str]
) -> list[str]:
    """Return the value of a column for each example, as text.

    Raises:
        UsageError: there is no such column, or no value of it has enough rows.
    """
    if not has_column(column, columns):
        raise unknown("no such column to evaluate by", column, columns, where="--by")
    by_place = {row.where: value_of(row, column) for row in rows}
    values = [group_name(by_place.get(example.where)) or "(empty)" for example in examples]
    most = max(Counter(values).values())
    if most < LEAST_ROWS:
        raise UsageError(
            "no value of the column has enough rows for figures of its own",
            where="--by",
            found=f"{column!r}: {counted(most, 'row')} of its most frequent value",
            wanted=f"{LEAST_ROWS} rows or more",
            do="choose a column of few values, such as a source or a group",
        )
    return values


def compare_slices(
    column: str, values: Sequence[str], metrics: TaskMetrics, measure: str
) -> SliceComparison:
    """Compare the rows with each value of `values` (one for each row) with the others."""
    common = [
        name for name, count in Counter(values).most_common(MOST_SLICES) if count >= LEAST_ROWS
    ]
    names = np.array([common.index(value) if value in common else -1 for value in values])
    rare = len({*values} - {*common})
    # Metrics of some rows alone, such as of questions that have an answer, have no slices.
    of_all_rows = {
        n: figure
        for n, figure in metrics.figures.items()
        if isinstance(figure, ArrayMetric | SumMetric) and figure.rows == len(names)
    }
    groups = [(repr(shorten(name, 60)), names == number) for number, name in enumerate(common)]
    groups += [(counted(rare, "rare value"), names < 0)] if rare else []
    tests = [(math.nan, math.nan)] * len(groups)
    slices = []
    with np.errstate(invalid="ignore", divide="ignore"):
        if measure in of_all_rows:
            tests = compare_groups(of_all_rows[measure], [group for _, group in groups])
        for (name, group), (gap, p) in zip(groups, tests, strict=True):
            rows = np.flatnonzero(group)
            estimates = {n: figure.select(rows).estimate() for n, figure in of_all_rows.items()}
            value_elsewhere = math.nan
            if not math.isnan(gap):
                value_elsewhere = of_all_rows[measure].select(np.flatnonzero(~group)).value
            pooled = rare if names[rows[0]] < 0 else 0
            slices.append(Slice(name, len(rows), pooled, estimates, gap, value_elsewhere, p))
    slices.sort(key=lambda part: math.inf if math.isnan(part.gap) else part.gap)
    return SliceComparison(column, measure, slices)


def compare_groups(
    figure: ArrayMetric | SumMetric, groups: Sequence[NDArray[np.bool_]], least: int = RESAMPLES
) -> list[tuple[float, float]]:
    """Compare each group of rows (N,) with all other rows: by how much the metric is better, and p
    adjusted for all groups; NaN if it has too few rows. `least`: resamples of few groups."""
    resamples = max(least, RESAMPLES_PER_SLICE * len(groups))
    tests = [
        figure.gain_inside(group, resamples)
        if LEAST_ROWS <= group.sum() < len(group)
        else (math.nan, math.nan)
        for group in groups
    ]
    adjusted = holm([p for _, p in tests])
    return [(gap, p) for (gap, _), p in zip(tests, adjusted, strict=True)]
