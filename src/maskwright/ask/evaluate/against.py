"""Two fine-tuned models on the same labelled rows: which is better, and where do they differ?

    evaluate_against("runs/small", "runs/large", "test.csv")   ->   ModelComparison

The metric that selected the first model decides, by one paired test. The other metrics of the task
are a family of further tests (Holm 1979).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from maskwright.ask.evaluate.labelled_rows import (
    plain_estimates,
    predict_rows,
    read_training_data,
    rows_for,
)
from maskwright.ask.predict.predictor import load
from maskwright.base.errors import IncompatibleError, UsageError, shorten
from maskwright.base.metrics.intervals import Estimate
from maskwright.base.metrics.paired import PairedDifference, Verdict, compare, holm
from maskwright.base.report import document
from maskwright.base.terminal import printer
from maskwright.learn.finetune import page
from maskwright.learn.finetune.finished_seeds import REJECTS
from maskwright.learn.finetune.recipe import hashes
from maskwright.learn.tasks.base.task_type import TaskReport, TaskType
from maskwright.model.opening import folders
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, TableReadingOptions
from maskwright.text.tables.rows import ALL

NAME = "comparison.json"
SHOWN_ROWS, WRITTEN_ROWS = 40, 1000  # rows with different answers, on the page and in the file


@dataclass(frozen=True)
class DifferingRow:
    """A row that two models answer differently; `right` is the one that is right, or "neither"."""

    where: str
    text: str
    label: str
    ours: str
    theirs: str
    right: str


@dataclass(frozen=True)
class ModelComparison:
    """Two models on the same rows.

    Attributes:
        measure: the metric of the verdict.
        estimates: the metrics by the name of the model.
        gaps: how much better the first model is, by metric; positive for errors, too.
        p: of no difference; of metrics other than `measure` adjusted for all of them.
        differing: rows with different answers, those first that one model has right.
        num_judged: number of leading rows in which these were looked for; None: all.
    """

    verdict: Verdict
    measure: str
    estimates: Mapping[str, Mapping[str, Estimate]]
    gaps: Mapping[str, PairedDifference]
    p: Mapping[str, float]
    differing: Sequence[DifferingRow]
    num_judged: int | None = None

    @property
    def table(self) -> document.Table:
        names = list(self.estimates)
        rows = []
        for metric, gap in self.gaps.items():
            estimates = [*(self.estimates[name][metric] for name in names), gap.estimate()]
            p = "–" if math.isnan(self.p[metric]) else f"{self.p[metric]:.2g}"
            rows.append([metric, *(estimate.render() for estimate in estimates), p])
        return {
            "title": f"{names[0]} and {names[1]} on the same rows",
            "head": ["", *names, "difference", "p"],
            "rows": rows,
            "note": "95 % intervals; differences are paired by row. The interval of "
            f"{self.measure} decides, also where its p disagrees; p of the other metrics is "
            "adjusted for all of them (Holm).",
        }

    @property
    def differing_table(self) -> document.Table:
        names = list(self.estimates)
        counts = [sum(row.right == name for row in self.differing) for name in (*names, "neither")]
        rows = f"Rows{f' (of the first {self.num_judged:,})' if self.num_judged else ''}"
        return {
            "heading": "Where they differ",
            "title": f"{rows} with different answers: {names[0]} alone is right in {counts[0]:,}, "
            f"{names[1]} alone in {counts[1]:,}, neither in {counts[2]:,}",
            "head": ["where", "text", "label", *names],
            "rows": [
                [
                    row.where.rsplit("/", 1)[-1],
                    *(shorten(cell) for cell in (row.text, row.label, row.ours, row.theirs)),
                ]
                for row in self.differing[:SHOWN_ROWS]
            ],
            "note": f"Shown: {min(SHOWN_ROWS, len(self.differing))} of {len(self.differing):,}.",
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict.to_json(),
            "measure": self.measure,
            "figures": {name: plain_estimates(e) for name, e in self.estimates.items()},
            "differences": {
                metric: gap.estimate().to_json()
                | {"p": None if math.isnan(self.p[metric]) else self.p[metric]}
                for metric, gap in self.gaps.items()
            },
            "differing_rows": len(self.differing),
            "judged_rows": self.num_judged,
            "rows": [vars(row) for row in self.differing[:WRITTEN_ROWS]],
        }


def evaluate_against(
    folder: Path | str,
    other: Path | str,
    data: Path | str,
    *,
    part: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    read: TableReadingOptions = DEFAULT_OPTIONS,
    out: Path | str | None = None,
    stream: TextIO | None = None,
) -> ModelComparison:
    """Compare the fine-tuned models in `folder` and `other` on the labelled rows of `data`; the
    arguments are those of `evaluate_file`, and columns are read as for the first model.

    Raises:
        IncompatibleError: the models were fine-tuned for other tasks or labels.
        UsageError, DataError: as of `evaluate_file`.
    """
    document.reserve(out, NAME)
    say, paths = printer(stream), (Path(folder), Path(other))
    if paths[0].resolve() == paths[1].resolve():
        raise UsageError("a model is not compared with itself", where=other, wanted="another one")
    models = load(paths[0]), load(paths[1])
    _require_same_task(paths, [model.task_type for model in models])
    names = folders.called(paths[0]), folders.called(paths[1])
    if names[0] == names[1]:
        names = str(paths[0]), str(paths[1])
    rejects = None if out is None else Path(out) / REJECTS
    labelled = rows_for(
        models[0], data, part=part, columns=columns, read=read, rejects=rejects, say=say
    )
    rows, task_type = labelled.examples, labelled.task_type
    types = task_type, replace(models[1].task_type, task=task_type.task)
    figures, reports = [], []
    for model, own_type in zip(models, types, strict=True):
        encoded, outputs, answers, metrics = predict_rows(model, own_type, rows, say)
        figures.append(metrics.figures)
        reports.append(own_type.report(encoded, outputs, answers))
    gaps = {
        name: figure.gain_over(figures[1][name])
        for name, figure in figures[0].items()
        if name in figures[1]
    }
    measure = task_type.measure
    further = [name for name in gaps if name != measure]
    p = dict(zip(further, holm([gaps[name].p for name in further]), strict=True))
    values = figures[0][measure].value, figures[1][measure].value
    comparison = ModelComparison(
        compare(measure, names, values, gaps[measure]),
        measure,
        {
            name: {metric: by_metric[metric].estimate() for metric in gaps}
            for name, by_metric in zip(names, figures, strict=True)
        },
        gaps,
        {measure: gaps[measure].p, **p},
        differing_rows(names, *reports),
        judged if (judged := reports[0].num_judged or len(rows)) < len(rows) else None,
    )
    say(f"\n{comparison.verdict.sentence}\n\n{document.for_terminal(comparison.table)}")
    for name, path in zip(names, paths, strict=True):
        for finding in read_training_data(path, data).rows_among(rows):
            say(finding.of(name).line())
    say(comparison.differing_table["title"])
    if out is not None:
        facts = {"models": list(map(str, paths)), "data": dict(hashes(Path(data)))}
        shown_page = page.render(
            name=" against ".join(names),
            task_type=task_type,
            eval_part="" if labelled.part == ALL else labelled.part,
            verdict=comparison.verdict.sentence,
            table=comparison.table,
            num_rows=len(rows),
            report=TaskReport(),
            facts=facts,
            mistakes=comparison.differing_table,
            kind="comparison of two models",
        )
        content = {**comparison.to_json(), "part": labelled.part, "num_rows": len(rows), **facts}
        document.publish(out, NAME, content, shown_page, say)
    return comparison


def differing_rows(
    names: tuple[str, str], ours: TaskReport, theirs: TaskReport
) -> list[DifferingRow]:
    """Return the rows that two models answer differently, those first that only one has right."""
    mistakes = [{(m.where, m.text): m for m in report.mistakes} for report in (ours, theirs)]
    rows = []
    for row_id in {**mistakes[0], **mistakes[1]}:
        wrong = [by_row.get(row_id) for by_row in mistakes]
        label = next(mistake.label for mistake in wrong if mistake)
        answers = [mistake.predicted if mistake else label for mistake in wrong]
        if answers[0] != answers[1]:
            right = next((n for n, m in zip(names, wrong, strict=True) if m is None), "neither")
            rows.append(DifferingRow(*row_id, label, answers[0], answers[1], right))
    return sorted(rows, key=lambda row: row.right == "neither")


def _require_same_task(paths: Sequence[Path], task_types: Sequence[TaskType]) -> None:
    """Raise an `IncompatibleError` unless both models answer the same task with the same labels."""
    for kind, values in (
        ("task", [task_type.task for task_type in task_types]),
        ("labels", [", ".join(task_type.labels) for task_type in task_types]),
    ):
        if values[0] != values[1]:
            raise IncompatibleError(
                f"the models have different {kind}, so no rows can compare them",
                where=paths[1],
                found=shorten(values[1]),
                wanted=f"{shorten(values[0])}, as of {paths[0]}",
                do="compare models that were fine-tuned for the same labels",
            )
