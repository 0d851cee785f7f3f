"""The answers to the rows of a file as a new file.

    predictions.jsonl   {…the row…, "prediction": {"label": "good", "score": 0.93}}
    predictions.csv     …the row…, predicted_label, predicted_score
                        with `top` …, predicted_label_1, predicted_score_1, predicted_label_2, …

The file is written whole or not at all. Rows that were answered before a kill are kept beside it,
and the same command continues after them.
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
from typing import Any

from maskwright.ask.predict.columns import (
    PREDICTION,
    WINDOWS,
    clashing,
    flat_row,
    name_taken,
    names_of,
)
from maskwright.ask.predict.file import answer_rows, loaded, unanswered
from maskwright.ask.predict.inputs import LISTS
from maskwright.ask.predict.predictor import BasePredictor, Predictor
from maskwright.ask.predict.remote import ModelChangedError, RemoteModel, RemoteServer
from maskwright.ask.predict.rows import rows_to_answer
from maskwright.ask.predict.shared_encoder import SharedEncoder
from maskwright.base.counted import counted
from maskwright.base.errors import DataError, MaskwrightError, OutputError, UsageError
from maskwright.base.findings import Finding
from maskwright.base.report import document
from maskwright.base.report.say import Say, quiet
from maskwright.base.storage import commit
from maskwright.base.storage import files as storage
from maskwright.base.storage.files import new_text
from maskwright.learn.finetune.hashes import hashes
from maskwright.learn.tasks.base.choices import LongText
from maskwright.model.checkpoint.fine_tuned import ADAPTER, MODEL, TASK
from maskwright.model.graph.engines.base.names import TORCH
from maskwright.model.opening import folders
from maskwright.model.opening.open import home_of
from maskwright.text.corpus.files import listed, size_of
from maskwright.text.corpus.ledger import Counts
from maskwright.text.tables.formats import unnamed_files
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, TableReadingOptions
from maskwright.text.tables.shapes import as_names

WRITES = 2  # copies of the rows that lie on the disk at a time
# The separator of columns by the name of the file; None for JSON Lines.
DELIMITERS = {".jsonl": None, ".csv": ",", ".tsv": "\t"}


def write_predictions(
    folder: Path | str,
    source: Path | str,
    out: Path | str,
    *,
    also: Path | str | Sequence[Path | str] = (),
    columns: Mapping[str, str | Sequence[str]] | None = None,
    read: TableReadingOptions = DEFAULT_OPTIONS,
    top: int | None = None,
    base: Path | str | None = None,
    long: LongText = "as_trained",
    engine: str = TORCH,
    server: RemoteServer | None = None,
    say: Say = quiet,
) -> int:
    """`predict_file` into the new file `out`, a csv, a tsv or JSON Lines by its name; returns how
    many. All of the source is looked at before anything is computed.

    Raises:
        UsageError: the file is there already, or of another kind, and as `predict_file`.
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
        raise OutputError(
            "the predictions cannot be written",
            where=out,
            found="no such folder",
            do="choose a folder that is there",
        )
    staged = out.with_name(f".tmp-{out.name}.jsonl")
    with commit.writing(out), _told_of(out):
        if not _size(staged):
            document.require_new(out)
        model = loaded(folder, also, columns, base, engine, say, server).with_long_texts(long)
        settings = {
            "base": None if base is None else hashes(Path(base)),
            "also": [_model(Path(other_folder)) for other_folder in listed(also)],
            "columns": as_names(columns),
            "read": None if read == DEFAULT_OPTIONS else repr(read),
            "top": top,
            "long": None if long == "as_trained" else long,
            "engine": None if engine == TORCH else engine,
        }
        about: dict[str, Any] = {"model": _answering(folder, model), "source": hashes(source)}
        about |= {name: value for name, value in settings.items() if value}
        if out.exists() and _first_line(staged) == json.dumps(about):
            staged.unlink()  # of a process that was killed after its last rename
        document.require_new(out)
        windows = long == "windows"
        names = _look_at(source, model, read, top, delimiter is not None, windows)
        # The rows stand in both files for a while.
        storage.require_space(
            out.parent, WRITES * size_of(source, unnamed_files.sources) - _size(staged)
        )

        def save(target: Path) -> None:
            if delimiter is None:
                _as_lines(staged, target)
            else:
                _as_table(staged, target, delimiter, names, top)

        counts = Counts()
        rows_before, bad_before = _kept(staged, json.dumps(about), say)
        try:
            with staged.open("a", encoding="utf-8") as stream:
                count, bad = answer_rows(
                    model, source, stream, read, top, rows_before, say, counts, windows
                )
            _require_unchanged(source, about["source"])
        except MaskwrightError as error:
            raise _ended(error, staged, json.dumps(about), out, save) from error
        save(out)
        staged.unlink()
    for finding in unanswered(bad_before + bad, counts):
        say(finding.line())
    return rows_before + count


