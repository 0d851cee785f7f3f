"""Examine labelled data before any training: problems, what they cost, and a command to begin with.

    doctor("reviews.csv").verdict   ->   "2 problems in 1,200 rows, the first: about 5.2 % of …"

The checks are functions that return a `Check`. Severe findings are problems, others notes; a
check whose figures are usual says nothing. All rows are read, and copies are counted among all of
them; what takes longer is computed on rows that are drawn, which is said.
"""

from __future__ import annotations

import dataclasses
import io
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from maskwright.ask.doctor.check import Check, FlaggedRow, Subject
from maskwright.base.errors import Finding, shorten
from maskwright.base.report import document
from maskwright.base.report.panel import WorkPanel
from maskwright.base.terminal import counted, printer, shell_word
from maskwright.text.corpus.in_memory import is_temporary
from maskwright.text.tables.columns import GROUPS
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, TableReadingOptions
from maskwright.text.tables.rows import ALL, plain
from maskwright.text.tables.shapes import option
from maskwright.text.tables.survey import survey

NAME = "diagnosis.json"
SHOWN, TEXT = 10, 60  # rows in the report, and characters of each
# Findings of the survey that are problems, and those that a check has with more detail.
PROBLEMS = {"class-never-seen", "misspelt-label", "label-like-missing-value", "same-answer"}
COVERED = {"rows-in-two-parts", "contradicting-labels", "repeated-rows", "possible-groups"}


@dataclass(frozen=True)
class Diagnosis:
    """What was seen in labelled data: the task and the columns in sentences (`lines`), findings,
    problems first, `tables` of rows, lengths and classes by part, and a command to train with."""

    num_rows: int
    lines: Sequence[str]
    checks: Sequence[Check]
    findings: Sequence[Finding]
    tables: Sequence[document.Table]
    command: str

    @property
    def problems(self) -> list[Finding]:
        """Findings that would change a score or a model noticeably, the gravest first."""
        return [finding for finding in self.findings if finding.severity == "warning"]

    @property
    def notes(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity != "warning"]

    @property
    def rows(self) -> list[FlaggedRow]:
        """The rows to look at, the gravest first."""
        return [row for check in self.checks for row in check.rows]

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        rows = counted(self.num_rows, "row")
        if not self.problems:
            notes = f" ({counted(len(self.notes), 'note')})" if self.notes else ""
            return f"No problem was seen in {rows}{notes}."
        problems = counted(len(self.problems), "problem")
        return f"{problems} in {rows}, the first: {self.problems[0].what}."

    def all_tables(self) -> list[document.Table]:
        """Return all tables: the rows to look at, of the data, and the checks."""
        shown = [
            [
                row.where.rsplit("/", 1)[-1],
                shorten(row.text, TEXT),
                row.label,
                row.suggestion,
                f"{min(row.score, 0.99):.2f}",
            ]
            for row in self.rows[:SHOWN]
        ]
        more = len(self.rows) - len(shown)
        of_rows = {
            "title": "Rows whose label is probably wrong",
            "head": ["row", "text", "label", "more probable", "P(wrong)"],
            "rows": shown,
            "note": f"{more:,} more are listed in {NAME} (--out DIR)." if more else "",
        }
        of_checks = {
            "title": "Checks",
            "head": ["check", "result"],
            "rows": [[check.name, check.summary] for check in self.checks],
            "note": "",
        }
        return [*([of_rows] if shown else []), *self.tables, of_checks]

    def render(self) -> str:
        """Return the report as text: what to do first, then what it rests on."""
        sections = [
            self.verdict,
            *(f"{number}. {problem}" for number, problem in enumerate(self.problems, 1)),
            "\n".join(note.line() for note in self.notes),
            "\n".join(self.lines),
            *map(document.for_terminal, self.all_tables()),
            f"next: {self.command}",
        ]
        return "\n\n".join(section.strip("\n") for section in sections if section)

    def page(self, name: str) -> str:
        """Return the report as an HTML page; `name` is that of the data."""
        return document.render(
            "doctor.html",
            name=name,
            kind="labelled data",
            verdict=self.verdict,
            tiles=[
                (f"{self.num_rows:,}", "rows"),
                (f"{len(self.problems):,}", "problems"),
                (f"{len(self.rows):,}", "labels that are probably wrong"),
            ],
            lines=self.lines,
            problems=self.problems,
            notes=self.notes,
            tables=self.all_tables(),
            command=self.command,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "rows": self.num_rows,
            "data": list(self.lines),
            "problems": [finding.to_json() for finding in self.problems],
            "notes": [finding.to_json() for finding in self.notes],
            "checks": {check.name.replace(" ", "_"): check.to_json() for check in self.checks},
            "tables": list(self.tables),
            "command": self.command,
        }


