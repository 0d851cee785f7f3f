"""Answers of a fine-tuned model: for a file, line by line, or for texts in Python.

    load(folder).predict(["a text", …])  ->  [{"label": "good", "score": 0.93}, …]

Order is kept whatever is read together. A file may have the columns of the training data or, for
tasks of one text, be plain text with a line for each. Several labels come as a list, numbers as
`{"score": 3.2}`, as `pipeline` of the reference library gives them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.adapters.folder import load as attach
from maskwright.checkpoint import pretrained
from maskwright.corpus.files import RegularFile, Source, find
from maskwright.corpus.ledger import Counts, Ledger
from maskwright.corpus.read import text_blocks
from maskwright.corpus.reading import Reading as TextReading
from maskwright.errors import DataError, IncompatibleError, OutputError, UsageError, near
from maskwright.finetune import run
from maskwright.finetune.encode import encode
from maskwright.finetune.examples import Reading
from maskwright.finetune.tune import scores
from maskwright.objectives.supervised import Options, Problem, Supervised
from maskwright.pretrain import build
from maskwright.strict_json import parse
from maskwright.tasks import table
from maskwright.tasks.build import text_of
from maskwright.tokenizer.tokenizer import Tokenizer

PORTION = 2048  # examples that are read, encoded and answered together
Answer = dict[str, Any]


@dataclass(frozen=True)
class Predictor:
    """A model with a head for whole texts, and how it is asked.

    Attributes:
        columns: what the texts of an example are called in a file; one or two.
        labels: names of the classes; empty for numbers.
    """

    objective: Supervised
    tokenizer: Tokenizer
    reading: Reading
    columns: tuple[str, ...]
    length: int
    labels: tuple[str, ...]

    @property
    def problem(self) -> Problem:
        return self.objective.options.problem

    def predict(self, texts: Iterable[str | tuple[str, ...]]) -> list[Answer]:
        """An answer for each text, or for each pair of texts, in their order.

        Raises:
            DataError: an example with another number of texts than the model was trained on.
        """
        rows = [(each,) if isinstance(each, str) else tuple(each) for each in texts]
        for number, row in enumerate(rows, start=1):
            if len(row) != len(self.columns):
                raise DataError(
                    "another number of texts than the model was trained on",
                    where=f"example {number}",
                    found=len(row),
                    wanted=f"{len(self.columns)} ({', '.join(self.columns)})",
                )
        return [answer for part in _portions(rows) for answer in self._answers(part)]

    def _answers(self, rows: Sequence[tuple[str, ...]]) -> list[Answer]:
        config = self.objective.product.config
        none = np.zeros(len(rows), dtype=np.int64)
        given, _ = encode(rows, none, self.tokenizer, self.length,
                          segments=run.has_segments(config))  # fmt: skip
        told = scores(self.objective, given, self.reading)
        return list(_said(told, self.problem, self.labels))


def load(folder: Path | str) -> Predictor:
    """The fine-tuned model in `folder`: what `finetune` wrote, or a model folder with one head for
    whole texts.

    Raises:
        UsageError: no such folder.  IncompatibleError: another kind of model.
    """
    folder = Path(folder)
    path = folder / run.MODEL if (folder / run.MODEL).is_dir() else folder
    loaded = pretrained.load(path, dtype=torch.float32)
    heads = loaded.config.heads
    if loaded.tokenizer is None or len(heads) != 1 or heads[0].kind != "sequence":
        raise IncompatibleError(
            "this model gives no labels to texts",
            where=path,
            found=", ".join(f"a {h.kind} head" for h in heads) or "no head",
            wanted="one head for whole texts, and a tokenizer",
            do="fine-tune it first: maskwright finetune MODEL --data FILE",
        )
    named = {theirs: ours for ours, theirs in run.PROBLEM_TYPES.items()}
    usual: Problem = "regression" if heads[0].labels == 1 else "single"
    problem = named.get(loaded.about.problem_type or "", usual)
    task: dict[str, Any] = {"columns": ["text"], "length": run.longest(loaded.config)}
    if (folder / run.TASK).is_file():
        task |= parse((folder / run.TASK).read_text(encoding="utf-8"), folder / run.TASK)
    taken = 0
    if task.get("attached"):
        taken = attach(loaded.model, folder / run.ADAPTER).settings.positions
    reading = run.reading_of(loaded.config, loaded.tokenizer, loaded.extra)
    labels = loaded.about.labels or tuple(f"LABEL_{i}" for i in range(heads[0].labels))
    objective = Supervised(
        loaded.model, Options(problem=problem), build.vocabulary(loaded.tokenizer)
    )
    return Predictor(
        objective.eval(),
        loaded.tokenizer,
        replace(reading, alone=taken > 0),
        tuple(task["columns"]),
        min(int(task["length"]), run.longest(loaded.config) - taken),
        () if problem == "regression" else labels,
    )


def predict_file(folder: Path, source: Path, stream: TextIO) -> int:
    """Write each row of `source` with its answer to `stream`, as JSON Lines; returns how many.

    Raises:
        UsageError: no such file.  DataError: a row without the columns that are read.
    """
    model, count = load(folder), 0
    for rows in _portions(_rows(source, model.columns)):
        answers = model.predict([texts for _, texts in rows])
        for (values, _), answer in zip(rows, answers, strict=True):
            stream.write(json.dumps({**values, "prediction": answer}, ensure_ascii=False) + "\n")
            count += 1
    return count


def write_predictions(folder: Path, source: Path, out: Path) -> int:
    """`predict_file` into the new file `out`, there whole or not at all; returns how many.

    Raises:
        UsageError: the file is there already.  OutputError: it cannot be written.
    """
    if out.exists():
        raise UsageError("the file is there already", where=out, do="choose another --out")
    staged = out.with_name(f".tmp-{out.name}")
    try:
        with staged.open("w", encoding="utf-8") as stream:
            count = predict_file(folder, source, stream)
        staged.replace(out)
    except OSError as error:
        raise OutputError("the predictions cannot be written", where=out, found=error,
                          do="choose a folder that is there and has room") from error  # fmt: skip
    finally:
        with contextlib.suppress(OSError):
            staged.unlink(missing_ok=True)
    return count


def _rows(
    source: Path, columns: tuple[str, ...]
) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """(values of the row, the texts to read) of a table, or of lines of plain text."""
    files = find(source)[0]
    if any(file.kind == "text" for file in files):
        if len(columns) > 1:
            raise UsageError("lines of plain text are one text each", where=source,
                             wanted=f"a table with the columns {', '.join(columns)}")  # fmt: skip
        for file in files:
            for text in _lines(file):
                yield {columns[0]: text}, (text,)
        return
    for row in table.read(files):
        missing = next((name for name in columns if name not in row.values), None)
        if missing is not None:
            raise DataError("a column that the model reads is not there", where=row.where,
                            found=", ".join(row.values), wanted=repr(missing),
                            do=f"near: {near(missing, row.values)}")  # fmt: skip
        yield dict(row.values), tuple(text_of(row, name) for name in columns)


def _lines(file: Source) -> Iterator[str]:
    """The lines of a text file of any encoding and compression that the corpus reader takes."""
    ledger = Ledger(TextReading(), Counts(), None)
    with RegularFile(file) as opened:
        for block in text_blocks(opened, file, ledger):
            yield from block.text.removesuffix("\n").split("\n")


def _portions(rows: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(rows)
    while part := list(itertools.islice(left, PORTION)):
        yield part


def _said(told: NDArray[np.float32], problem: Problem, labels: tuple[str, ...]) -> Iterator[Answer]:
    if problem == "regression":
        yield from ({"score": round(float(value), 6)} for value in told[:, 0])
        return
    if problem == "multi":
        for row in 1.0 / (1.0 + np.exp(-told.astype(np.float64))):
            chosen = [i for i, p in enumerate(row) if p > 0.5]
            yield {"labels": [labels[i] for i in chosen],
                   "scores": [round(float(row[i]), 6) for i in chosen]}  # fmt: skip
        return
    shifted = np.exp(told - told.max(1, keepdims=True), dtype=np.float64)
    for row in shifted / shifted.sum(1, keepdims=True):
        best = int(row.argmax())
        yield {"label": labels[best], "score": round(float(row[best]), 6)}
