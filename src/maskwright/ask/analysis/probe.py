"""Probe what the layers of a model know: a page, `results.json`, and printed tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from maskwright.ask.analysis import layers, word_senses
from maskwright.ask.analysis.hidden_states import ProbedModel
from maskwright.ask.analysis.pages import show_layers, show_pooling, show_senses
from maskwright.base.errors import MaskwrightError, UsageError
from maskwright.base.report import document
from maskwright.base.terminal import printer
from maskwright.text.tables import files, splits
from maskwright.text.tables.infer import infer
from maskwright.text.tables.labelled_texts import PAIR
from maskwright.text.tables.layout import Dataset, Task
from maskwright.text.tables.prepare import build, prepare
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, TableReadingOptions
from maskwright.text.tables.rows import ALL
from maskwright.text.tables.survey import left_out_findings

DIVISION = splits.SplitOptions(validation=0.1, test=0.1)
ITEMS = 10_000


def probe(
    model: Path | str,
    out: Path | str,
    *,
    data: Path | str | None = None,
    word: str | None = None,
    task: str | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    items: int | None = None,
    read: TableReadingOptions = DEFAULT_OPTIONS,
    stream: TextIO | None = None,
) -> Path:
    """Probe each layer of `model` for the labels in `data`, or for the meanings of a `word`.

    Args:
        data: labelled texts; with a `word`, a csv of texts and meanings. None: built-in sentences
            with "bank".
        items: the maximum number of words or texts; None: 10,000, and all pairs.

    Returns:
        The path of the page.
    """
    if items is not None and items < 2:
        raise UsageError("too few to look at", where="--items", found=items, wanted="2 or more")
    say, out = printer(stream), Path(out)
    if data is None or word is not None:
        ignored = {
            "--task": task is not None,
            "--items": items is not None,
            "--column": bool(columns) and data is None,
            "--read": read != DEFAULT_OPTIONS,
        }
        for option in (name for name, is_given in ignored.items() if is_given):
            raise UsageError(
                "option has no effect here",
                where=option,
                do="leave it out, or give labelled --data without a --word",
            )
        if word is not None and not word.strip():
            raise UsageError("no word to look at", where="--word", found=repr(word))
    document.reserve(out)
    subject = ProbedModel.of(Path(model))
    data = None if data is None else Path(data)
    if data is None or word is not None:
        return show_senses(subject, out, word or word_senses.WORD, data, columns, say)
    examples = _pairs(data, columns, task, read)
    if examples is None:
        examples = prepare(data, columns=columns, task=task, division=DIVISION, read=read)
    for line in (
        *examples.task.lines(),
        *(finding.line() for finding in left_out_findings(examples)),
    ):
        say(line)
    if _is_alike(examples.task):
        return show_pooling(subject, out, layers.compare_pooling(subject, examples, items), say)
    items = ITEMS if items is None else items
    return show_layers(subject, out, layers.probe_layers(subject, examples, items=items), say)


def _pairs(
    data: Path,
    columns: Mapping[str, Sequence[str]] | None,
    task: str | None,
    read: TableReadingOptions,
) -> Dataset | None:
    """Read all pairs of texts with similarity scores as one part, since nothing is trained on them;
    None if the data are of another task."""
    loaded = files.load(data, header=read.header, reading=read.reading, learned=False)
    rows = [row for part_rows in loaded.parts.values() for row in part_rows]
    loaded = replace(loaded, parts={ALL: rows})
    try:
        pair_task = infer(loaded, columns, task, read.no_label)
    except MaskwrightError:
        return None  # `prepare` reports the error
    if not _is_alike(pair_task):
        return None
    return build(loaded, pair_task, read=read)


def _is_alike(task: Task) -> bool:
    """Whether the task is a similarity score of two texts, for which nothing is trained."""
    return task.columns.layout is PAIR and task.shape.label == "number"