def doctor(
    data: Path | str,
    model: Path | str | None = None,
    *,
    task: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    read: TableReadingOptions = DEFAULT_OPTIONS,
    out: Path | str | None = None,
    stream: TextIO | None = None,
) -> Diagnosis:
    """Examine labelled rows and print a report that begins with a verdict.

    Args:
        data, task, columns, read: as for fine-tuning.
        model: the folder of a model whose lengths and tokenizer the rows are compared with, and
            whose frozen embeddings predict labels in place of a bag of words.
        out: a new folder for the report (`report.html`) and all figures and rows
            (`diagnosis.json`).
        stream: receives the report; None: standard output.

    Raises:
        UsageError: a path, column or task does not exist, or `out` has a report already.
        DataError: rows that cannot be read, or no task fits them.
        IncompatibleError: the model has no network that reads texts.
    """
    return examine(Subject.load(data, columns, task, read), model, out, stream)


def examine(
    subject: Subject,
    model: Path | str | None,
    out: Path | str | None,
    stream: TextIO | None = None,
) -> Diagnosis:
    """As `doctor`, of rows that have been read."""
    document.reserve(out, NAME)
    # These import torch, which takes longer than a table that cannot be read.
    from maskwright.ask.doctor.label_errors import check_labels, out_of_fold
    from maskwright.ask.doctor.leakage import check_leakage
    from maskwright.ask.doctor.model_fit import check_model_fit, check_score
    from maskwright.ask.doctor.repetitions import check_repetitions
    from maskwright.ask.predict.engine import open_engine

    engine = None if model is None else open_engine(model)
    embed = None if engine is None else engine.embedder(None).vectors
    source = "a bag of words" if model is None else f"embeddings of {model}"
    # The report on standard output has no lines of progress, and another stream is only for it.
    shown_on = sys.stderr if stream is None else io.StringIO()
    with WorkPanel("doctor", math.inf, shown_on) as panel:
        predicted = out_of_fold(subject, embed, source, panel)
        panel.part, panel.ends = "leaks, label errors, repetitions, lengths", math.nan
        checks = [
            check_leakage(subject),
            check_labels(subject, predicted),
            check_repetitions(subject),
            check_model_fit(subject, None if engine is None else engine.model),
            check_score(subject, predicted),
        ]
    overview = survey(subject.dataset)
    findings = [*subject.faults, *(f for check in checks for f in check.findings)]
    findings += [
        dataclasses.replace(finding, severity="warning") if finding.name in PROBLEMS else finding
        for finding in overview.findings
        if finding.name not in COVERED
    ]
    diagnosis = Diagnosis(
        len(subject.rows),
        subject.dataset.task.lines(),
        checks,
        sorted(findings, key=lambda finding: finding.severity != "warning"),
        overview.tables(),
        _command(subject, model, checks),
    )
    say = printer(stream)
    say(diagnosis.render())
    if out is not None:
        page = diagnosis.page(Path(subject.data).name)
        document.publish(out, NAME, diagnosis.to_json(), page, say)
    return diagnosis


def _command(subject: Subject, model: Path | str | None, checks: Sequence[Check]) -> str:
    """Return the command that trains on the rows as they were read here."""
    target = "MODEL" if model is None else shell_word(model)
    file = "FILE" if is_temporary(subject.data) else shell_word(subject.data)
    words = [f"maskwright finetune {target} --data {file}"]
    words += [] if subject.task is None else [f"--task {subject.task}"]
    words += [option(role, name) for role, names in subject.columns.items() for name in names]
    words += [f"--read {shell_word(setting)}" for setting in subject.read.settings()]
    all_columns = subject.dataset.task.columns
    groups = [
        name
        for name in all_columns.left_out
        if plain(name) in GROUPS
        and 2 < all_columns.described[name].distinct < 0.9 * len(subject.rows)
    ]
    if groups and ALL in subject.dataset.parts and "group" not in all_columns.roles:
        words.append(option("group", groups[0]))
    names = {finding.name for check in checks for finding in check.findings}
    if "truncated" in names and subject.dataset.task.shape.label:
        words.append("--long head-and-tail")
    return " ".join(words)
