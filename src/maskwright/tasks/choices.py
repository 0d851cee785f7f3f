"""Multiple choice: a question and its choices as pairs, and one score for each pair back.

    (q, [a, b, c])  ->  (q, a) (q, b) (q, c)  ->  scores s_a s_b s_c  ->  the largest

Each pair is a row of its own, as in BERT's SWAG (Devlin et al. 2019, section 4.4); a softmax over
the choices of a question makes the loss. Questions may have different numbers of choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.errors import DataError, IncompatibleError
from maskwright.tasks.windows import Cuts, Row, fit_pair
from maskwright.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Choices:
    """A question with its choices in order; checked when it is made.

    Attributes:
        answer: the number of the right choice, from 0; None where it is not known.
        where: file and row, for messages.
    Raises:
        DataError: fewer than two choices, two the same, a blank one, or an answer that is none.
    """

    question: str
    choices: tuple[str, ...]
    answer: int | None = None
    where: str = ""

    def __post_init__(self) -> None:
        where = self.where or None
        if len(self.choices) < 2:
            raise DataError("a question without a choice", where=where,
                            found=f"{len(self.choices)} choices", wanted="2 or more")  # fmt: skip
        for number, choice in enumerate(self.choices):
            if not choice.strip():
                raise DataError("a blank choice", where=where, found=f"choice {number}")
            if choice in self.choices[:number]:
                raise DataError("two choices that are the same", where=where, found=repr(choice),
                                do="correct the row: no score could tell them apart")  # fmt: skip
        if self.answer is not None and (
            type(self.answer) is not int or not 0 <= self.answer < len(self.choices)
        ):
            raise DataError("an answer that is no choice", where=where, found=repr(self.answer),
                            wanted=f"0 to {len(self.choices) - 1}")  # fmt: skip


def pairs(rows: Sequence[Choices]) -> tuple[list[tuple[str, str]], NDArray[np.int64]]:
    """((question, choice) …, owners): the pairs of all rows in order, and each pair's row (P,)."""
    flat = [(row.question, choice) for row in rows for choice in row.choices]
    return flat, np.repeat(np.arange(len(rows)), [len(row.choices) for row in rows])


def answers(rows: Sequence[Choices]) -> NDArray[np.int64]:
    """(R,) the right choices.

    Raises:
        DataError: a row whose answer is not known.
    """
    for number, row in enumerate(rows):
        if row.answer is None:
            raise DataError("the answer is not known", where=row.where or f"row {number}")
    return np.array([row.answer for row in rows], np.int64)


def by_row(scores: NDArray[np.floating], owners: NDArray[np.int64]) -> NDArray[np.float64]:
    """Scores of pairs (P,) as (R, C), C the most choices of a row; -inf where a row has fewer.

    Raises:
        IncompatibleError: not one score for each pair.  DataError: a score that is not a number.
    """
    if scores.shape != owners.shape:
        raise IncompatibleError("not one score for each pair", found=scores.shape,
                                wanted=owners.shape)  # fmt: skip
    if np.isnan(scores).any():
        raise DataError("a score that is not a number", where=f"pair {np.isnan(scores).argmax()}")
    counts = np.bincount(owners)
    place = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    table = np.full((len(counts), int(counts.max(initial=0))), -np.inf)
    table[owners, place] = scores
    return table


def best(scores: NDArray[np.floating], owners: NDArray[np.int64]) -> NDArray[np.int64]:
    """(R,) the choice with the highest score of each row; of equal ones the first."""
    table = by_row(scores, owners)
    return table.argmax(axis=1) if table.size else np.zeros(0, np.int64)


def encode(
    tokenizer: Tokenizer, rows: Sequence[Choices], length: int
) -> tuple[list[Row], NDArray[np.int64], Cuts]:
    """(framed pairs, owners, what was cut); of a pair that is too long the longer text loses its
    last tokens.

    Raises:
        ConfigError: no room beside the special tokens.
    """
    flat, owners = pairs(rows)
    first = tokenizer.encode_batch(question for question, _ in flat)
    second = tokenizer.encode_batch(choice for _, choice in flat)
    framed, cuts = [], Cuts()
    for a, b in zip(first, second, strict=True):
        framed.append(fit_pair(tokenizer, a.tolist(), b.tolist(), length))
        whole = len(a) + len(b)
        cuts += Cuts.of(whole, whole - framed[-1].cut)
    return framed, owners, cuts