def _ended(
    error: MaskwrightError, staged: Path, about: str, out: Path, save: Callable[[Path], None]
) -> MaskwrightError:
    """The error with advice about the rows that were answered before it. They are deleted if a row
    is at fault, and kept for the same command otherwise."""
    count, _ = _kept(staged, about, quiet)
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
def _told_of(out: Path) -> Iterator[None]:
    """Turn an `OSError` in the block into an `OutputError` that names the file."""
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
    """Refuse predictions of rows of two versions of a file.

    Raises:
        DataError: naming what changed since `before`.
    """
    now = hashes(source)
    if changed := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
        raise DataError(
            "the file has changed while it was answered",
            where=source,
            found=", ".join(changed[:5]),
            wanted="a file that stays as it is",
            do="give the same command again",
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _first_line(staged: Path) -> str:
    """The first line of the staged file, which says what its rows are predictions of."""
    with staged.open(encoding="utf-8", errors="replace") as file:
        return file.readline().removesuffix("\n")


def _answering(folder: Path, model: BasePredictor) -> dict[str, str]:
    """The hashes of the model that answers."""
    if isinstance(model, RemoteModel):
        return {"served": model.fingerprint}
    predictor = model.first if isinstance(model, SharedEncoder) else model
    return _model(folder, predictor if isinstance(predictor, Predictor) else None)


def _model(folder: Path, opened: Predictor | None = None) -> dict[str, str]:
    """The hashes of the model's files in `folder`; those that were computed when the model was
    `opened` are reused."""
    home = home_of(folder)
    paths = [home / name for name in (MODEL, ADAPTER, TASK)]
    if not paths[0].is_dir() and not paths[1].is_dir():
        paths = [folders.model_folder(home)]
    present = [path for path in paths if path.exists()]
    known_hashes = {} if opened is None else {opened.path: opened.hashes}
    return {
        f"{path.name}/{n}": digest
        for path in present
        for n, digest in hashes(path, known_hashes.get(path)).items()
    }


def _look_at(
    source: Path,
    model: BasePredictor,
    read: TableReadingOptions,
    top: int | None,
    flat: bool,
    windows: bool,
) -> list[str]:
    """Refuse bad rows before anything is computed, and columns with the names of those of an
    answer; returns the latter, or nothing for JSON Lines."""
    names: list[str] = []
    for values, example in rows_to_answer(source, model, read, Counts()):
        if flat and not names and example is not None:
            names = names_of(example, model, top, windows)
        if used := clashing([*names, *([WINDOWS] if windows else [])], values, top):
            raise name_taken(", ".join(used), str(source))
    if flat and not names:  # no row can be answered
        values = {role: ["a", "b"] if role in LISTS else "a" for role in model.task_type.roles}
        names = names_of(model.task_type.of_value(values, ""), model, top, windows)
    return names


def _kept(staged: Path, about: str, say: Say) -> tuple[int, int]:
    """The number of whole rows of an earlier run of the same command, and of those without an
    answer; the first line of the file identifies the command. A torn last line is cut off."""
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


def _as_lines(staged: Path, target: Path) -> None:
    with new_text(target) as file:
        file.writelines(_answered(staged))


def _as_table(
    staged: Path, target: Path, delimiter: str, names: Sequence[str], top: int | None
) -> None:
    """The columns of the rows, then those of an answer; `names` where no row has one."""
    rows: list[dict[str, Any]] = [{}, {}]
    for line in _answered(staged):
        for columns, cells in zip(rows, flat_row(json.loads(line), top), strict=True):
            columns |= dict.fromkeys(cells)
    with new_text(target, newline="") as file:
        columns, answer = rows
        writer = csv.DictWriter(file, [*columns, *(answer or names)], delimiter=delimiter)
        writer.writeheader()
        for line in _answered(staged):
            values, cells = flat_row(json.loads(line), top)
            writer.writerow(values | cells)


def _answered(staged: Path) -> Iterator[str]:
    with staged.open(encoding="utf-8") as file:
        yield from islice(file, 1, None)
