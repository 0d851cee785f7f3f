"""Report of a comparison of recipes with several seeds each: tables, verdicts, curves, a page.

A verdict is a sentence: the difference from the first recipe with its interval, by a test over the
seeds that is paired where the seeds are the same. All verdicts of a comparison, over recipes and
metrics, are one family: p values are adjusted by Holm's method, and intervals by Bonferroni's, so
that equal recipes get a verdict of better or worse in at most 5 % of comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from maskwright.base.errors import Finding
from maskwright.base.metrics.intervals import LEVEL
from maskwright.base.metrics.paired import Verdict, holm
from maskwright.base.metrics.seeds import Difference, difference, over_seeds
from maskwright.base.report import document
from maskwright.base.report.document import Table, count, duration, figure
from maskwright.base.report.drawing.curves import Chart, Line, draw
from maskwright.base.report.drawing.svg import style
from maskwright.base.terminal import counted

NAME = "report.html"
DIGITS = 4  # of a metric
COSTS = ("tokens", "operations", "seconds", "memory")
AXES = {"tokens": "tokens", "operations": "floating-point operations", "seconds": "seconds"}


@dataclass(frozen=True)
class Run:
    """One seed of a recipe.

    Attributes:
        memory: peak memory of the process in bytes.
        final: values by metric name.
        curve: the held-out loss of each evaluation: {"tokens", "operations", "seconds", "loss"}.
    """

    seed: int
    tokens: int
    operations: float
    seconds: float
    memory: int
    final: dict[str, float]
    curve: Sequence[dict[str, float]]


@dataclass(frozen=True)
class RecipeReport:
    """A recipe and its runs. Losses of recipes with equal `questions` (a hash) are comparable."""

    name: str
    note: str
    parameters: int
    questions: str
    runs: Sequence[Run]

    def figures(self, measure: str) -> dict[int, float]:
        """Return the value of a metric by seed; empty if it is not defined for this recipe."""
        return {run.seed: run.final[measure] for run in self.runs if measure in run.final}


@dataclass(frozen=True)
class Metric:
    """A metric and its direction. If not `compares`, its values are shown without a verdict, as
    they are not comparable between recipes."""

    name: str
    title: str
    higher_is_better: bool = False
    compares: bool = True


@dataclass(frozen=True)
class Comparison:
    """The content of the report. `differences` are rows: a setting, its value in each recipe."""

    budget: str
    contenders: Sequence[RecipeReport]
    measures: Sequence[Metric]
    differences: Sequence[Sequence[str]] = ()
    findings: Sequence[Finding] = ()


# ------------------------------------------------------------------------------ tables and words
def result(comparison: Comparison) -> Table:
    """Return a table with mean, standard deviation and 95 % interval over seeds, by metric."""
    return {
        "title": f"Equal budget: {comparison.budget}",
        "head": ["", *(m.title for m in comparison.measures), "seeds"],
        "rows": [
            [c.name, *(_cell(c, m) for m in comparison.measures), f"{len(c.runs)}"]
            for c in comparison.contenders
        ],
        "note": "Mean ± standard deviation over seeds, and the 95 % interval of the mean "
        "(Student's t).",
    }


def cost(comparison: Comparison) -> Table:
    """Return a table with the cost of a run of each recipe, as the mean over seeds."""
    rows = []
    for c in comparison.contenders:
        tokens, operations, seconds = (
            fmean(getattr(run, cost) for run in c.runs) for cost in COSTS[:3]
        )
        memory = max(run.memory for run in c.runs) / 2**20
        figures = [c.parameters, tokens, operations, tokens / max(seconds, 1e-9), memory]
        row = [c.name, *map(count, figures)]
        rows.append([*row[:4], duration(seconds), *row[4:]])
    return {
        "title": "What a run cost",
        "head": ["", "parameters", "tokens", "operations", "time", "tokens/s", "peak memory, MiB"],
        "rows": rows,
        "note": "Operations are those of matrix products, forward and backward; time is training "
        "time, without evaluation; memory is the largest of the seeds'.",
    }


def _cell(contender: RecipeReport, measure: Metric) -> str:
    values = contender.figures(measure.name)
    if not values:
        return "–"
    spread = over_seeds(list(values.values()))
    numbers = (spread.mean, spread.deviation, spread.low, spread.high)
    mean, deviation, low, high = (figure(number, DIGITS) for number in numbers)
    return mean if spread.count == 1 else f"{mean} ± {deviation} ({low} to {high})"


@dataclass(frozen=True)
class ComparedPair:
    """A recipe beside the first one, the `reference`, by a metric.

    Attributes:
        gap: their difference over the seeds; None if no test can compare them.
        p: of no difference, adjusted for all pairs and metrics.
        level: of the interval of the gap.
    """

    measure: Metric
    contender: RecipeReport
    reference: RecipeReport
    gap: Difference | None
    p: float
    level: float

    @property
    def direction(self) -> str:
        """better or worse, or "" if the difference is not significant."""
        if self.gap is None or not self.p < 1 - LEVEL:
            return ""
        return "better" if (self.gap.value > 0) == self.measure.higher_is_better else "worse"

    @property
    def sentence(self) -> str:
        """The difference in words."""
        gap, name, reference = self.gap, self.contender.name, self.reference.name
        if gap is None:
            by_seed = [side.figures(self.measure.name) for side in (self.contender, self.reference)]
            means = [figure(fmean(values.values()), DIGITS) for values in by_seed]
            reason = "the value is equal in all seeds"
            if not all(math.isfinite(value) for side in by_seed for value in side.values()):
                reason = "the value is not defined in all seeds"
            elif min(map(len, by_seed)) < 2:
                reason = "one seed has no spread; use --seeds 3"
            return f"{name} {means[0]}, {reference} {means[1]}; no verdict: {reason}."
        numbers = (
            f"difference {figure(gap.value, DIGITS)}, {self.level * 100:.3g} % interval "
            f"{figure(gap.low, DIGITS)} to {figure(gap.high, DIGITS)}, p = {self.p:.2g}, "
            f"{'paired by seed' if gap.paired else 'Welch'}"
        )
        if self.direction:
            return f"{name} is {self.direction} than {reference} ({numbers})."
        subject = f"between {name} and {reference}"
        return f"no difference {subject} is shown by these seeds ({numbers})."


def compared_pairs(comparison: Comparison) -> list[ComparedPair]:
    """Compare every recipe after the first with it, by every comparable metric."""
    reference, *contenders = comparison.contenders
    compared = [
        (measure, contender, reference)
        for measure in comparison.measures
        for contender in contenders
        if measure.compares and contender.figures(measure.name) and reference.figures(measure.name)
    ]
    level = 1 - (1 - LEVEL) / max(1, len(compared))
    gaps = [
        difference(ours.figures(measure.name), theirs.figures(measure.name), level)
        for measure, ours, theirs in compared
    ]
    adjusted = holm([math.nan if gap is None else gap.p for gap in gaps])
    return [
        ComparedPair(*pair, gap, p, level)
        for pair, gap, p in zip(compared, gaps, adjusted, strict=True)
    ]


def judge_recipes(comparison: Comparison) -> Verdict:
    """Say which recipes are better or worse than the first. The state is good if one is better by
    some metric and worse by none."""
    reference, *contenders = comparison.contenders
    seeds = counted(min(len(recipe.runs) for recipe in comparison.contenders), "seed")
    titles: dict[str, dict[str, list[str]]] = {}
    for pair in compared_pairs(comparison):
        if pair.direction:
            by_direction = titles.setdefault(pair.contender.name, {})
            by_direction.setdefault(pair.direction, []).append(pair.measure.title)
    clauses = [
        f"{name} is "
        + " and ".join(f"{way} by {', '.join(listed)}" for way, listed in by_direction.items())
        for name, by_direction in titles.items()
    ]
    if clauses:
        sentence = f"Beside {reference.name}, by {seeds} of each: {'; '.join(clauses)}."
    elif contenders:
        name = contenders[0].name if len(contenders) == 1 else "any other recipe"
        sentence = f"{reference.name} and {name} do not differ significantly by {seeds} of each."
    else:
        sentence = f"Nothing is compared: {reference.name} is the only recipe."
    is_better = any([*by_direction] == ["better"] for by_direction in titles.values())
    return Verdict("good" if is_better else "no better", sentence, reference.name)


def verdicts(comparison: Comparison) -> list[str]:
    """Return a sentence for every comparable metric and every recipe after the first."""
    return [f"{pair.measure.title}: {pair.sentence}" for pair in compared_pairs(comparison)]


def differing(comparison: Comparison) -> Table:
    """Return a table of the settings that are not the same in all recipes."""
    return {
        "title": "What the recipes do differently",
        "head": ["setting", *(c.name for c in comparison.contenders)],
        "rows": [list(row) for row in comparison.differences],
        "note": "Seeds and the common budget are left out.",
    }


def for_terminal(comparison: Comparison) -> str:
    """Return the verdict, tables, sentences by metric and findings as text."""
    sections = [result(comparison), cost(comparison)]
    sections += [differing(comparison)] if comparison.differences else []
    text = [f"- {line}" for line in verdicts(comparison)]
    text += [finding.line() for finding in comparison.findings]
    shown = [judge_recipes(comparison).sentence, *map(document.for_terminal, sections)]
    return "\n\n".join([*shown, "\n".join(text)])


# ------------------------------------------------------------------------------ curves and page
def charts(comparison: Comparison) -> Iterator[Chart]:
    """Yield charts of held-out loss against tokens, operations and time, for each group of recipes
    with comparable losses."""
    groups: dict[str, list[RecipeReport]] = {}
    for contender in comparison.contenders:
        groups.setdefault(contender.questions, []).append(contender)
    names = [c.name for c in comparison.contenders]
    for group in groups.values():
        for key, across in AXES.items():
            lines = [_line(c, key, style(names.index(c.name))) for c in group]
            title = "Held-out loss, nats per target"
            yield Chart(title, lines, across=across, say=figure)


def _line(contender: RecipeReport, across: str, css: str) -> Line:
    """Return the mean over seeds, with minimum and maximum, at each evaluation that all reached."""
    points, spread = [], []
    for group in zip(*(run.curve for run in contender.runs), strict=False):
        x, losses = fmean(point[across] for point in group), [point["loss"] for point in group]
        points.append((x, fmean(losses)))
        spread.append((x, min(losses), max(losses)))
    repeated = len(contender.runs) > 1
    return Line(contender.name, points, css, dots=True, spread=spread if repeated else ())


def render(comparison: Comparison) -> str:
    """Return the HTML of the report."""
    return document.render(
        "comparison.html",
        name=" against ".join(c.name for c in comparison.contenders),
        kind="Maskwright comparison",
        verdict=judge_recipes(comparison).sentence,
        recipes=comparison.contenders,
        verdicts=verdicts(comparison),
        tiles=document.tiles_of(result(comparison)),
        tables=[result(comparison), cost(comparison), differing(comparison)],
        findings=comparison.findings,
        areas=any(len(contender.runs) > 1 for contender in comparison.contenders),
        charts=[draw(chart) for chart in charts(comparison)],
    )


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return costs and metrics by recipe and seed, verdicts and findings as JSON values."""
    return {
        "verdict": judge_recipes(comparison).to_json(),
        "budget": comparison.budget,
        "recipes": {
            c.name: {
                "parameters": c.parameters,
                "seeds": {
                    str(r.seed): {**{cost: getattr(r, cost) for cost in COSTS}, **r.final}
                    for r in c.runs
                },
            }
            for c in comparison.contenders
        },
        "verdicts": verdicts(comparison),
        "findings": [finding.to_json() for finding in comparison.findings],
    }
