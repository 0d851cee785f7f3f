"""Evaluation of a fine-tuned model on labelled rows: figures with confidence intervals.

    evaluate_file("runs/reviews", "test.csv")   ->   {"accuracy": Estimate(0.91, 0.89, 0.93), …}

All rows of a file are evaluated, or one part of a folder, the test part if there is one. The
classes are the model's own: another label is refused with its line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from maskwright.ask.predict.predictor import Predictor, load
from maskwright.base.config import fingerprint
from maskwright.base.counted import counted
from maskwright.base.errors import DataError, MaskwrightError, UsageError, near
from maskwright.base.findings import Finding
from maskwright.base.metrics.intervals import Estimate
from maskwright.base.report import document, tables
from maskwright.base.report.say import Say, printer
from maskwright.base.storage import commit
from maskwright.learn.finetune import page, recipe
from maskwright.learn.finetune.finished_seeds import REJECTS
from maskwright.learn.finetune.hashes import hashes
from maskwright.learn.tasks.base.task_type import SECOND, UNTOLD, TaskType, task_for
from maskwright.model.opening import folders
from maskwright.text.tables import files as table
from maskwright.text.tables.column_contents import has_column
from maskwright.text.tables.infer import infer
from maskwright.text.tables.layout import Task
from maskwright.text.tables.layouts.pair import PAIR
from maskwright.text.tables.prepare import build, hidden_by, no_answers
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, TableReadingOptions
from maskwright.text.tables.shapes import as_names, may_be_joined, shape_for
from maskwright.text.tables.split_files import ALL, TEST, TRAIN, VALIDATION
from maskwright.text.tables.survey import left_out_findings, reading_findings

NAME, PAGE = "evaluation.json", "report.html"
# What `pipeline` calls two texts, and what tables of labelled rows call them.
TWO = {"text": "first", SECOND: "second"}


def evaluate_file(
    folder: Path | str,
    data: Path | str,
    *,
    part: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    read: TableReadingOptions = DEFAULT_OPTIONS,
    out: Path | str | None = None,
    base: Path | str | None = None,
    stream: TextIO | None = None,
) -> dict[str, Estimate]:
    """The figures of the fine-tuned model in `folder` on the labelled rows of `data`.

    Args:
        part: which part of a folder; None: test, else validation, else what there is.
        columns: role -> column, where they are not those of the training data.
        read: encoding, separator, and what becomes of bad rows.
        out: a folder for the figures (`evaluation.json`) and a page with the worst mistakes; it is
            made if need be. Rows that are passed over are listed there (`rejects.jsonl`).
        base: the folder of the base, where `folder` is an adapter and does not name it.
        stream: where the figures are said; None: standard output.

    Returns:
        Each figure of the task with its 95 % interval, by resampling the rows.

    Raises:
        UsageError: no such file, part or column, or figures in `out` already.
        DataError: a bad row, or a label that is none of the model's.
        IncompatibleError: the model was not fine-tuned for a task.
    """
    if out is not None:
        document.require_new(Path(out) / NAME, Path(out) / PAGE)
        commit.probe_writable(Path(out))
    say, model = printer(stream), load(folder, base=base)
    rejects = None if out is None else Path(out) / REJECTS
    chosen, rows, task_type = rows_for(
        folder, model, data, part=part, columns=columns, read=read, rejects=rejects, say=say
    )
    encoded = task_type.encode(rows, model.frame)
    for finding in (*encoded.findings, *model.findings):
        say(finding.line())
    outputs = model.reader(task_type)(encoded)
    answers = task_type.answers(encoded, outputs)
    figures = task_type.estimated(rows, answers)
    eval_part = "" if chosen == ALL else chosen
    shown = _table(
        f"{task_type.task}, {counted(len(rows), 'row')}"
        + (f" of {eval_part}" if eval_part else ""),
        figures,
    )
    for figure_table in (shown, task_type.by_class(rows, answers)):
        if figure_table is not None:
            say("\n" + tables.for_terminal(figure_table))
    if one_sided := task_type.one_sided(rows, answers):
        say(one_sided.line())
        shown["note"] += f" Warning: {one_sided}."
    if out is not None:
        wrong = task_type.mistakes(encoded, outputs)
        facts = {"model": folders.called(Path(folder)), "data": dict(hashes(Path(data)))}
        shown_page = page.render(
            name=Path(folder).resolve().name,
            task_type=task_type,
            eval_part=eval_part,
            table=shown,
            figures={},
            losses={},
            rows=rows,
            answers=answers,
            mistakes=wrong,
            facts=facts,
            kind="evaluation",
        )
        about = {"task": task_type.task, "part": chosen, "rows": len(rows), **facts}
        plain = about | {"figures": {name: _plain(estimate) for name, estimate in figures.items()}}
        document.write_new(Path(out), {NAME: json.dumps(plain, indent=2) + "\n", PAGE: shown_page})
        say(f"report: {Path(out) / PAGE}")
    return figures


def rows_for(
    folder: Path | str,
    model: Predictor,
    data: Path | str,
    *,
    parts: Sequence[str] = (TEST, VALIDATION),
    part: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    read: TableReadingOptions = DEFAULT_OPTIONS,
    rejects: Path | None = None,
    say: Say,
) -> tuple[str, Sequence[Any], TaskType]:
    """The name of a part of `data`, its rows as examples of the task of `model`, and the task type.

    Args:
        folder: that of the model.
        parts: the first of these that `data` has is taken, unless `part` names one.
        rejects: the file that lists rows that are passed over.
        say: gets what was inferred about the data.

    Raises:
        As `evaluate_file`.
    """
    loaded = table.load(
        data, header=read.header, reading=read.reading, rejects=rejects, learned=False
    )
    names = list(loaded.parts)
    chosen = part or next((n for n in parts if n in names), names[0])
    if chosen not in names:
        raise UsageError(
            "no such part of the data", where=data, found=chosen, wanted=near(chosen, names)
        )
    rows, task_type = _rows(folder, model, loaded, chosen, data, as_names(columns), read, say)
    return chosen, rows, task_type


def _rows(
    folder: Path | str,
    model: Predictor,
    loaded: table.Table,
    name: str,
    data: Path | str,
    columns: Mapping[str, Sequence[str]],
    read: TableReadingOptions,
    say: Say,
) -> tuple[Sequence[Any], TaskType]:
    """The rows of the part called `name` as examples of the model's task, and that task type; `say`
    gets what was inferred about the data."""
    asked_of = replace(
        loaded,
        parts={ALL: loaded.parts[name]},
        counts={ALL: loaded.counts[name]},
        rejects={ALL: loaded.rejects[name]} if loaded.rejects else {},
    )
    model, columns = _of_pairs(model, asked_of, columns, read.no_label)
    task = _task(model, asked_of, data, columns, read.no_label)
    for line in task.columns.lines():
        say(line)
    if name in (ALL, TRAIN) and _learned_from(folder, data):
        message = "these are the files that the model learned from, so the figures flatter it"
        say(Finding("evaluated-on-training-data", message).line())
    learned_from = loaded.parts.get(TRAIN, []) if name != TRAIN else []
    hidden = hidden_by(asked_of.first, learned_from, task.columns)
    if hidden is not None and (learned_from or hidden not in model.task_type.labels):
        raise no_answers(name, asked_of.first, task.columns, hidden)
    examples = build(
        asked_of,
        task,
        fold_labels=read.fold_labels,
        repair_tags=read.repair_tags,
        no_label=read.no_label,
        reading=read.reading,
        classes=model.task_type.labels,
        values=model.values,
        assume=bool(model.task_type.options.get(UNTOLD)),
    )
    of_labels = task.columns.layout.label_findings(model.task_type.labels)
    of_part = task.columns.layout.findings(ALL, examples)
    of_reading = reading_findings(name, loaded.counts[name])
    for finding in (*of_reading, *left_out_findings(examples), *of_part, *of_labels):
        say(finding.line())
    return examples.parts[ALL], model.task_type


def _of_pairs(
    model: Predictor,
    asked_of: table.Table,
    columns: Mapping[str, Sequence[str]],
    no_label: str | None,
) -> tuple[Predictor, Mapping[str, Sequence[str]]]:
    """The model as one of two texts, and which columns these are, where its folder does not say how
    many texts it reads and the data have two."""
    task_type = model.task_type
    if (
        not task_type.options.get(UNTOLD)
        or task_type.head != "sequence"
        or task_type.problem == "multi"
    ):
        return model, columns
    named_columns = {TWO.get(role, role): names for role, names in columns.items()}
    if "second" not in named_columns:
        has_first = "first" in named_columns
        if not has_first and all(has_column(name, asked_of.columns) for name in TWO):
            named_columns |= {role: [name] for name, role in TWO.items()}
        elif has_first or not _has_two(asked_of, columns, no_label):
            return model, columns
    two = shape_for(PAIR, task_type.shape.label)
    assert two is not None
    return replace(
        model, task_type=task_for(two.name, task_type.labels, task_type.options), columns={}
    ), named_columns


def _has_two(
    asked_of: table.Table, columns: Mapping[str, Sequence[str]], no_label: str | None
) -> bool:
    """Whether the columns are those of two texts, by their names and what is in them."""
    try:
        return infer(asked_of, columns, None, no_label).columns.layout is PAIR
    except MaskwrightError:
        return False


def _task(
    model: Predictor,
    asked_of: table.Table,
    data: Path | str,
    columns: Mapping[str, Sequence[str]],
    no_label: str | None,
) -> Task:
    """The model's task in these data: columns that are called as in the training data are the same.

    Raises:
        DataError: some columns of a label, or of a text, are there, and others are not.
    """
    read = {role: names for role, names in model.columns.items() if may_be_joined(role)}
    for role, names in (read | model.targets).items():
        if role in columns:
            continue
        missing = [name for name in names if not has_column(name, asked_of.columns)]
        if missing and len(missing) < len(names):
            raise DataError(
                f"a column of the {role} is missing",
                where=data,
                found=", ".join(asked_of.columns),
                wanted=", ".join(missing),
                do=f"add it, or say which are read: --column {role}=NAME",
            )
    trained_columns = {
        role: list(names)
        for role, names in (model.columns | model.targets).items()
        if all(has_column(name, asked_of.columns) for name in names)
    }
    task = infer(asked_of, {**trained_columns, **columns}, model.task_type.task, no_label)
    task.columns.why.update(
        dict.fromkeys(trained_columns.keys() - set(columns), "as in the training data")
    )
    if task.separator is not None and model.separator is not None:
        task = replace(task, separator=model.separator)  # few rows may have none, or another
    return task


def _table(title: str, figures: Mapping[str, Estimate]) -> tables.Table:
    cells = [[name, estimate.render()] for name, estimate in figures.items()]
    note = "95 % intervals by resampling the rows."
    return {"title": title, "head": ["", "figure"], "rows": cells, "note": note}


def _plain(estimate: Estimate) -> dict[str, float | None]:
    values = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _learned_from(folder: Path | str, data: Path | str) -> bool:
    """Whether the model in `folder` was made from these very files."""
    files = [Path(folder) / recipe.NAME, Path(folder).parent / recipe.NAME]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return False
    return recipe.read(file).made_from.get("files") == fingerprint(hashes(Path(data)))
