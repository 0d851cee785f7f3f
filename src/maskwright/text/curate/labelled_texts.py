"""Read texts that the user labelled with two classes, good and bad."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import ConfigError, DataError, MaskwrightError, near
from maskwright.text.curate.step import CurationBatch
from maskwright.text.tables import files
from maskwright.text.tables.examples import TextExample
from maskwright.text.tables.infer import infer
from maskwright.text.tables.prepare import build

FEWEST = 20  # examples of each class
GOOD_NAMES = {"good", "yes", "keep", "true", "1", "positive", "pos", "high", "accept", "ok"}
BAD_NAMES = {"bad", "no", "drop", "false", "0", "negative", "neg", "low", "reject", "remove", "-1"}


@dataclass(frozen=True)
class LabelledTexts:
    """B labelled texts.

    `good`: (B,) whether each is good; `label`: the name of the class of good texts."""

    batch: CurationBatch
    good: NDArray[np.bool_]
    label: str


def read_labelled_texts(path: str, label: str, where: str) -> LabelledTexts:
    """Read the examples of a labelled file.

    Args:
        label: the class of good texts; "": infer it from its name (yes, good, keep, ...).
        where: the name of the step, for messages.

    Raises:
        UsageError, DataError: the file cannot be read, is no classification of texts into two
            classes, has too few of one, or a text in both.
        ConfigError: the class of good texts cannot be inferred.
    """
    try:
        rows = files.load(path)
        task = infer(rows)
        examples = build(rows, task)
    except MaskwrightError as error:
        if error.where is None or path not in error.where:
            raise error.under(f"{where}.examples, {path}: ") from None
        raise
    every = itertools.chain.from_iterable(examples.parts.values())
    singles = [example for example in every if isinstance(example, TextExample)]
    names = () if examples.labels is None else examples.labels.names
    if len(names) != 2 or not all(isinstance(single.label, int) for single in singles):
        raise DataError(
            "the examples are not texts of two classes",
            where=f"{where}.examples, {path}",
            found=f"{task.name} with {len(names)} classes" if names else task.name,
            wanted="a column of texts and one of labels such as yes and no",
            do="label each text with one of two names",
        )
    number = names.index(good_label(names, label, where))
    good = np.array([single.label == number for single in singles])
    for count, name in ((int(good.sum()), names[number]), (int((~good).sum()), names[1 - number])):
        if count < FEWEST:
            raise DataError(
                "too few examples to learn from",
                where=f"{where}.examples, {path}",
                found=f"{count} of {name!r}",
                wanted=f"{FEWEST} or more of each class; some hundred are better",
                do="label more texts",
            )
    by_text: dict[str, TextExample] = {}
    for single in singles:
        previous = by_text.setdefault(single.text, single)
        if previous.label != single.label:
            raise DataError(
                "one text is in both classes",
                where=f"{previous.where} and {single.where}",
                found=single.text[:80],
                wanted="one label for each text",
                do="correct one of the labels",
            )
    texts = [single.text for single in singles]
    ids = [single.where for single in singles]
    return LabelledTexts(CurationBatch(np.arange(len(texts)), ids, texts), good, names[number])


def good_label(names: tuple[str, ...] | list[str], label: str, where: str) -> str:
    """Return the class of good texts: `label`, or for "" the one inferred from `names`.

    Raises:
        ConfigError: there is no class `label`, or it cannot be inferred.
    """
    if label and label not in names:
        raise ConfigError(
            "there is no such class",
            where=f"{where}.good_label",
            found=repr(label),
            wanted=" or ".join(names),
            do=near(label, names),
        )
    if label:
        return label
    good = [name for name in names if name.casefold() in GOOD_NAMES]
    bad = [name for name in names if name.casefold() in BAD_NAMES]
    if len(good) == 1 and len(good) + len(bad) == len(names):
        return good[0]
    raise ConfigError(
        "which class is that of good texts is unclear",
        where=f"{where}.good_label",
        found=", ".join(names[:10]),
        wanted="the class of texts to keep",
        do=f"set good_label = {names[0]!r}, or another of them",
    )
