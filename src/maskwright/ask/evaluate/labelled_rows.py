"""Evaluation of a fine-tuned model on labelled rows: metrics with confidence intervals.

    evaluate_file("runs/reviews", "test.csv")   ->   {"accuracy": Estimate(0.91, 0.89, 0.93), …}

All rows of a file are evaluated, or one part of a folder, by default the test part. A label that is
not a class of the model raises an error with its line.
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
from maskwright.learn.finetune.recipe import hashes
from maskwright.learn.tasks.base.task_type import SECOND, UNTOLD, TaskType, task_for
from maskwright.model.opening import folders
from maskwright.text.tables import files as table
from maskwright.text.tables.infer import infer
from maskwright.text.tables.labelled_texts import PAIR
from maskwright.text.tables.layout import Task
from maskwright.text.tables.prepare import build, hidden_by, no_answers
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, TableReadingOptions
from maskwright.text.tables.rows import ALL, TEST, TRAIN, VALIDATION, Table, has_column
from maskwright.text.tables.shapes import as_names, may_be_joined, shape_for
from maskwright.text.tables.survey import left_out_findings, reading_findings

NAME, PAGE = "evaluation.json", "report.html"
# Names of the two texts of a pair in `pipeline`, and in tables of labelled rows.
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
    """Evaluate the fine-tuned model in `folder` on the labelled rows of `data`.

    Args:
        part: the part of a folder; None: test, else validation, else the first one.
        columns: from role to column, if not those of the training data.
        read: encoding, separator, and the handling of bad rows.
        out: a folder for the metrics (`evaluation.json`), a page with the worst mistakes, and
            skipped rows (`rejects.jsonl`); created if necessary.
        base: the folder of the base, if `folder` is an adapter and does not name it.
        stream: for the printed report; None: standard output.

    Returns:
        Each metric of the task with its 95 % interval, by resampling the rows.

    Raises:
        UsageError: a file, part or column does not exist, or `out` has an evaluation already.
        DataError: a row is bad, or its label is not a class of the model.
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
    metrics = task_type.metrics(rows, answers).estimates()
    report = task_type.report(encoded, outputs, answers)
    eval_part = "" if chosen == ALL else chosen
    metric_table = _metric_table(
        f"{task_type.task}, {counted(len(rows), 'row')}"
        + (f" of {eval_part}" if eval_part else ""),
        metrics,
    )
    for figure_table in (metric_table, report.classes):
        if figure_table is not None:
            say("\n" + tables.for_terminal(figure_table))
    if report.one_sided:
        say(report.one_sided.line())
        metric_table["note"] += f" Warning: {report.one_sided}."
    if out is not None:
        facts = {"model": folders.called(Path(folder)), "data": dict(hashes(Path(data)))}
        shown_page = page.render(
            name=Path(folder).resolve().name,
            task_type=task_type,
            eval_part=eval_part,
            table=metric_table,
            figures={},
            losses={},
            num_rows=len(rows),
            report=report,
            facts=facts,
            kind="evaluation",
        )
        about = {"task": task_type.task, "part": chosen, "rows": len(rows), **facts}
        figures = {name: estimate_json(estimate) for name, estimate in metrics.items()}
        text = json.dumps(about | {"figures": figures}, indent=2) + "\n"
        document.write_new(Path(out), {NAME: text, PAGE: shown_page})
        say(f"report: {Path(out) / PAGE}")
    return metrics


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
    """Read a part of `data`; returns its name, its rows as examples of the model's task, and the
    task type. Errors as in `evaluate_file`.

    Args:
        folder: of the model.
        parts: the first of these that `data` has is read, unless `part` names one.
        rejects: the file to write skipped rows to.
        say: called with what was inferred about the data.
    """
    loaded = table.load(
        data, header=read.header, reading=read.reading, rejects=rejects, learned=False
    )
    names = list(loaded.parts)
    part_name = part or next((n for n in parts if n in names), names[0])
    if part_name not in names:
        raise UsageError(
            "no such part of the data", where=data, found=part_name, wanted=near(part_name, names)
        )
    by_role = as_names(columns)
    return part_name, *_part_examples(folder, model, loaded, part_name, data, by_role, read, say)


