"""Answers of a fine-tuned model to the rows of a file, in the order of the rows.

A file may have the columns of the training data or, for tasks of one text, be plain text with a
line for each. Rows are read, answered and written by portions, so that files of any size do.

    told.jsonl   {…the row…, "prediction": {"label": "good", "score": 0.93}}
    told.csv     …the row…, predicted_label, predicted_score

The file is there whole or not at all. What was answered before a kill waits beside it and is gone
on with when the same file is asked of the same model again.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from maskwright.corpus.files import RegularFile, Source, find
from maskwright.corpus.ledger import Counts, Ledger
from maskwright.corpus.read import text_blocks
from maskwright.corpus.reading import Reading
from maskwright.errors import DataError, OutputError, UsageError, near
from maskwright.finetune import run
from maskwright.finetune.hashes import hashes
from maskwright.finetune.predict import Predictor, load, portions
from maskwright.finetune.several import Several, load_several
from maskwright.tasks import table
from maskwright.tasks.parts import names_beside

PREDICTION, PREDICTED = "prediction", "predicted_"


def predict_file(
    folder: Path, source: Path, stream: TextIO, *, also: Sequence[Path] = (), skip: int = 0
) -> int:
    """Write each row of `source` but the first `skip` with its answer to `stream`, as JSON Lines;
    returns how many.

    Args:
        also: further models with the same body; an answer then has a part for each model, by the
            name of its folder.

    Raises:
        UsageError: no such file, tables beside plain text, or a column that is called as the answer
            is.
        DataError: a row without the columns that are read.
    """
    model = load_several([folder, *also]) if also else load(folder)
    count = 0
    for rows in portions(islice(_rows(source, model), skip, None)):
        answers = model.answers([example for _, example in rows])
        for (values, _), answer in zip(rows, answers, strict=True):
            row = {**{name: _finite(value) for name, value in values.items()}, PREDICTION: answer}
            stream.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
            count += 1
        stream.flush()
    return count


def _finite(value: Any) -> Any:
    """The value; nothing in place of a float that JSON has no word for, as an empty cell of a
    parquet file may be."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_predictions(folder: Path, source: Path, out: Path, *, also: Sequence[Path] = ()) -> int:
    """`predict_file` into the new file `out`, a csv or JSON Lines by its name; returns how many.

    Raises:
        UsageError: the file is there already, and as `predict_file`.
        OutputError: it cannot be written.
    """
    if out.exists():
        raise UsageError("the file is there already", where=out, do="choose another --out")
    staged, whole = out.with_name(f".tmp-{out.name}.jsonl"), out.with_name(f".tmp-{out.name}")
    try:
        about: dict[str, Any] = {"model": _model(folder), "source": hashes(source)}
        about |= {"also": [_model(each) for each in also]} if also else {}
        kept = _kept(staged, json.dumps(about))
        with staged.open("a", encoding="utf-8") as stream:
            count = kept + predict_file(folder, source, stream, also=also, skip=kept)
        (_as_csv if out.suffix == ".csv" else _as_lines)(staged, whole)
        whole.replace(out)
        staged.unlink()
    except Exception as error:
        for path in (staged, whole):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OutputError(
                "the predictions cannot be written",
                where=out,
                found=error,
                do="choose a folder that is there and has room",
            ) from error
        raise
    return count


def _model(folder: Path) -> dict[str, str]:
    """The hashes of what answers, without what else lies in the folder."""
    parts = [folder / name for name in (run.MODEL, run.ADAPTER, run.TASK)]
    there = [part for part in parts if part.exists()] or [folder]
    return {f"{part.name}/{n}": digest for part in there for n, digest in hashes(part).items()}


def _kept(staged: Path, about: str) -> int:
    """How many answers of an earlier try are whole; the first line of the file says of what."""
    lines: list[bytes] = []
    if staged.is_file():
        lines = staged.read_bytes().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()  # torn by the kill
    if not lines or lines[0].decode("utf-8").rstrip("\n") != about:
        lines = [f"{about}\n".encode()]
    staged.write_bytes(b"".join(lines))
    return len(lines) - 1


def _answered(staged: Path) -> Iterator[str]:
    with staged.open(encoding="utf-8") as file:
        yield from islice(file, 1, None)


def _as_lines(staged: Path, target: Path) -> None:
    with target.open("w", encoding="utf-8") as file:
        file.writelines(_answered(staged))


def _as_csv(staged: Path, target: Path) -> None:
    names: dict[str, None] = {}
    for line in _answered(staged):
        names |= dict.fromkeys(_flat(json.loads(line)))
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(names))
        writer.writeheader()
        writer.writerows(_flat(json.loads(line)) for line in _answered(staged))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a csv: the answer in columns of its own, lists as JSON."""
    told = dict(_cells(PREDICTED, row.pop(PREDICTION)))
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


def _rows(source: Path, model: Predictor | Several) -> Iterator[tuple[dict[str, Any], Any]]:
    """(values of the row, the example) of a table, or of lines of plain text."""
    files = names_beside(find(source)[0])[0]
    names = [name for role in model.columns.values() for name in role]
    if len({file.kind == "text" for file in files}) > 1:
        raise UsageError("tables and plain text in one folder", where=source,
                         found=", ".join(file.shown for file in files[:10]),
                         wanted="one or the other")  # fmt: skip
    if any(file.kind == "text" for file in files):
        if len(names) > 1:
            raise UsageError("lines of plain text are one text each", where=source,
                             wanted=f"a table with the columns {', '.join(names)}")  # fmt: skip
        for file in files:
            for number, text in enumerate(_lines(file), start=1):
                yield {names[0]: text}, model.kind.of_value(text, f"{file.shown}, line {number}")
        return
    for row in table.read(files):
        if PREDICTION in row.values:
            raise _taken(PREDICTION, row.where)
        known = row.values.keys()
        missing = next((n for n in names if not {n, n.partition(".")[0]} & known), None)
        if missing is not None:
            raise DataError("a column that the model reads is not there", where=row.where,
                            found=", ".join(row.values), wanted=repr(missing),
                            do=f"near: {near(missing, row.values)}")  # fmt: skip
        yield dict(row.values), model.kind.of_row(row, model.columns)


def _lines(file: Source) -> Iterator[str]:
    """The lines of a text file of any encoding and compression that the corpus reader takes."""
    ledger = Ledger(Reading(), Counts(), None)
    with RegularFile(file) as opened:
        for block in text_blocks(opened, file, ledger):
            yield from block.text.removesuffix("\n").split("\n")
