"""Evaluation of a fine-tuned model on labelled rows: metrics with confidence intervals.

    evaluate_file("runs/reviews", "test.csv")   ->   {"accuracy": Estimate(0.91, 0.89, 0.93), …}

All rows of a file are evaluated, or one part of a folder, by default the test part. A label that is
not a class of the model raises an error with its line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from maskwright.ask.evaluate import slices
from maskwright.ask.evaluate.generalisation import measure_generalisation
from maskwright.ask.predict.predictor import TaskPredictor, load
from maskwright.base.config import fingerprint
from maskwright.base.errors import DataError, Finding, MaskwrightError, UsageError, near
from maskwright.base.metrics.intervals import Estimate
from maskwright.base.randomness import key, permute
from maskwright.base.report import document
from maskwright.base.terminal import Say, counted, printer, quiet
from maskwright.learn.finetune import conclusion, page, recipe
from maskwright.learn.finetune.cross_validation import divide
from maskwright.learn.finetune.finished_seeds import REJECTS
from maskwright.learn.finetune.recipe import FinetuneRecipe, hashes
from maskwright.learn.finetune.result import RESULTS
from maskwright.learn.tasks.base.task_type import (
    SECOND,
    UNTOLD,
    Answers,
    Encoded,
    Outputs,
    TaskMetrics,
    TaskReport,
    TaskType,
    task_for,
)
from maskwright.model.opening import folders
from maskwright.text.tables import files
from maskwright.text.tables.infer import infer
from maskwright.text.tables.labelled_texts import PAIR
from maskwright.text.tables.layout import Dataset, Task
from maskwright.text.tables.prepare import build, hidden_by, no_answers, prepare
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, TableReadingOptions
from maskwright.text.tables.rows import ALL, TEST, TRAIN, VALIDATION, Row, Table, has_column
from maskwright.text.tables.shapes import as_names, may_be_joined, shape_for
from maskwright.text.tables.survey import left_out_findings, reading_findings, same_answer

NAME = "evaluation.json"
TRAINING_ROWS = 1000  # at most so many are evaluated for the gap
# Names of the two texts of a pair in `pipeline`, and in tables of labelled rows.
TWO = {"text": "first", SECOND: "second"}


class LabelledRows(NamedTuple):
    """Rows that a model is evaluated on.

    Attributes:
        examples: the rows of the `part` of the data as examples of the task.
        task_type: that of the model; the one of pairs for a foreign model that reads both.
        table_rows: the rows as read, of which some may be no examples.
        columns: the names of their columns.
    """

    part: str
    examples: Sequence[Any]
    task_type: TaskType
    table_rows: Sequence[Row]
    columns: Sequence[str]


class Predictions(NamedTuple):
    """The predictions of a model for labelled rows, with their metrics."""

    encoded: Encoded
    outputs: Outputs
    answers: Answers
    metrics: TaskMetrics


class RowEvaluation(dict[str, Estimate]):
    """The metrics of a fine-tuned model on labelled rows, each with its 95 % interval.

    Attributes:
        verdict: the comparison with the baselines, in a sentence.
        mistakes: the rows with wrong predictions, the worst first, as mappings.
        path: the folder with `evaluation.json` and the page; None if nothing was written.
    """

    def __init__(
        self, metrics: Mapping[str, Estimate], verdict: str, report: TaskReport, path: Path | None
    ) -> None:
        super().__init__(metrics)
        self.verdict, self.path = verdict, path
        self.mistakes = [dict(vars(mistake)) for mistake in report.mistakes]

    @property
    def metrics(self) -> Mapping[str, Estimate]:
        return self

    @property
    def page(self) -> Path | None:
        """The page with the worst mistakes; None if nothing was written."""
        return None if self.path is None else self.path / document.PAGE

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name} {estimate.render()}" for name, estimate in self.items())
        return f"<evaluation: {metrics}; {counted(len(self.mistakes), 'mistake')}; {self.verdict}>"

    def _repr_html_(self) -> str:
        """Return verdict and metrics as an HTML table, for notebooks."""
        rows = [("verdict", self.verdict), *((n, e.render()) for n, e in self.items())]
        return document.render("model.html", rows=[*rows, ("mistakes", f"{len(self.mistakes):,}")])


def evaluate_file(
    folder: Path | str,
    data: Path | str,
    *,
    part: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    read: TableReadingOptions = DEFAULT_OPTIONS,
    out: Path | str | None = None,
    base: Path | str | None = None,
    by: str | None = None,
    generalisation: bool = False,
    other_data: Sequence[Path | str] = (),
    stream: TextIO | None = None,
) -> RowEvaluation:
    """Evaluate the fine-tuned model in `folder` on the labelled rows of `data`.

    The verdict compares the model with the baselines of its task on the same rows: fitted on its
    training data if these are where `finetune` read them and have not changed, else only with the
    same answer for every row.

    Args:
        part: the part of a folder; None: test, else validation, else the first one.
        columns: from role to column, if not those of the training data.
        out: a folder for the metrics (`evaluation.json`), a page with the worst mistakes, and
            skipped rows (`rejects.jsonl`); created if necessary.
        base: the folder of the base, if `folder` is an adapter and does not name it.
        by: a column of the file; the metrics are also given for the rows with each of its values.
        generalisation: also measure the distance of the weights from those before training, the gap
            to training rows, and a PAC-Bayes bound; the training data must be where `finetune` read
            them.
        other_data: files or folders of rows with the same columns, such as of another domain; the
            metrics are also given for them, with the difference to `data`.
        stream: for the printed report; None: standard output.

    Returns:
        Each metric of the task with its 95 % interval, and the verdict and the mistakes.

    Raises:
        UsageError: a file, part or column does not exist, `out` has an evaluation already, or no
            value of the column `by` has enough rows.
        DataError: a row is bad, or its label is not a class of the model.
        IncompatibleError: the model was not fine-tuned for a task.
    """
    document.reserve(out, NAME)
    training = read_training_data(folder, data)
    home, training_rows = training.home, _training_rows(training) if generalisation else []
    say, model = printer(stream), load(folder, base=base)
    rejects = None if out is None else Path(out) / REJECTS
    reading: dict[str, Any] = {"columns": columns, "read": read, "say": say}
    labelled = rows_for(model, data, part=part, rejects=rejects, by=by, **reading)
    rows, task_type = labelled.examples, labelled.task_type
    if by is not None and not task_type.by_row:
        message, remedy = "the metrics are those of several rows together", "leave it out"
        raise UsageError(message, where="--by", found=task_type.task, do=remedy)
    added = {str(path): rows_for(model, path, **reading) for path in other_data}
    values = [] if by is None else slices.values_of(by, rows, labelled.table_rows, labelled.columns)
    predictions = predict_rows(model, task_type, rows, say)
    for finding in model.findings:
        say(finding.line())
    baselines, findings = baselines_of(training, task_type, rows)
    findings += [*training.rows_among(rows), *same_answer("this part", rows)]
    doubts = [finding.what for finding in findings if finding.severity == "warning"]
    for name, addition in added.items():
        findings += [finding.of(name) for finding in training.rows_among(addition.examples)]
    compared = {"model": predictions.metrics} | {
        name: task_type.metrics(rows, answers) for name, answers in baselines
    }
    judged = conclusion.judge(task_type.measure, compared)
    if doubts:
        judged = replace(judged, sentence=f"Not conclusive: {doubts[0]}. {judged.sentence}")
    metrics = predictions.metrics.estimates()
    shifted = {
        name: predict_rows(model, addition.task_type, addition.examples, say).metrics.estimates()
        for name, addition in added.items()
    }
    report = task_type.report(predictions.encoded, predictions.outputs, predictions.answers)
    eval_part = "" if labelled.part == ALL else labelled.part
    test = conclusion.record_test(rows, task_type.labels, labelled.part)
    result = _result_folder(Path(folder if out is None else out))
    uses = conclusion.uses_of(test, result, home)
    findings += conclusion.used_before(uses, result)
    content: dict[str, Any] = {
        "verdict": judged.to_json(),
        "task": task_type.task,
        "part": labelled.part,
        "rows": len(rows),
        "test": {**test, "other_uses": len(uses)},
        "figures": plain_estimates(metrics),
        "baselines": {
            name: {m: v if math.isfinite(v) else None for m, v in compared[name].values.items()}
            for name, _ in baselines
        },
        "findings": [finding.to_json() for finding in findings],
    }
    if shifted:
        content["other_data"] = {name: plain_estimates(e) for name, e in shifted.items()}
    metric_table = _metric_table(
        f"{task_type.task}, {counted(len(rows), 'row')}"
        + (f" of {eval_part}" if eval_part else ""),
        metrics,
        {f"{name}, {counted(len(added[name].examples), 'row')}": e for name, e in shifted.items()},
    )
    more_tables = []
    say(f"\n{judged.sentence}")
    if by is not None:
        sliced = slices.compare_slices(by, values, predictions.metrics, task_type.measure)
        say(sliced.sentence)
        more_tables.append(sliced.table)
        content["slices"] = sliced.to_json()
    if training_rows:
        count = len(training_rows)
        order = permute(key("sample", 0), count, np.arange(min(count, TRAINING_ROWS)))
        sample = [training_rows[number] for number in order]
        of_rows = {
            "training rows": predict_rows(model, task_type, sample, quiet).metrics,
            "evaluated rows": predictions.metrics,
        }
        tables, plain = measure_generalisation(home, task_type, training_rows, of_rows)
        more_tables += tables
        content["generalisation"] = plain
    for figure_table in (metric_table, *more_tables, report.classes):
        if figure_table is not None:
            say("\n" + document.for_terminal(figure_table))
    if report.one_sided:
        say(report.one_sided.line())
        metric_table["note"] += f" Warning: {report.one_sided}."
    for finding in findings:
        say(finding.line())
        metric_table["note"] += f" {finding.severity.capitalize()}: {finding}."
    if out is not None:
        facts = {"model": folders.called(Path(folder)), "data": dict(hashes(Path(data)))}
        shown_page = page.render(
            name=Path(folder).resolve().name,
            task_type=task_type,
            eval_part=eval_part,
            verdict=judged.sentence,
            table=metric_table,
            more_tables=more_tables,
            num_rows=len(rows),
            report=report,
            facts=facts,
            kind="evaluation",
        )
        document.publish(out, NAME, {**content, **facts}, shown_page, say)
    return RowEvaluation(metrics, judged.sentence, report, None if out is None else Path(out))


def plain_estimates(estimates: Mapping[str, Estimate]) -> dict[str, Any]:
    """Return estimates as JSON values."""
    return {name: estimate.to_json() for name, estimate in estimates.items()}


def predict_rows(
    model: TaskPredictor, task_type: TaskType, rows: Sequence[Any], say: Say
) -> Predictions:
    """Predict labelled rows; findings of their encoding, such as truncated texts, are said."""
    model = replace(model, task_type=task_type)
    encoded = model.encode(rows)
    for finding in encoded.findings:
        say(finding.line())
    outputs = model.outputs(encoded)
    answers = task_type.answers(encoded, outputs)
    return Predictions(encoded, outputs, answers, task_type.metrics(rows, answers))


class TrainingData(NamedTuple):
    """The data that the result in `home` was trained on, as its `recipe` says; None with a `fault`
    if they cannot be read again."""

    home: Path
    recipe: FinetuneRecipe | None
    data: Dataset | None
    fault: str = ""

    def rows_among(self, rows: Sequence[Any]) -> list[Finding]:
        """Return a finding if the model was trained on some of `rows`."""
        training_rows = [] if self.data is None else self.data.parts[TRAIN]
        texts = {row.whole_text for row in training_rows}
        if not (count := sum(row.whole_text in texts for row in rows)):
            return []
        name, shown = "evaluated-on-training-data", counted(len(rows), "evaluated row")
        message = f"the model was trained on {count:,} of {shown}, so the figures flatter it"
        return [Finding(name, message, severity="warning" if 10 * count > len(rows) else "note")]


def read_training_data(folder: Path | str, evaluated: Path | str) -> TrainingData:
    """Read the training data of the model in `folder` again, from the path in its recipe, else from
    `evaluated`, if the rows there have the recorded hash."""
    home, saved_recipe, fault = _result_folder(Path(folder)), None, "are not recorded"
    try:
        saved_recipe = recipe.read(home / recipe.NAME)
        is_there, read = Path(saved_recipe.data).exists(), saved_recipe.read
        columns, task = saved_recipe.columns or None, saved_recipe.task
        fault = f"({saved_recipe.data}) {'have changed' if is_there else 'are not there'}"
        for path in filter(Path.exists, map(Path, (saved_recipe.data, evaluated))):
            data = prepare(path, columns=columns, task=task, division=None, read=read)
            data = divide(data, 0 if saved_recipe.curve else saved_recipe.folds)
            if recipe.hash_rows(data) == saved_recipe.made_from.get("data"):
                return TrainingData(home, saved_recipe, data)
    except (MaskwrightError, OSError):
        pass  # `fault` says why
    return TrainingData(home, saved_recipe, None, fault)


def baselines_of(
    training: TrainingData, task_type: TaskType, rows: Sequence[Any]
) -> tuple[list[tuple[str, Answers]], list[Finding]]:
    """Return the answers of baselines to the rows, by name, and a finding if some are missing: they
    are fitted on the training data, or are the constant ones that the result records."""
    results = conclusion.read_results(training.home / RESULTS)
    if (data := training.data) is not None:
        names = () if data.labels is None else data.labels.names
        if data.task.name == task_type.task and tuple(names) == task_type.labels:
            parts = {name: data.parts[name] for name in (TRAIN, VALIDATION) if name in data.parts}
            baselines = task_type.baselines(replace(data, parts={**parts, TEST: [*rows]}), TEST)
            return [pair for pair in baselines if pair[0] != results.get("is_baseline")], []
    recorded = conclusion.constant_baselines(results, rows)
    message = f"the training data of the model {training.fault or 'are of another task'}"
    compared = "only the same answer for every row" if recorded else "no baseline"
    consequence = f"{compared} is compared"
    return recorded, [Finding("baselines-not-fitted", message, consequence)]


def _training_rows(training: TrainingData) -> Sequence[Any]:
    """Return the rows that the network was trained on, which starts from a model that is there."""
    fault, saved_recipe = f"the training data {training.fault}", training.recipe
    if saved_recipe is not None:
        model, recorded = Path(saved_recipe.model), saved_recipe.made_from.get("model")
        if not saved_recipe.methods[0].opens_network:
            fault = f"the method {saved_recipe.method}, which has no network"
        elif not model.exists():
            fault = f"the model before training ({model}) is not there"
        elif recorded != fingerprint(hashes(folders.model_folder(model))):
            fault = f"the model before training ({model}) has changed"
        elif training.data is not None:
            return training.data.parts[TRAIN]
    raise UsageError(
        "the training of this model cannot be traced",
        where="--generalisation",
        found=fault,
        wanted="a network, with its training data and the model before training, unchanged",
        do="leave the option out",
    )


def _result_folder(folder: Path) -> Path:
    """Return the folder of a result: `folder`, or its parent if it is the model in one."""
    has_recipe = (folder.parent / recipe.NAME).is_file() and not (folder / recipe.NAME).is_file()
    return folder.parent if has_recipe else folder


def rows_for(
    model: TaskPredictor,
    data: Path | str,
    *,
    parts: Sequence[str] = (TEST, VALIDATION),
    part: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    read: TableReadingOptions = DEFAULT_OPTIONS,
    rejects: Path | None = None,
    by: str | None = None,
    say: Say,
) -> LabelledRows:
    """Read the rows of a part of `data` as examples of the model's task. Errors as in
    `evaluate_file`.

    Args:
        parts: the first of these that `data` has is read, unless `part` names one.
        rejects: the file to write skipped rows to.
        by: a column that the caller groups rows by, and that `say` does not list as unused.
        say: called with what was inferred about the data.
    """
    loaded = files.load(
        data, header=read.header, reading=read.reading, rejects=rejects, learned=False
    )
    names = list(loaded.parts)
    part_name = part or next((n for n in parts if n in names), names[0])
    if part_name not in names:
        expected, remedy = near(part_name, names), "leave --part out for the usual one"
        raise UsageError(
            "no such part of the data", where=data, found=part_name, wanted=expected, do=remedy
        )
    part_table = replace(
        loaded,
        parts={ALL: loaded.parts[part_name]},
        counts={ALL: loaded.counts[part_name]},
        rejects=loaded.rejects,
    )
    model, by_role = _as_pair_task(model, part_table, as_names(columns), read.no_label)
    task_type, task = model.task_type, _infer_task(model, part_table, data, by_role, read.no_label)
    for line in task.columns.lines(by):
        say(line)
    learned_from = loaded.parts.get(TRAIN, []) if part_name != TRAIN else []
    placeholder = hidden_by(part_table.first, learned_from, task.columns)
    if placeholder is not None and (learned_from or placeholder not in task_type.labels):
        raise no_answers(part_name, part_table.first, task.columns, placeholder)
    examples = build(
        part_table,
        task,
        read=read,
        classes=task_type.labels,
        values=model.values,
        assume=bool(task_type.options.get(UNTOLD)),
    )
    for finding in (
        *reading_findings(part_name, loaded.counts[part_name]),
        *left_out_findings(examples),
        *task.columns.layout.findings(ALL, examples),
        *task.columns.layout.label_findings(task_type.labels),
    ):
        say(finding.line())
    part_rows = loaded.parts[part_name]
    return LabelledRows(part_name, examples.parts[ALL], task_type, part_rows, loaded.columns)


def _as_pair_task(
    model: TaskPredictor,
    asked_of: Table,
    columns: Mapping[str, Sequence[str]],
    no_label: str | None,
) -> tuple[TaskPredictor, Mapping[str, Sequence[str]]]:
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
    model: TaskPredictor,
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
    named_columns = {**trained_columns, **columns}
    try:
        task = infer(asked_of, named_columns, model.task_type.task, no_label)
    except DataError as error:
        if named_columns.keys() & {"label", *model.targets}:
            raise
        remedy = "add the labels, or name their column (--column ROLE=NAME); "
        raise error.advising(f"{remedy}maskwright predict is for rows without labels") from None
    task.columns.why.update(
        dict.fromkeys(trained_columns.keys() - set(columns), "as in the training data")
    )
    if task.separator is not None and model.separator is not None:
        task = replace(task, separator=model.separator)  # inference from few rows may be wrong
    return task


def _metric_table(
    title: str, figures: Mapping[str, Estimate], added: Mapping[str, Mapping[str, Estimate]]
) -> document.Table:
    head, cells = ["", "figure"], [[name, e.render()] for name, e in figures.items()]
    for other_name, estimates in added.items():
        head += [other_name, "difference"]
        for row, (name, estimate) in zip(cells, figures.items(), strict=True):
            addition = estimates.get(name, Estimate(math.nan, math.nan, math.nan))
            row += [addition.render(), addition.minus(estimate).render()]
    note = "95 % intervals of rows like these."
    note += " Differences are from other rows, and therefore not paired." if added else ""
    return {"title": title, "head": head, "rows": cells, "note": note}
