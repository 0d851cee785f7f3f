"""Predictions of a fine-tuned model for the rows of a file, in the order of the rows.

    JSON Lines    {…the row…, "prediction": {"label": "good", "score": 0.93}}
    csv, tsv      …the row…, predicted_label, predicted_score
                  without a label where it is below `threshold`; with `all_scores` also
                  predicted_probabilities_good, predicted_probabilities_bad, …
                  with `top` …, predicted_label_1, predicted_score_1, predicted_label_2, …

Rows are read, predicted and written in portions, so memory does not depend on the file size. A new
file is written atomically: rows that were predicted before a kill are kept in a staged file beside
it, and the same command continues after them.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, TypedDict, Unpack

from maskwright.ask.predict.inputs import LISTS, require_effect
from maskwright.ask.predict.predictor import PORTION, BasePredictor, TaskPredictor, load
from maskwright.ask.predict.remote import ModelChangedError, RemoteModel, RemoteServer, with_server
from maskwright.ask.predict.rows import (
    PREDICTION,
    WINDOWS,
    RowReader,
    clashing,
    flat_row,
    name_taken,
    names_of,
    rows_to_answer,
)
from maskwright.ask.predict.shared_encoder import SharedEncoder, load_shared
from maskwright.ask.predict.uncertain import uncertain_rows
from maskwright.base.errors import (
    DataError,
    Finding,
    MaskwrightError,
    OutputError,
    UsageError,
    near,
)
from maskwright.base.report import document
from maskwright.base.storage import commit
from maskwright.base.storage import files as storage
from maskwright.base.storage.commit import require_new
from maskwright.base.storage.files import write_file
from maskwright.base.terminal import Say, counted, harmless_json, quiet
from maskwright.learn.finetune.recipe import hashes
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
from maskwright.model.opening import folders
from maskwright.model.opening.open import home_of, open_head_alone
from maskwright.text.corpus import files
from maskwright.text.corpus.files import listed, size_of
from maskwright.text.corpus.reading import REJECTED, SPANNING, Counts
from maskwright.text.tables.formats import text_files
from maskwright.text.tables.labelled_images import find_images
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, TableReadingOptions
from maskwright.text.tables.shapes import as_names, may_be_joined

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
    (model, reader), counts = loaded(folder, say, settings), Counts()
    count, num_bad = answer_rows(model, reader, Path(source), stream, settings, 0, say, counts)
    for finding in unanswered(num_bad, counts):
        say(finding.line())
    return count


def loaded(
    folder: Path | str, say: Say, settings: PredictionSettings
) -> tuple[BasePredictor, RowReader]:
    """Load the predictor, and what reads its rows: the model in `folder`, several models with a
    shared encoder (`also`), or a server.

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
    reader = RowReader(model.task_type, model.columns, settings.get("read", DEFAULT_OPTIONS))
    return model, reader.with_named_columns(named_columns)


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
    reader: RowReader,
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
        if examples:
            predictions, extent = model.answer(examples, top, report_truncated)
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
        if (now := time.monotonic()) - last_report >= SHOW_SECONDS:
            last_report = now
            say(f"{counted(count, 'row')} answered, {count / (now - start_time):,.0f} per second")

    for finding in model.findings:
        say(finding.line())
    if (pipe := files.find_growing(source)) is not None:
        pipe.waiting = predict_portion
    rows_read = rows_to_answer(source, reader, counts)
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


# ------------------------------------------------------------------------------ a new file
WRITES = 2  # copies of the rows on the disk at a time: staged and final file
# The separator of columns by file extension; None for JSON Lines.
DELIMITERS = {".jsonl": None, ".csv": ",", ".tsv": "\t"}


