"""Answers of a fine-tuned model to the rows of a file, in the order of the rows.

A file may have the columns of the training data or, for tasks of one text, be plain text with a
line for each; cells of a csv may spell lists. Rows are read, answered and written by portions, so
that files of any size do.

    predictions.jsonl   {…the row…, "prediction": {"label": "good", "score": 0.93}}
    predictions.csv     …the row…, predicted_label, predicted_score

The file is there whole or not at all. What was answered before a kill waits beside it and is gone
on with when the same file is asked of the same model again.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import json
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from maskwright.corpus.files import RegularFile, Source, find
from maskwright.corpus.ledger import Counts, Ledger
from maskwright.corpus.read import text_blocks
from maskwright.corpus.reading import Reading
from maskwright.corpus.table import OTHERS
from maskwright.errors import DataError, MaskwrightError, OutputError, UsageError, near
from maskwright.finetune import result
from maskwright.finetune.hashes import hashes
from maskwright.finetune.predict import PORTION, Predictor, home, load, portions
from maskwright.finetune.several import Several, load_several
from maskwright.lock import Lock
from maskwright.pretrain import checkpoints
from maskwright.report.say import Say, quiet
from maskwright.strict_json import parse
from maskwright.tasks import table
from maskwright.tasks.how_read import AS_IT_COMES, WHERE, HowRead
from maskwright.tasks.list_cells import row_with_lists
from maskwright.tasks.parts import names_beside

PREDICTION, PREDICTED = "prediction", "predicted_"
# What is written by the name of the file: what stands between columns, None for JSON Lines.
WRITTEN = {".jsonl": None, ".csv": ",", ".tsv": "\t"}
# What is read of a row as a list.
LISTS = ("tokens", "choices")
HEAD = 1 << 16
SAID = 3  # portions of which it is told what did not fit


def predict_file(
    folder: Path | str,
    source: Path | str,
    stream: TextIO,
    *,
    also: Sequence[Path | str] = (),
    columns: Mapping[str, Sequence[str]] | None = None,
    read: HowRead = AS_IT_COMES,
    top: int | None = None,
    skip: int = 0,
    say: Say = quiet,
) -> int:
    """Write each row of `source` but the first `skip` with its answer to `stream`, as JSON Lines;
    returns how many.

    Args:
        also: further models with the same body; an answer then has a part for each model, by the
            name of its folder.
        columns: role -> the column of this file, where it is not that of the training data.
        read: how the file is read; with `on_bad=skip` a row that cannot be answered has a
            prediction of null.
        top: the best so many answers for each row, as a list.
        say: is told how many rows could not be answered.

    Raises:
        UsageError: no such file, tables beside plain text, or a column that is called as the answer
            is.
        DataError: a row without the columns that are read.
    """
    model, counts = _loaded(folder, also, columns), Counts()
    count, bad = _predict(model, Path(source), stream, read, top, skip, say, counts)
    _say_bad(bad, counts, say)
    return count


@contextlib.contextmanager
def piped(stream: BinaryIO, read: HowRead = AS_IT_COMES) -> Iterator[Path]:
    """What a pipe brings, as a file for as long as it is needed: a table where `read` says
    something of one, JSON Lines where it begins with a brace, JSON where it begins as an array of
    objects or is an array, else lines of text."""
    with tempfile.TemporaryDirectory() as folder:
        head = stream.read(HEAD)
        path = Path(folder) / f"standard-input{'.csv' if _of_tables(read) else _ending(head)}"
        with path.open("wb") as file:
            file.write(head)
            shutil.copyfileobj(stream, file)
        try:
            yield path
        except MaskwrightError as error:
            if error.where is not None:
                error.where = error.where.replace(str(path), "standard input")
                error.args = (error.render(),)
            raise


def _of_tables(read: HowRead) -> list[str]:
    """What is set of `read` that only tables have."""
    usual = Reading()
    names = [n for n in ("separator", "quoting") if getattr(read.reading, n) != getattr(usual, n)]
    return [*names, *(["header"] if read.header else [])]


def _ending(head: bytes) -> str:
    """What the name of a file that begins so would end with."""
    head = head.removeprefix(codecs.BOM_UTF8)
    if head.lstrip()[:1] == b"{":
        return ".jsonl"
    if re.match(rb"\s*\[\s*\{", head):
        return ".json"
    if head.lstrip()[:1] == b"[" and len(head) < HEAD:
        with contextlib.suppress(DataError, UnicodeDecodeError):
            parse(head.decode("utf-8"))
            return ".json"
    return ".txt"


def _predict(
    model: Predictor | Several,
    source: Path,
    stream: TextIO,
    read: HowRead,
    top: int | None,
    skip: int,
    say: Say,
    counts: Counts,
) -> tuple[int, int]:
    """How many rows were written, and how many of these without an answer."""
    count = bad = 0
    cut: list[str] = []
    for rows in portions(islice(_rows(source, model, read, counts), skip, None)):
        asked = [example for _, example in rows if example is not None]
        bad += len(rows) - len(asked)
        answers = iter(model.answers(asked, top, cut.append) if asked else [])
        for values, example in rows:
            answer = None if example is None else next(answers)
            row = {**{name: _finite(value) for name, value in values.items()}, PREDICTION: answer}
            stream.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
            count += 1
        stream.flush()
    for line in cut[:SAID]:
        say(f"note: {line}")
    if len(cut) > SAID:
        say(f"note: and so on, in {len(cut) - SAID:,} more portions of {PORTION:,} rows")
    return count, bad


def _say_bad(bad: int, counts: Counts, say: Say) -> None:
    if bad:
        say(f"{bad:,} rows could not be answered; their prediction is null")
    if counts.rejected:
        reasons = ", ".join(f"{n:,} × {reason}" for reason, n in counts.rejected_by.items())
        say(f"{counts.rejected:,} rows could not be read and have no line among the predictions, "
            f"the first: {counts.first_rejected} ({reasons})")  # fmt: skip


def _loaded(
    folder: Path | str, also: Sequence[Path | str], columns: Mapping[str, Sequence[str]] | None
) -> Predictor | Several:
    model = load_several([folder, *also]) if also else load(folder)
    if columns and columns.keys() == {model.kind.alone}:
        return replace(model, columns=dict(columns))
    for role, names in (columns or {}).items():
        if role not in model.columns or len(names) != len(model.columns[role]):
            raise UsageError("not a column that the model reads", where="--column",
                             found=f"{role}={', '.join(names)}",
                             wanted=", ".join(model.columns))  # fmt: skip
    return replace(model, columns={**model.columns, **(columns or {})})


def _finite(value: Any) -> Any:
    """The value; nothing in place of a float that JSON has no word for, as an empty cell of a
    parquet file may be."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_predictions(
    folder: Path | str,
    source: Path | str,
    out: Path | str,
    *,
    also: Sequence[Path | str] = (),
    columns: Mapping[str, Sequence[str]] | None = None,
    read: HowRead = AS_IT_COMES,
    top: int | None = None,
    say: Say = quiet,
) -> int:
    """`predict_file` into the new file `out`, a csv, a tsv or JSON Lines by its name; returns how
    many. All of the source is looked at before anything is computed.

    Raises:
        UsageError: the file is there already, or of another kind, and as `predict_file`.
        OutputError: it cannot be written.  StoppedError: another process is writing it.
    """
    folder, source, out = Path(folder), Path(source), Path(out)
    delimiter = WRITTEN.get(out.suffix.lower(), "")
    if delimiter == "":
        raise UsageError("no such kind of file is written", where=out, found=out.suffix or "none",
                         wanted=", ".join(WRITTEN), do="choose another name for --out")  # fmt: skip
    if out.exists():
        raise UsageError("the file is there already", where=out, do="choose another --out")
    if not out.parent.is_dir():
        raise OutputError("the predictions cannot be written", where=out,
                          found="no such folder", do="choose a folder that is there")  # fmt: skip
    with Lock(lock := out.with_name(f".tmp-{out.name}.lock")):
        try:
            return _written(folder, source, out, delimiter, also, columns, read, top, say)
        finally:
            lock.unlink(missing_ok=True)


