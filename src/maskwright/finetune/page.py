"""The page of a fine-tuning: how well it went, how it learned, and where it is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maskwright.errors import shorten
from maskwright.labelled.examples.examples import BETWEEN
from maskwright.report import markup, tables
from maskwright.report.curves import Chart, Line, draw
from maskwright.report.document import document
from maskwright.report.grid import grid
from maskwright.report.svg import escape, style
from maskwright.report.tables import Table
from maskwright.report.wording import figure
from maskwright.tasks.parts.task_type import Mistake, TaskType

SHOWN_MISTAKES, SHOWN_CLASSES = 40, 40


def render(
    *,
    name: str,
    kind: TaskType,
    asked: str,
    table: Table,
    figures: Mapping[str, Sequence[float]],
    losses: Mapping[str, Sequence[float]],
    rows: Sequence[Any],
    answers: Any,
    mistakes: Sequence[Mistake],
    facts: Mapping[str, Any],
    what: str = "fine-tuning",
) -> str:
    """The page as text.

    Args:
        asked: the part that was asked at the end; `rows` are its rows. Empty where there are none.
        table: the figures beside the baselines.
        figures, losses: of every epoch, by the name of each seed; none of a model that is only
            asked.
        answers, mistakes: of the chosen seed.
        facts: whatever else is known of the run.
        what: is shown, in a word or two.
    """
    of = f"examples of the {escape(asked)} part" if asked else "rows"
    head = f"<p>{escape(kind.task)}, {len(rows):,} {of}</p>"
    sections = [
        ("How well it went", tables.for_page(table)),
        ("How it learned", _learning(kind, figures, losses) if figures else ""),
        ("Class by class", _classes(kind, rows, answers)),
        ("Where it is wrong", _mistakes(kind, mistakes, min(len(rows), kind.judged or len(rows)))),
        ("How it was made", markup.facts(dict(facts))),
    ]
    return document(name, what, head, sections)


def _learning(
    kind: TaskType, figures: Mapping[str, Sequence[float]], losses: Mapping[str, Sequence[float]]
) -> str:
    charts = ((f"{kind.measure} on validation data", figures), ("loss of training", losses))
    return "".join(
        draw(
            Chart(
                title=title,
                lines=_by_epoch(by_seed),
                across="epochs",
                say=figure,
                marks=_epochs(by_seed),
                height=220,
            )
        )
        for title, by_seed in charts
    )


def _by_epoch(by_seed: Mapping[str, Sequence[float]]) -> list[Line]:
    return [
        Line(
            seed, [(float(n), value) for n, value in enumerate(values, 1)], style(place), dots=True
        )
        for place, (seed, values) in enumerate(by_seed.items())
    ]


def _epochs(by_seed: Mapping[str, Sequence[float]]) -> list[float]:
    most = max(map(len, by_seed.values()), default=1)
    return [float(n) for n in range(1, most + 1, -(-most // 10))]


def _classes(kind: TaskType, rows: Sequence[Any], answers: Any) -> str:
    made = kind.by_class(rows, answers)
    counts = kind.confusion(rows, answers)
    shown = "" if made is None else tables.for_page(made)
    if counts is not None and len(counts) <= SHOWN_CLASSES:
        shares = counts / np.maximum(1, counts.sum(1, keepdims=True))
        short = [shorten(label, 24) for label in kind.labels]
        numbers = [str(n) for n in range(1, len(short) + 1)]
        named = [f"{label} {n}" for label, n in zip(short, numbers, strict=True)]
        title = "What each class (a row) was taken for (a column), as a share of the row"
        shown += f'<div class="grid">{grid(title, shares.tolist(), named, numbers)}</div>'
    return shown


def _mistakes(kind: TaskType, mistakes: Sequence[Mistake], rows: int) -> str:
    if not mistakes:
        return ""
    head = ["where", "text", "is", "was told", kind.wrongness]
    cells = [
        [
            m.where.rsplit("/", 1)[-1],
            shorten(m.text.replace(BETWEEN, " | "), 300),
            shorten(m.wanted),
            shorten(m.told),
            figure(m.weight) if m.weight % 1 else f"{m.weight:.0f}",
        ]
        for m in mistakes[:SHOWN_MISTAKES]
    ]
    note = f"{len(mistakes):,} of {rows:,}; shown: {len(cells):,}, the worst first. Some may be "
    note += "wrong in the file, not in the model."
    return f'<div class="texts">{markup.table(head, cells)}</div><p class="note">{note}</p>'