def write_predictions(
    folder: Path | str,
    source: Path | str,
    out: Path | str,
    *,
    say: Say = quiet,
    **settings: Unpack[PredictionSettings],
) -> int:
    """Write predictions to the new file `out`: csv, tsv or JSON Lines by its extension. Returns the
    number of rows. All rows are checked before anything is computed; settings as in `predict_file`.

    Raises:
        UsageError: `out` exists or has another extension, and as in `predict_file`.
        OutputError: it cannot be written.  StoppedError: another process is writing it.
    """
    folder, source, out = Path(folder), Path(source), Path(out)
    delimiter = DELIMITERS.get(out.suffix.lower(), "")
    if delimiter == "":
        raise UsageError(
            "the format of the output file is unknown",
            where=out,
            found=out.suffix or "none",
            wanted=", ".join(DELIMITERS),
            do="choose another name for --out",
        )
    if not out.parent.is_dir():
        message, do = "the predictions cannot be written", "choose a folder that is there"
        raise OutputError(message, where=out, found="no such folder", do=do)
    staged = out.with_name(f".tmp-{out.name}.jsonl")
    with commit.writing(out), _named_os_errors(out):
        if not _size(staged):
            document.require_new(out)
        model, reader = loaded(folder, say, settings)
        base, top = settings.get("base"), settings.get("top")
        opened = model.first if isinstance(model, SharedEncoder) else model
        source_hashes = hashes(source)
        about = json.dumps(
            {
                "model": _model_hashes(folder, opened),
                "source": source_hashes,
                "base": None if base is None else hashes(Path(base)),
                "also": [_model_hashes(Path(path)) for path in listed(settings.get("also", ()))],
                "settings": {n: repr(v) for n, v in settings.items() if n != "server"},
            }
        )
        if out.exists():
            with staged.open(encoding="utf-8", errors="replace") as file:
                is_of_this_command = file.readline() == f"{about}\n"
            if is_of_this_command:
                staged.unlink()  # left by a process that was killed after its last rename
        document.require_new(out)
        names = _look_at(source, model, reader, settings, delimiter is not None)
        # The rows are in both files for a while.
        size = size_of(source, text_files.sources) if find_images(source) is None else 0
        storage.require_space(out.parent, WRITES * size - _size(staged))

        def save(target: Path) -> None:
            if delimiter is None:
                with storage.new_text(target) as file:
                    file.writelines(_staged_lines(staged))
            else:
                _as_table(staged, target, delimiter, names, top)

        counts = Counts()
        rows_before, bad_before = _resume_staged(staged, about, say)
        try:
            with staged.open("a", encoding="utf-8") as stream:
                count, num_bad = answer_rows(
                    model, reader, source, stream, settings, rows_before, say, counts
                )
            _require_unchanged(source, source_hashes)
        except MaskwrightError as error:
            raise _with_advice(error, staged, about, out, save) from error
        save(out)
        staged.unlink()
    for finding in unanswered(bad_before + num_bad, counts):
        say(finding.line())
    return rows_before + count


def _with_advice(
    error: MaskwrightError, staged: Path, about: str, out: Path, save: Callable[[Path], None]
) -> MaskwrightError:
    """Add advice about the rows predicted so far to an error. These rows are deleted after a
    `DataError`, saved to a partial file by `save` if the server's model changed, and otherwise kept
    in `staged` for a repetition of the command."""
    count, _ = _resume_staged(staged, about, quiet)
    if count == 0 or isinstance(error, DataError):
        staged.unlink(missing_ok=True)
        return error
    rows = f"{counted(count, 'row')} answered before"
    if not isinstance(error, ModelChangedError):
        advice = f"{error.do}; then give" if error.do else "give"
        return error.advising(f"{advice} the same command again: {rows} are kept")
    numbers = itertools.count(1)
    names = (out.with_name(f"{out.stem}.partial-{number}{out.suffix}") for number in numbers)
    partial = next(name for name in names if not os.path.lexists(name))
    save(partial)
    return error.advising(
        f"{rows} are in {partial}; to go on after them, let the server answer by that model and "
        "give the same command again; with another model it answers all rows anew"
    )