def _written(
    folder: Path,
    source: Path,
    out: Path,
    delimiter: str | None,
    also: Sequence[Path | str],
    columns: Mapping[str, Sequence[str]] | None,
    read: HowRead,
    top: int | None,
    say: Say,
) -> int:
    staged, whole = out.with_name(f".tmp-{out.name}.jsonl"), out.with_name(f".tmp-{out.name}")
    if out.exists():  # another process has just written it
        raise UsageError("the file is there already", where=out, do="choose another --out")
    try:
        about: dict[str, Any] = {"model": _model(folder), "source": hashes(source)}
        about |= {"also": [_model(Path(each)) for each in also]} if also else {}
        about |= {"columns": dict(columns)} if columns else {}
        about |= {} if read == AS_IT_COMES else {"read": repr(read)}
        about |= {} if top is None else {"top": top}
        model, counts = _loaded(folder, also, columns), Counts()
        kept, kept_bad = _kept(staged, json.dumps(about))
        names = _look_at(source, model, read, top, delimiter is not None)
        with staged.open("a", encoding="utf-8") as stream:
            count, bad = _predict(model, source, stream, read, top, kept, say, counts)
        if delimiter is None:
            _as_lines(staged, whole)
        else:
            _as_table(staged, whole, delimiter, names)
        whole.replace(out)
        staged.unlink()
    except MaskwrightError:  # the same would be met again
        for path in (staged, whole):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise
    except OSError as error:
        raise OutputError("the predictions cannot be written", where=out, found=error,
                          do="make room, then give the same command: what was answered is kept",
                          ) from error  # fmt: skip
    _say_bad(kept_bad + bad, counts, say)
    return kept + count