def _part_examples(
    folder: Path | str,
    model: Predictor,
    loaded: Table,
    name: str,
    data: Path | str,
    columns: Mapping[str, Sequence[str]],
    read: TableReadingOptions,
    say: Say,
) -> tuple[Sequence[Any], TaskType]:
    """Convert the part `name` to examples of the model's task; returns them and the task type.
    `say` is called with what was inferred about the data."""
    part_table = replace(
        loaded,
        parts={ALL: loaded.parts[name]},
        counts={ALL: loaded.counts[name]},
        rejects={ALL: loaded.rejects[name]} if loaded.rejects else {},
    )
    model, columns = _as_pair_task(model, part_table, columns, read.no_label)
    task = _infer_task(model, part_table, data, columns, read.no_label)
    for line in task.columns.lines():
        say(line)
    if name in (ALL, TRAIN) and _learned_from(folder, data):
        message = "these are the files that the model learned from, so the figures flatter it"
        say(Finding("evaluated-on-training-data", message).line())
    learned_from = loaded.parts.get(TRAIN, []) if name != TRAIN else []
    unlabelled = hidden_by(part_table.first, learned_from, task.columns)
    if unlabelled is not None and (learned_from or unlabelled not in model.task_type.labels):
        raise no_answers(name, part_table.first, task.columns, unlabelled)
    examples = build(
        part_table,
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


def _as_pair_task(
    model: Predictor,
    asked_of: Table,
    columns: Mapping[str, Sequence[str]],
    no_label: str | None,
) -> tuple[Predictor, Mapping[str, Sequence[str]]]:
    """If the model's folder does not say whether it reads one text or two, and the data have two,
    return the model with the task type of pairs and the columns of both texts; otherwise return
    `model` and `columns`."""
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
        elif has_first or not _has_pairs(asked_of, columns, no_label):
            return model, columns
    pair_shape = shape_for(PAIR, task_type.shape.label)
    assert pair_shape is not None
    return replace(
        model, task_type=task_for(pair_shape.name, task_type.labels, task_type.options), columns={}
    ), named_columns


def _has_pairs(asked_of: Table, columns: Mapping[str, Sequence[str]], no_label: str | None) -> bool:
    """Whether the table has two texts per row, by column names and contents."""
    try:
        return infer(asked_of, columns, None, no_label).columns.layout is PAIR
    except MaskwrightError:
        return False


def _infer_task(
    model: Predictor,
    asked_of: Table,
    data: Path | str,
    columns: Mapping[str, Sequence[str]],
    no_label: str | None,
) -> Task:
    """Infer the layout of the data for the model's task, with columns matched to those of the
    training data by name. Raises a `DataError` if of several columns of a label or text only some
    are there."""
    text_columns = {role: names for role, names in model.columns.items() if may_be_joined(role)}
    for role, names in (text_columns | model.targets).items():
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
        task = replace(task, separator=model.separator)  # inference from few rows may be wrong
    return task


def _metric_table(title: str, figures: Mapping[str, Estimate]) -> tables.Table:
    cells = [[name, estimate.render()] for name, estimate in figures.items()]
    note = "95 % intervals by resampling the rows."
    return {"title": title, "head": ["", "figure"], "rows": cells, "note": note}


def estimate_json(estimate: Estimate) -> dict[str, float | None]:
    values = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _learned_from(folder: Path | str, data: Path | str) -> bool:
    """Whether the model in `folder` was trained on exactly these files, by their hashes."""
    files = [Path(folder) / recipe.NAME, Path(folder).parent / recipe.NAME]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return False
    return recipe.read(file).made_from.get("files") == fingerprint(hashes(Path(data)))
