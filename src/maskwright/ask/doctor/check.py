"""What the checks of labelled data share: the rows that they examine, and the form of a result.

A check is a function of a `Subject` that returns a `Check`. Findings of severity "warning" are
problems: they would change a score or a model noticeably. Limits below which a check stays silent
are constants beside it, with their reason; docs/decisions has the simulations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from maskwright.base.errors import Finding, MaskwrightError
from maskwright.base.terminal import shell_word
from maskwright.text.tables.files import load
from maskwright.text.tables.infer import infer
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.prepare import build
from maskwright.text.tables.reading_options import WHERE, TableReadingOptions, how_read
from maskwright.text.tables.rows import BETWEEN, TRAIN, Example, Table, folded
from maskwright.text.tables.shapes import as_names
from maskwright.text.tables.splits import draw_rows

# Rows that are compared with each other or predicted; of more rows, as many are drawn.
EXAMINED = 5_000
# Reading options in the advice of an error. Where it leaves no choice, they are tried, as nothing
# is trained on the rows: a single one of `TRIED`, or those for bad rows together.
ADVISED = re.compile(r"\b([a-z_]+)='?([^'\s]+?)(?=['\s,;)]|$)")
TRIED = {"separator", "encoding", "line_ends", "fold_labels", "on_bad", "max_bad_fraction"}
OF_BAD_ROWS = {"on_bad", "max_bad_fraction"}
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class FlaggedRow:
    """A row to look at: file and line, text (of a pair both, separated by a bar), label, a more
    probable label, and the probability that the label is wrong, 0 to 1."""

    where: str
    text: str
    label: str
    suggestion: str
    score: float


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        summary: what was seen, in a line; why it does not apply if there are no figures.
        figures: plain values by name.
        findings, rows: what the user should know and look at, the gravest first.
    """

    name: str
    summary: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    rows: Sequence[FlaggedRow] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "summary": self.summary,
            "figures": dict(self.figures),
            "findings": [finding.to_json() for finding in self.findings],
            "rows": [vars(row) for row in self.rows],
        }


@dataclass(frozen=True)
class Subject:
    """The labelled rows that are examined, in the parts of the files, and as they stand there.

    Attributes:
        data, columns, task: as requested.
        read: as requested, with the options that the files need.
        faults: why they need these.
    """

    data: Path | str
    columns: Mapping[str, Sequence[str]]
    task: str | None
    read: TableReadingOptions
    dataset: Dataset
    table: Table
    faults: Sequence[Finding]

    @classmethod
    def load(
        cls, data: Path | str, columns: Any, task: str | None, read: TableReadingOptions
    ) -> Self:
        """Read labelled rows; `columns` are role -> name or names, or None. An error whose advice
        can be tried (`ADVISED`) becomes a fault, and the rows are read as it says."""
        names, faults, tried = as_names(columns), list[Finding](), list[str]()
        while True:
            try:
                table = load(data, header=read.header, reading=read.reading)
                dataset = build(table, infer(table, names, task, read.no_label), read=read)
                return cls(data, names, task, read, dataset, table, faults)
            except MaskwrightError as error:
                advice = set(ADVISED.findall(error.do or ""))
                kinds = {name for name, _ in advice}
                has_choice = kinds != OF_BAD_ROWS and (len(advice) != 1 or not kinds <= TRIED)
                options = [f"{name}={value}" for name, value in sorted(advice, reverse=True)]
                words = [f"{WHERE} {shell_word(setting)}" for setting in (*tried, *options)]
                if has_choice or {*options} <= {*tried}:
                    if tried:
                        needed = " ".join(words[: len(tried)])
                        error.advising(f"{error.do}; the rows need {needed}, too")
                    raise
                evidence = ": ".join(filter(None, (error.where, error.found)))
                remedy = f"here they are read with {' '.join(words[len(tried) :])}"
                faults.append(Finding("unreadable-rows", error.what, evidence, remedy, "warning"))
                tried += options
                read = how_read(options, read)

    @cached_property
    def rows(self) -> list[Example]:
        """The rows of all parts."""
        return [row for rows in self.dataset.parts.values() for row in rows]

    @cached_property
    def parts(self) -> list[str]:
        """The part of each row."""
        return [split for split, rows in self.dataset.parts.items() for _ in rows]

    @property
    def names(self) -> Sequence[str]:
        """The names of the classes; empty if the task has none."""
        return () if self.dataset.labels is None else self.dataset.labels.names

    @cached_property
    def distinct(self) -> list[int]:
        """The indices of `rows`; of copies with one label, no further evidence, only the first."""
        keys = [(words_of(row.whole_text), row.answer) for row in self.rows]
        return sorted(dict(zip(reversed(keys), reversed(range(len(keys))), strict=True)).values())

    def drawn(self, count: int = EXAMINED) -> Dataset:
        """Return at most `count` of the `distinct` rows as the only part of a dataset, called
        `train`; they are drawn proportionally to their classes."""
        chosen = self.distinct
        if len(chosen) > count:
            rows = [self.rows[i] for i in chosen]
            drawn = draw_rows([r.whole_text for r in rows], [r.stratum for r in rows], count)
            chosen = sorted(chosen[i] for i in drawn)
        groups = [group for names in self.dataset.groups.values() for group in names]
        return replace(
            self.dataset,
            parts={TRAIN: [self.rows[i] for i in chosen]},
            groups={TRAIN: [groups[i] for i in chosen]} if groups else {},
        )


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case; a text without words as it is."""
    return tuple(WORD.findall(folded(text))) or (folded(text),)


def shown_text(row: Example) -> str:
    """Return the texts of a row, separated by a bar."""
    return row.whole_text.replace(BETWEEN, " | ")


def texts_of(row: Example) -> tuple[str, ...]:
    """Return the texts of a row one by one; those without names as one."""
    names = getattr(type(row), "text_fields", ())
    return tuple(getattr(row, name) for name in names) or (row.whole_text,)


def severity(share: float, limit: float) -> Any:
    """Return "warning" if a share reaches the limit, else "note"."""
    return "warning" if share >= limit else "note"


def percent(share: float) -> str:
    """Format a share with two significant digits: 5.1 %, 12 %, 0.35 %."""
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %" if share == 1 else "over 99 %"