def _model(folder: Path) -> dict[str, str]:
    """The hashes of what answers, without what else lies in the folder."""
    whole = home(folder)
    parts = [whole / name for name in (checkpoints.MODEL, result.ADAPTER, checkpoints.TASK)]
    if not parts[0].is_dir():
        parts = [checkpoints.model_folder(whole)]
    there = [part for part in parts if part.exists()]
    return {f"{part.name}/{n}": digest for part in there for n, digest in hashes(part).items()}


def _kept(staged: Path, about: str) -> tuple[int, int]:
    """How many rows of an earlier try are whole, and how many of these without an answer; the first
    line of the file says of what. What a kill has torn is cut off."""
    first, null = f"{about}\n".encode(), f'"{PREDICTION}": null}}\n'.encode()
    count = bad = 0
    with staged.open("a+b") as file:
        file.seek(0)
        if file.readline() != first:
            file.truncate(0)
            file.write(first)
            return 0, 0
        whole = len(first)
        for line in file:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            count, bad = count + 1, bad + line.endswith(null)  # the last value of a row
        file.truncate(whole)
    return count, bad


def _answered(staged: Path) -> Iterator[str]:
    with staged.open(encoding="utf-8") as file:
        yield from islice(file, 1, None)


def _as_lines(staged: Path, target: Path) -> None:
    with target.open("w", encoding="utf-8") as file:
        file.writelines(_answered(staged))


def _look_at(
    source: Path, model: Predictor | Several, read: HowRead, top: int | None, flat: bool
) -> list[str]:
    """Refuse now what would be refused after hours: bad rows, and in a table columns that are
    called as those of an answer; their names are given, none for lines."""
    names: list[str] = []
    for values, example in _rows(source, model, read, Counts()):
        if flat and not names and example is not None:
            names = _names_of(example, model, top)
        if taken := sorted(set(names) & values.keys()):
            raise _taken(", ".join(taken), str(source))
    if flat and not names:  # no row can be answered
        values = {role: ["a", "b"] if role in LISTS else "a" for role in model.kind.roles}
        names = _names_of(model.kind.of_value(values, ""), model, top)
    return names


def _names_of(example: Any, model: Predictor | Several, top: int | None) -> list[str]:
    """The columns of an answer, which are the same for all rows."""
    return [name for name, _ in _cells(PREDICTED, model.answers([example], top)[0])]


