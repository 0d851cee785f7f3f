"""Predictions for the rows of a file, written to a new file.

    predictions.jsonl   {…the row…, "prediction": {"label": "good", "score": 0.93}}
    predictions.csv     …the row…, predicted_label, predicted_score
                        without a label where it is below `threshold`; with `all_scores` also
                        predicted_probabilities_good, predicted_probabilities_bad, …
                        with `top` …, predicted_label_1, predicted_score_1, predicted_label_2, …

The file is written atomically. Rows that were predicted before a kill are kept in a staged file
beside it, and the same command continues after them.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Unpack

from maskwright.ask.predict.file import PredictionSettings, answer_rows, loaded, unanswered
from maskwright.ask.predict.inputs import LISTS
from maskwright.ask.predict.predictor import BasePredictor, TaskPredictor
from maskwright.ask.predict.remote import ModelChangedError, RemoteModel
from maskwright.ask.predict.rows import (
    PREDICTION,
    WINDOWS,
    clashing,
    flat_row,
    name_taken,
    names_of,
    rows_to_answer,
)
from maskwright.ask.predict.shared_encoder import SharedEncoder
from maskwright.base.errors import DataError, Finding, MaskwrightError, OutputError, UsageError
from maskwright.base.report import document
from maskwright.base.storage import commit
from maskwright.base.storage import files as storage
from maskwright.base.terminal import Say, counted, quiet
from maskwright.learn.finetune.recipe import hashes
from maskwright.model.checkpoint.fine_tuned import ADAPTER, MODEL, TASK
from maskwright.model.opening import folders
from maskwright.model.opening.open import home_of
from maskwright.text.corpus.files import listed, size_of
from maskwright.text.corpus.reading import Counts
from maskwright.text.tables.formats import text_files
from maskwright.text.tables.labelled_images import find_images
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS

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
        model = loaded(folder, say, settings)
        base, top = settings.get("base"), settings.get("top")
        opened = model.first if isinstance(model, SharedEncoder) else model
        about: dict[str, Any] = {"model": _model_hashes(folder, opened), "source": hashes(source)}
        changed = {
            "base": None if base is None else hashes(Path(base)),
            "also": [_model_hashes(Path(path)) for path in listed(settings.get("also", ()))],
            "settings": {
                n: repr(v) for n, v in settings.items() if v is not None and n != "server"
            },
        }
        about |= {name: value for name, value in changed.items() if value}
        if out.exists():
            with staged.open(encoding="utf-8", errors="replace") as file:
                is_of_this_command = file.readline() == json.dumps(about) + "\n"
            if is_of_this_command:
                staged.unlink()  # left by a process that was killed after its last rename
        document.require_new(out)
        names = _look_at(source, model, settings, delimiter is not None)
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
        rows_before, bad_before = _resume_staged(staged, json.dumps(about), say)
        try:
            with staged.open("a", encoding="utf-8") as stream:
                count, num_bad = answer_rows(
                    model, source, stream, settings, rows_before, say, counts
                )
            _require_unchanged(source, about["source"])
        except MaskwrightError as error:
            raise _with_advice(error, staged, json.dumps(about), out, save) from error
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
    source: Path, model: BasePredictor, settings: PredictionSettings, flat: bool
) -> list[str]:
    """Check all rows before anything is computed, and that no column has the name of a prediction
    column. Returns the names of the prediction columns if `flat` (csv or tsv), else []."""
    names: list[str] = []
    top, windows = settings.get("top"), settings.get("long") == "windows"
    read, named = settings.get("read", DEFAULT_OPTIONS), bool(settings.get("columns"))
    for values, example in rows_to_answer(source, model, read, Counts(), named=named):
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