@contextlib.contextmanager
def _named_os_errors(out: Path) -> Iterator[None]:
    """Convert an `OSError` in the block to an `OutputError` that names the file."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            "the predictions cannot be written",
            where=out,
            found=error,
            do="make room, then give the same command: what was answered is kept",
        ) from error


def _require_unchanged(source: Path, before: Mapping[str, str]) -> None:
    """Raise a `DataError` with the names of source files whose hashes differ from `before`."""
    current = hashes(source)
    if changed := [name for name in {**before, **current} if before.get(name) != current.get(name)]:
        raise DataError(
            "the file has changed while it was answered",
            where=source,
            found=", ".join(changed[:5]),
            wanted="a file that stays as it is",
            do="give the same command again",
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _model_hashes(folder: Path, opened: BasePredictor | None = None) -> dict[str, str]:
    """Return the hash of a model on a server, else those of the model's files in `folder`, by
    "FOLDER/FILE"; those computed when the model was `opened` are reused."""
    if isinstance(opened, RemoteModel):
        return {"served": opened.fingerprint}
    home = home_of(folder)
    paths = [home / name for name in (MODEL, ADAPTER, TASK)]
    if not paths[0].is_dir() and not paths[1].is_dir():
        paths = [folders.model_folder(home)]
    present = [path for path in paths if path.exists()]
    known_hashes = {opened.path: opened.hashes} if isinstance(opened, TaskPredictor) else {}
    return {
        f"{path.name}/{n}": digest
        for path in present
        for n, digest in hashes(path, known_hashes.get(path)).items()
    }


def _look_at(
    source: Path,
    model: BasePredictor,
    reader: RowReader,
    settings: PredictionSettings,
    flat: bool,
) -> list[str]:
    """Check all rows before anything is computed, and that no column has the name of a prediction
    column. Returns the names of the prediction columns if `flat` (csv or tsv), else []."""
    names: list[str] = []
    top, windows = settings.get("top"), settings.get("long") == "windows"
    for values, example in rows_to_answer(source, reader, Counts()):
        if flat and not names and example is not None:
            names = names_of(example, model, top, windows)
        if used := clashing([*names, *([WINDOWS] if windows else [])], values, top):
            raise name_taken(", ".join(used), str(source))
    if flat and not names:  # no row can be answered
        values = {role: ["a", "b"] if role in LISTS else "a" for role in model.task_type.roles}
        names = names_of(model.task_type.of_value(values, ""), model, top, windows)
    return names


def _resume_staged(staged: Path, about: str, say: Say) -> tuple[int, int]:
    """Return the number of rows that an earlier run of the same command has left in the staged
    file, and of those without a prediction. An incomplete last line is cut off; the file of a
    different command (its first line is not `about`) is emptied."""
    header, null = f"{about}\n".encode(), f'"{PREDICTION}": null}}\n'.encode()
    count = bad = 0
    with staged.open("a+b") as file:
        file.seek(0)
        if (first_line := file.readline()) != header:
            if first_line:
                message = "found partial predictions of a different command; starting over"
                say(Finding("partial-predictions", message).line())
            file.truncate(0)
            file.write(header)
            return 0, 0
        length = len(header)
        for line in file:
            if not line.endswith(b"\n"):
                break
            length += len(line)
            count, bad = count + 1, bad + line.endswith(null)  # the last value of a row
        file.truncate(length)
    return count, bad


def _as_table(
    staged: Path, target: Path, delimiter: str, names: Sequence[str], top: int | None
) -> None:
    """Write a table with the columns of the rows, then those of the predictions, which are `names`
    if no row has a prediction."""
    rows: list[dict[str, Any]] = [{}, {}]
    for line in _staged_lines(staged):
        for columns, cells in zip(rows, flat_row(json.loads(line), top), strict=True):
            columns |= dict.fromkeys(cells)
    with storage.new_text(target, newline="") as file:
        columns, predicted = rows
        writer = csv.DictWriter(file, [*columns, *(predicted or names)], delimiter=delimiter)
        writer.writeheader()
        for line in _staged_lines(staged):
            values, cells = flat_row(json.loads(line), top)
            writer.writerow(values | cells)


def _staged_lines(staged: Path) -> Iterator[str]:
    with staged.open(encoding="utf-8") as file:
        yield from islice(file, 1, None)


# ------------------------------------------------------------------------------ a head alone
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