def _as_table(staged: Path, target: Path, delimiter: str, answer: Sequence[str]) -> None:
    """The columns of the rows, then those of an `answer`."""
    names: dict[str, None] = {}
    for line in _answered(staged):
        names |= dict.fromkeys(name for name in json.loads(line) if name != PREDICTION)
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*names, *answer], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(_flat(json.loads(line)) for line in _answered(staged))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a csv: the answer in columns of its own, lists as JSON."""
    answer = row.pop(PREDICTION)
    told = {} if answer is None else dict(_cells(PREDICTED, answer))
    if taken := sorted(told.keys() & row.keys()):
        raise _taken(", ".join(taken))
    row |= told
    return {
        name: json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
        for name, value in row.items()
    }


def _cells(name: str, answer: Any) -> Iterator[tuple[str, Any]]:
    """The columns of an answer: those of several models stand one after the other."""
    if not isinstance(answer, dict):
        yield name.removesuffix("_"), answer
        return
    for part, value in answer.items():
        yield from _cells(f"{name}{part}_", value)


def _taken(name: str, where: str | None = None) -> UsageError:
    return UsageError("the file has a column of that name already", where=where, found=name,
                      do="rename it, or the answer would take its place")  # fmt: skip


def _rows(
    source: Path, model: Predictor | Several, read: HowRead, counts: Counts
) -> Iterator[tuple[dict[str, Any], Any]]:
    """(values of the row, the example) of a table, or of lines of plain text; None is the example
    of a bad row, where those are passed over. `counts` takes what the reading met."""
    skips = read.reading.on_bad == "skip"
    files = names_beside(find(source)[0])[0]
    names = [name for role in model.columns.values() for name in role]
    if len({file.kind == "text" for file in files}) > 1:
        raise UsageError("tables and plain text in one folder", where=source,
                         found=", ".join(file.shown for file in files[:10]),
                         wanted="one or the other")  # fmt: skip
    if any(file.kind == "text" for file in files):
        if len(names) > 1 and model.kind.alone:
            names = [model.kind.alone]
        if len(names) > 1:
            raise UsageError("lines of plain text are one text each", where=source,
                             wanted=f"a table with the columns {', '.join(names)}")  # fmt: skip
        if idle := _of_tables(read):
            raise UsageError("option has no effect here", where=f"{WHERE} {idle[0]}",
                             found="lines of text, one text each",
                             do="leave it out, or name a .csv or .tsv file")  # fmt: skip
        for file in files:
            for place, (number, text) in enumerate(_lines(file, read.reading, counts)):
                where = f"{file.shown}, line {number}"
                if not place:
                    _refuse_header(text, names[0], where)
                yield {names[0]: text}, _tried(skips, model.kind.of_value, text, where)
        return
    for row in table.read(files, read.reading, read.header, counts=counts):
        if PREDICTION in row.values:
            raise _taken(PREDICTION, row.where)
        known = row.values.keys()
        missing = next((n for n in names if not {n, n.partition(".")[0]} & known), None)
        if missing is not None:
            alone = model.kind.alone
            other = f", or --column {alone}=NAME for the answer to one text" if alone else ""
            raise DataError("a column that the model reads is not there", where=row.where,
                            found=", ".join(row.values), wanted=repr(missing),
                            do=f"say which it is: --column ROLE=NAME ({near(missing, row.values)})"
                            f"{other}")  # fmt: skip
        yield dict(row.values), _tried(skips, _example, model, row)


def _refuse_header(line: str, name: str, where: str) -> None:
    """Refuse a first line of text that names the column of the texts: a table begins so.

    Raises:
        DataError: it does.
    """
    cells = [cell.strip().strip('"') for mark in OTHERS for cell in line.split(mark)]
    if name in cells:
        raise DataError(
            "the first line names columns, as that of a table",
            where=where,
            found=repr(line[:80]),
            wanted=f'lines of text, one text each, or JSON lines such as {{"{name}": …}}',
            do="name a .csv or .tsv file; of a pipe say what separates the columns: "
            "--read separator=,",
        )


def _example(model: Predictor | Several, row: table.Row) -> Any:
    listed = [model.columns[role] for role in LISTS if role in model.columns]
    alone = [names[0] for names in listed if len(names) == 1]
    return model.kind.of_row(row_with_lists(row, alone), model.columns)


def _tried(skips: bool, make: Callable[..., Any], *given: Any) -> Any:
    """The example that `make` makes; None of a bad one, if those are passed over."""
    try:
        return make(*given)
    except DataError as error:
        if skips:
            return None
        if "on_bad=skip" not in (error.do or ""):
            raise
        # Rows that are learned from would be dropped; here they stay.
        raise error.advising("correct the row, or pass it over (--read on_bad=skip): its "
                             "prediction is then null") from None  # fmt: skip


def _lines(file: Source, reading: Reading, counts: Counts) -> Iterator[tuple[int, str]]:
    """The numbered lines of a text file of any encoding and compression that the corpus reader
    takes."""
    ledger = Ledger(reading, counts, None)
    with RegularFile(file) as opened:
        for block in text_blocks(opened, file, ledger):
            for number, line in block.lines():
                counts.documents += 1
                yield number, line
        counts.hashes[file.shown] = opened.finish()
    ledger.finish("the file has 0 lines", "line")
