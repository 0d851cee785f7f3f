"""Predictions of a fine-tuned model for the rows of a file, in the order of the rows.

    {…the row…, "prediction": {"label": "good", "score": 0.93}}

Rows are read, predicted and written in portions, so memory does not depend on the file size.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, TypedDict, Unpack

from maskwright.ask.predict.inputs import require_effect
from maskwright.ask.predict.predictor import PORTION, BasePredictor, TaskPredictor, load
from maskwright.ask.predict.remote import ModelChangedError, RemoteServer, with_server
from maskwright.ask.predict.rows import (
    PREDICTION,
    WINDOWS,
    name_taken,
    rows_to_answer,
    with_named_columns,
)
from maskwright.ask.predict.shared_encoder import SharedEncoder, load_shared
from maskwright.ask.predict.uncertain import uncertain_rows
from maskwright.base.errors import Finding, UsageError, near
from maskwright.base.storage.commit import require_new
from maskwright.base.storage.files import write_file
from maskwright.base.terminal import Say, counted, harmless_json, quiet
from maskwright.learn.tasks.base.choices import LongText
from maskwright.learn.tasks.base.task_type import task_for
from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.fine_tuned import (
    ADAPTER,
    MODEL,
    TASK,
    finish,
    read_task,
    require_finished,
)
from maskwright.model.checkpoint.layout import About
from maskwright.model.device.choices import TORCH
from maskwright.model.objectives.supervised import PROBLEM_TYPES
from maskwright.model.opening.open import open_head_alone
from maskwright.text.corpus import files
from maskwright.text.corpus.reading import REJECTED, SPANNING, Counts
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, TableReadingOptions
from maskwright.text.tables.shapes import as_names, may_be_joined


def write_whole(folder: Path | str, out: Path | str) -> Path:
    """Write a fine-tuning of which only the head was saved, in `folder`, with all weights to the
    new folder `out`; returns its model folder. Other programs can read it if the head is one of
    the model's family (`--method head`).

    Raises:
        UsageError: `folder` is not such a fine-tuning, or `out` exists.
        CheckpointError, IncompatibleError: as in `open_head_alone`.
        OutputError, StoppedError, StorageError: `out` cannot be written, is full, or fails.
    """
    folder, out = Path(folder), Path(out)
    home = require_finished(folder) or folder
    record, head_alone = read_task(home), open_head_alone(home / ADAPTER)
    if record is None or head_alone is None or head_alone.loaded.tokenizer is None:
        raise UsageError(
            "not a head that was saved alone",
            where=folder,
            wanted="what finetune --method probe or head writes",
        )
    require_new(out, error=UsageError, message="the output folder is there already")
    task_type = task_for(record.kind, record.labels, record.settled)
    problem = PROBLEM_TYPES[task_type.problem] if task_type.head == "sequence" else None
    task = replace(record, attached=False).render()
    pretrained.save(
        head_alone.loaded.model,
        head_alone.loaded.tokenizer.padding(),
        out / MODEL,
        About(labels=task_type.labels, problem_type=problem),
        more={TASK: task.encode()},
    )
    write_file(out / TASK, task.encode())
    finish(out, [])
    return out / MODEL


SAID = 3  # the number of portions whose truncated rows are reported
SHOW_SECONDS = 10.0  # between two lines of progress


class PredictionSettings(TypedDict, total=False):
    """How the rows of a file are predicted, the same for `predict_file` and `write_predictions`.

    Attributes:
        also: folders of further models with the same encoder; a prediction is then a dict from
            the folder's name to the prediction of its model.
        columns: from role to column of this file, if not the one of the training data.
        labels, hypothesis: any labels, for a model of natural-language inference, and its template
            of a hypothesis (default "This example is {}.").
        task: as in `LanguageModel.predict`.
        read: how the file is read; with `on_bad=skip` the prediction of a bad row is null.
        top: write a list of this many best predictions per row.
        base: the folder of the base, if the model is an adapter and does not name it.
        long: handling of texts beyond the model's context, as in `LanguageModel.predict` (default
            "as_trained"); with "windows" their number is written too.
        engine: computes hidden states, as in `language_model.load` (default "torch").
        server: predicts instead of the model in the folder, which is ignored.
        threshold, all_scores: which labels are given, as in `BasePredictor.deciding`.
        uncertain: write only so many rows, those to label next (`uncertain_rows`).
    """

    also: Path | str | Sequence[Path | str]
    columns: Mapping[str, str | Sequence[str]] | None
    labels: Sequence[str]
    hypothesis: str | None
    task: str | None
    read: TableReadingOptions
    top: int | None
    base: Path | str | None
    long: LongText
    engine: str
    server: RemoteServer | None
    threshold: float | None
    all_scores: bool
    uncertain: int | None


def predict_file(
    folder: Path | str,
    source: Path | str,
    stream: TextIO,
    *,
    say: Say = quiet,
    **settings: Unpack[PredictionSettings],
) -> int:
    """Write the rows of `source` with their predictions to `stream`, as JSON Lines.

    Args:
        say: called with findings, such as the number of rows without a prediction.
        settings: see `PredictionSettings`.

    Returns:
        The number of rows written.

    Raises:
        UsageError: the file does not exist, or a folder mixes tables and plain text, or a column
            has the name of the prediction.
        DataError: a row lacks columns that are read.
    """
    model, counts = loaded(folder, say, settings), Counts()
    count, num_bad = answer_rows(model, Path(source), stream, settings, 0, say, counts)
    for finding in unanswered(num_bad, counts):
        say(finding.line())
    return count


def loaded(folder: Path | str, say: Say, settings: PredictionSettings) -> BasePredictor:
    """Load the predictor: the model in `folder`, several models with a shared encoder (`also`), or
    a server.

    Raises:
        UsageError: a setting is unknown or has no effect, or `columns` has an unknown role.
    """
    if unknown := settings.keys() - PredictionSettings.__annotations__.keys():
        similar_names = near(min(unknown), PredictionSettings.__annotations__)
        raise UsageError("no such setting", found=", ".join(sorted(unknown)), wanted=similar_names)
    require_effect(settings)
    other_folders = files.listed(settings.get("also", ()))
    labels, engine = settings.get("labels", ()), settings.get("engine", TORCH)
    server, base = settings.get("server"), settings.get("base")
    named_columns: dict[str, Sequence[str]] = {**as_names(settings.get("columns"))}
    model: BasePredictor
    if server is not None:
        model = with_server(server)
    elif other_folders:
        model = load_shared([folder, *other_folders])
    else:
        model = load(folder, base=base) if engine == TORCH else _load(engine, folder, base, say)
    if labels and isinstance(model, TaskPredictor):
        model = model.with_labels(labels, settings.get("hypothesis"))
    if (task := settings.get("task")) and isinstance(model, TaskPredictor):
        model = model.for_task(task)
    if settings.get("uncertain") is not None:
        model.require_probabilities("--uncertain", 2)
    if isinstance(model, SharedEncoder):
        _require_same_columns(model, named_columns)
    model = model.with_long_texts(settings.get("long", "as_trained"))
    model = model.deciding(settings.get("threshold"), all_scores=settings.get("all_scores", False))
    return with_named_columns(model, named_columns)


def _load(engine: str, folder: Path | str, base: Path | str | None, say: Say) -> TaskPredictor:
    """Load the model in `folder` with an engine other than "torch"; `say` gets its findings."""
    from maskwright.ask.predict import language_model

    model = language_model.load(folder, base=base, engine=engine)
    for finding in model.opened().runtime_findings:
        say(finding.line())
    return model.predictor


def _require_same_columns(model: SharedEncoder, columns: Mapping[str, Sequence[str]]) -> None:
    """Raise a `UsageError` if the models were trained on different numbers of columns for a role
    that is not in `columns`."""
    for name, member in model.members.items():
        for role in filter(may_be_joined, model.columns.keys() - columns.keys()):
            expected, member_columns = model.columns[role], member.columns.get(role, ())
            if len(expected) != len(member_columns):
                raise UsageError(
                    "the models were trained on different columns",
                    where=name,
                    found=f"{role}: {', '.join(member_columns)}",
                    wanted=", ".join(expected),
                    do=f"say what both read: --column {role}=NAME",
                )


def answer_rows(
    model: BasePredictor,
    source: Path,
    stream: TextIO,
    settings: PredictionSettings,
    skip: int,
    say: Say,
    counts: Counts,
) -> tuple[int, int]:
    """Write rows with their predictions; returns the number of rows written, and of those without
    a prediction. Rows of a pipe are predicted as soon as it is empty. `skip` rows are left out;
    `counts` is filled by the reader."""
    top, uncertain = settings.get("top"), settings.get("uncertain")
    windows = settings.get("long") == "windows"
    count = bad = unlabelled = 0
    cuts: Counter[str] = Counter()
    rows: list[tuple[dict[str, Any], Any]] = []
    start_time = last_report = time.monotonic()

    def report_truncated(finding: Finding) -> None:
        cuts[finding.name] += 1
        if cuts[finding.name] <= SAID:  # reported at once, so that a kill does not lose it
            start, end = skip + count + 1, skip + count + len(rows)
            if start > 1 or len(rows) == PORTION:
                finding = finding.of(f"of the rows {start:,} to {end:,}")
            say(finding.line())

    def predict_portion() -> None:
        """Predict the rows of the current portion and write them."""
        nonlocal count, bad, unlabelled, last_report
        examples = [example for _, example in rows if example is not None]
        answers: Iterator[tuple[Any, int]] = iter(())
        changed: ModelChangedError | None = None
        if examples:
            try:
                predictions, extent = model.answer(examples, top, report_truncated)
            except ModelChangedError as error:  # predictions of the first model are still written
                (predictions, extent), changed = error.answered, error
                readable = [n for n, (_, example) in enumerate(rows) if example is not None]
                del rows[readable[len(predictions)] :]
            answers = zip(predictions, extent.windows.tolist(), strict=True)
        bad += sum(example is None for _, example in rows)
        for values, example in rows:
            if windows and WINDOWS in values:
                raise name_taken(WINDOWS)
            prediction, number = (None, None) if example is None else next(answers)
            unlabelled += isinstance(prediction, dict) and prediction.get("label", "") is None
            row = {
                **{name: _finite(value) for name, value in values.items()},
                **({WINDOWS: number} if windows else {}),
                PREDICTION: _finite(prediction),  # last: `_kept` tells rows without one by it
            }
            line = json.dumps(row, ensure_ascii=False, allow_nan=False, default=str)
            stream.write(harmless_json(line) + "\n")
        count += len(rows)
        rows.clear()
        stream.flush()
        if changed is not None:
            raise changed
        if (now := time.monotonic()) - last_report >= SHOW_SECONDS:
            last_report = now
            say(f"{counted(count, 'row')} answered, {count / (now - start_time):,.0f} per second")

    for finding in model.findings:
        say(finding.line())
    if (pipe := files.find_growing(source)) is not None:
        pipe.waiting = predict_portion
    read, named = settings.get("read", DEFAULT_OPTIONS), bool(settings.get("columns"))
    rows_read = rows_to_answer(source, model, read, counts, named=named)
    if uncertain is not None:
        assert isinstance(model, TaskPredictor)  # see `loaded`
        rows_read = uncertain_rows(model, rows_read, uncertain, lambda f: say(f.line()))
    for row in islice(rows_read, skip, None):
        rows.append(row)
        if len(rows) == PORTION:
            predict_portion()
    predict_portion()
    if unlabelled:
        say(_abstained(unlabelled, count - bad).line())
    if (unreported := max(cuts.values(), default=0) - SAID) > 0:
        message = f"and so on, in {unreported:,} more portions of {PORTION:,} rows"
        say(Finding("cut-in-more-portions", message).line())
    return count, bad


def _abstained(unlabelled: int, answered: int) -> Finding:
    """Return the finding that rows have no label, as their probabilities are below a threshold."""
    if unlabelled == answered:
        message = f"none of {counted(answered, 'row')} has a label"
        remedy = "lower the threshold; report.html of the model has the probabilities of its rows"
        return Finding("threshold-rejects-all", message, remedy=remedy, severity="warning")
    message = f"{unlabelled:,} of {counted(answered, 'row')} have no label"
    return Finding("rows-below-threshold", message, "their highest probability is below it")


def _finite(value: Any) -> Any:
    """Replace NaN and infinite floats, which JSON does not allow, by None, also in nested values
    (empty cells of a parquet file are NaN)."""
    if isinstance(value, list | tuple):
        return [_finite(element) for element in value]
    if isinstance(value, Mapping):
        return {name: _finite(element) for name, element in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def unanswered(bad: int, counts: Counts) -> Iterator[Finding]:
    """Yield findings about the `bad` rows without a prediction, and about rows not read."""
    if bad:
        message = f"{counted(bad, 'row')} could not be answered"
        yield Finding("rows-without-answer", message, "the prediction there is null")
    for finding in counts.findings:
        if finding.name == SPANNING:
            finding = replace(finding, remedy="where quotes are plain signs: --read quoting=false")
        if finding.name != REJECTED:  # reported below, with the reasons
            yield finding
    if counts.blank:
        message = f"{counted(counts.blank, 'blank line')} passed over"
        yield Finding("blank-lines", message, "with no line among the predictions")
    if counts.rejected:
        reasons = ", ".join(f"{n:,} × {reason}" for reason, n in counts.rejected_by.items())
        message = f"{counted(counts.rejected, 'row')} could not be read and have no prediction"
        yield Finding(REJECTED, message, f"the first: {counts.first_rejected} ({reasons})")
