"""The report of a fine-tuning: metrics, learning curves, and the worst mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from maskwright.base.errors import shorten
from maskwright.base.metrics.calibration import Reliability
from maskwright.base.report import document
from maskwright.base.report.document import EXPLORER_PORT, Table, figure, tiles_of
from maskwright.base.report.drawing.curves import Chart, Line, draw
from maskwright.base.report.drawing.svg import style
from maskwright.learn.tasks.base.task_type import Mistake, TaskReport, TaskType
from maskwright.text.tables.rows import BETWEEN

SHOWN_MISTAKES, SHOWN_CLASSES = 40, 40


def render(
    *,
    name: str,
    task_type: TaskType,
    eval_part: str,
    verdict: str = "",
    table: Table,
    more_tables: Sequence[Table] = (),
    num_rows: int,
    report: TaskReport,
    facts: Mapping[str, Any],
    figures: Mapping[str, Sequence[float]] | None = None,
    losses: Mapping[str, Sequence[float]] | None = None,
    mistakes: Table | None = None,
    kind: str = "fine-tuning",
) -> str:
    """Return the report as HTML.

    Args:
        eval_part: name of the part that was evaluated at the end, "" if there are no parts;
            `num_rows` is the number of its rows.
        verdict: a sentence that compares the model with the baselines.
        table: the metrics beside those of the baselines; `more_tables` follow it.
        report: of the predictions of the chosen seed.
        facts: further facts about the run, by displayed name.
        figures, losses: validation metric and loss of every epoch, by name of the seed.
        mistakes: a table of rows in place of the mistakes in `report`, with a "heading".
        kind: displayed kind of the report.
    """
    unit = f"examples of the {eval_part} part" if eval_part else "rows"
    return document.render(
        "finetuning.html",
        name=name,
        kind=kind,
        summary=f"{task_type.task}, {num_rows:,} {unit}",
        verdict=verdict,
        tiles=[*tiles_of(table), (f"{num_rows:,}", unit)],
        tables=[table, *more_tables],
        charts=_charts(task_type, figures or {}, losses or {}),
        classes=report.classes or {},
        confusion=_confusion(task_type.labels, report.confusion),
        reliability=_reliability(report.reliability),
        coverage=_coverage(report.reliability),
        mistakes=mistakes or _mistakes(task_type, report, num_rows),
        facts=dict(facts),
    )


def _charts(
    task_type: TaskType,
    figures: Mapping[str, Sequence[float]],
    losses: Mapping[str, Sequence[float]],
) -> list[Markup]:
    charts = []
    for title, by_seed in (
        (f"{task_type.measure} on validation data", figures),
        ("loss of training", losses),
    ):
        if most := max(map(len, by_seed.values()), default=0):
            lines = [
                Line(seed, list(enumerate(map(float, values), 1)), style(number), dots=True)
                for number, (seed, values) in enumerate(by_seed.items())
            ]
            marks = [float(n) for n in range(1, most + 1, -(-most // 10))]
            charts.append(draw(Chart(title, lines, across="epochs", say=figure, marks=marks)))
    return charts


def _confusion(labels: Sequence[str], counts: NDArray[np.int64] | None) -> Table:
    if counts is None or len(counts) > SHOWN_CLASSES:
        return {}
    shares = counts / np.maximum(1, counts.sum(1, keepdims=True))
    names = [shorten(label, 24) for label in labels]
    return {
        "title": "Confusion matrix: classes in rows, predictions in columns",
        "head": ["", *names],
        "rows": [[name, *row] for name, row in zip(names, counts.tolist(), strict=True)],
        "shades": np.ceil(10 * shares).astype(int).tolist(),
        "note": "Numbers of rows; a shade is the share of the class.",
    }


def _reliability(reliability: Reliability | None) -> list[Markup]:
    """Draw the share of right predictions by probability."""
    if reliability is None:
        return []
    points = [(point.probability, point.share) for point in reliability.bins]
    lines = [
        Line("share of right ones", points, style(0), dots=True),
        Line("as it should be", [(0.0, 0.0), (1.0, 1.0)], style(1)),
    ]
    title = f"Accuracy by confidence; calibration error {figure(reliability.error)}"
    marks = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    chart = Chart(title, lines, across="probability", say=figure, marks=marks, has_last=False)
    return [draw(chart)]


def _coverage(reliability: Reliability | None) -> Table:
    """Return a table of what remains if the model abstains below a probability."""
    if reliability is None or not reliability.answers:
        return {}
    return {
        "title": "Coverage and accuracy by threshold",
        "head": ["--threshold", "share of rows answered", "accuracy of these", "rows"],
        "rows": [
            [
                f"{point.threshold:.4f}",
                figure(point.coverage),
                figure(point.accuracy),
                f"{point.rows:,}",
            ]
            for point in reliability.coverages()
        ],
        "note": "--threshold of predict leaves rows below it without a label.",
    }


def _link(mistake: Mistake) -> str:
    """Return the address of a row in the Task explorer, while that runs on this machine."""
    texts = dict(zip(("text", "second"), mistake.text.split(BETWEEN), strict=False))
    state = urlencode({"page": "task", **texts}, errors="replace")
    return f"http://127.0.0.1:{EXPLORER_PORT}/#{state}"


def _mistakes(task_type: TaskType, report: TaskReport, num_rows: int) -> Table:
    num_judged = min(num_rows, report.num_judged or num_rows)
    shown = report.mistakes[:SHOWN_MISTAKES]
    cells = [
        [
            m.where.rsplit("/", 1)[-1],
            shorten(m.text.replace(BETWEEN, " | "), 300),
            shorten(m.label),
            shorten(m.predicted),
            figure(m.weight) if m.weight % 1 else f"{m.weight:.0f}",
        ]
        for m in shown
    ]
    return {
        "title": "The worst mistakes",
        "head": ["where", "text", "label", "predicted", report.quantity],
        "rows": cells,
        "links": [] if task_type.reads_images else list(map(_link, shown)),
        "note": f"{len(report.mistakes):,} of {num_judged:,}; shown: {len(cells):,}, the worst "
        "first. Some may be wrong in the file, not in the model. The links show what decided, "
        "while maskwright explore with this result is running.",
    }
