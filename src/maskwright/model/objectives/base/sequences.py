"""Ragged arrays of texts, for corruption that changes their lengths.

    rows   [CLS] a a a [SEP] [CLS] b b [SEP]  ->  tokens   a a a b b …     one flat array (N,)
           [CLS] c c c c c c [SEP] pad            lengths  3 2 6           per text (S,)

There is no padding between `texts_of` and `pack`: all operations work on flat arrays. The random
number of an item depends on its key (purpose, seed, epoch, row, document, item) only, so that the
corruption of a text does not depend on the rest of the batch.

Letters: N items of all texts, S texts, B rows, T positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from maskwright.base.errors import IncompatibleError
from maskwright.base.randomness import key, uniforms
from maskwright.text.store.rows import Rows, spread

if TYPE_CHECKING:
    import torch

Array = np.ndarray


@dataclass(frozen=True)
class Origin:
    """The positions of texts in a batch: row (S,), and number within the row (S,) from 1."""

    rows: Array
    numbers: Array


@dataclass(frozen=True)
class Sequences:
    """Concatenated `tokens` (N,) of all texts, and the `lengths` (S,) of the texts."""

    tokens: Array
    lengths: Array

    def where(self, keep: Array) -> Sequences:
        """Return the texts with only the items for which `keep` (N,) is True."""
        lengths = np.bincount(owners(self.lengths)[keep], minlength=len(self.lengths))
        return Sequences(self.tokens[keep], lengths)

    def ended(self, token: int) -> Sequences:
        """Return the texts with `token` appended to each."""
        return Sequences(np.insert(self.tokens, np.cumsum(self.lengths), token), self.lengths + 1)

    def shifted(self, start: int) -> Sequences:
        """Return the decoder input for these texts: each shifted right by one, after `start`."""
        tokens = np.roll(self.tokens, 1)
        tokens[first_places(self.lengths)[self.lengths > 0]] = start
        return replace(self, tokens=tokens)


@dataclass(frozen=True)
class Texts:
    """The documents of a batch of rows.

    Attributes:
        framed: the documents with special tokens.
        region: for each item of `framed`, 0 before the text, 1 in it, 2 after it.
        origin: the positions of the documents in the batch.
        starts_sentence: bool for each item of `plain`; None if the rows do not record it.
        counters: the seed and arrays (S,) for the keys of random numbers.
    """

    framed: Sequences
    region: Array
    origin: Origin
    starts_sentence: Array | None
    counters: tuple[Any, ...]

    @property
    def plain(self) -> Sequences:
        """The texts without special tokens."""
        return self.framed.where(self.region == 1)

    def frame(self, texts: Sequences) -> Sequences:
        """Return `texts` with the special tokens that surround the originals."""
        special = self.region != 1
        tokens = np.concatenate([self.framed.tokens[special], texts.tokens])
        region = np.concatenate([self.region[special], np.ones_like(texts.tokens)])
        owner = np.concatenate([owners(self.framed.lengths)[special], owners(texts.lengths)])
        order = np.lexsort((region, owner))
        return Sequences(tokens[order], np.bincount(owner, minlength=len(texts.lengths)))

    def draws(self, lengths: Array, purpose: str, *counters: int) -> Array:
        """Return a random number in [0, 1) for each of the `lengths[s]` items of each text s."""
        owner = owners(lengths)
        seed, *own = self.counters
        counters_of_item = [counter[owner] for counter in own]
        return uniforms(key(purpose, seed, *counters_of_item, *counters, spread(lengths)), 1)[:, 0]


def documents_of(rows: Rows) -> tuple[Sequences, Origin]:
    """Return the documents of `rows` with special tokens, in order, and their positions."""
    row, positions = np.nonzero(rows.documents)
    number = rows.documents[row, positions]
    begins = np.ones(len(row), dtype=bool)
    begins[1:] = (row[1:] != row[:-1]) | (number[1:] != number[:-1])
    firsts = np.flatnonzero(begins)
    lengths = np.diff(firsts, append=len(row))
    return Sequences(rows.tokens[row, positions], lengths), Origin(row[firsts], number[firsts])


def texts_of(rows: Rows, epochs: Array, seed: int) -> Texts:
    """Prepare the documents of `rows` for corruption.

    Raises:
        IncompatibleError: a special token stands inside a text, as in rows of pairs.
    """
    framed, origin = documents_of(rows)
    real = rows.documents != 0
    ordinary = ~rows.special[real]
    owner = owners(framed.lengths)
    total = np.bincount(owner[ordinary], minlength=len(framed.lengths))
    # Number of ordinary tokens of its document up to and including each item.
    text_items = np.cumsum(ordinary) - first_places(total)[owner]
    region = np.where(ordinary, 1, np.where(text_items == 0, 0, 2))
    if ((region == 2) & (text_items != total[owner])).any():
        raise IncompatibleError(
            "a row has a special token inside a text",
            where="rows.kind",
            found="rows of several parts",
            wanted="documents, stream or blocks",
            do="--set rows.kind=documents",
        )
    starts_sentence = rows.starts_sentence
    return Texts(
        framed=framed,
        region=region,
        origin=origin,
        starts_sentence=None if starts_sentence is None else starts_sentence[real][ordinary],
        counters=(seed, epochs[origin.rows], rows.ids[origin.rows], origin.numbers),
    )


def pack(
    texts: Sequences, origin: Origin, shape: tuple[int, int], pad: int
) -> dict[str, torch.Tensor | None]:
    """Pack texts into rows: return `tokens`, `positions` and `documents` of `shape` (B, T), as in a
    `Batch`, with the texts of each row in order from the left.

    Positions and documents are None if every row is one full text.
    """
    import torch  # here, since the rest of this module is used without torch

    offsets = first_places(texts.lengths)
    start = offsets
    if len(offsets):
        start = offsets - offsets[np.searchsorted(origin.rows, origin.rows)]
    begins = np.repeat(origin.rows * shape[1] + start, texts.lengths)
    flat_positions = begins + spread(texts.lengths)
    tokens = np.full(shape, pad, dtype=np.int64)
    positions = np.zeros(shape, dtype=np.int64)
    documents = np.zeros(shape, dtype=np.int32)
    tokens.reshape(-1)[flat_positions] = texts.tokens
    positions.reshape(-1)[flat_positions] = spread(texts.lengths)
    documents.reshape(-1)[flat_positions] = np.repeat(origin.numbers, texts.lengths)
    single = bool((documents == 1).all())
    return {
        "tokens": torch.from_numpy(tokens),
        "positions": None if single else torch.from_numpy(positions),
        "documents": None if single else torch.from_numpy(documents),
    }


# ------------------------------------------------------------------------------- arithmetic of runs
def owners(lengths: Array) -> Array:
    """Return the index (N,) of the text that each item belongs to: [2, 3] -> [0, 0, 1, 1, 1]."""
    return np.repeat(np.arange(len(lengths)), lengths)


def first_places(lengths: Array) -> Array:
    """Return the index (S,) of the first item of each text: [2, 3] -> [0, 2]."""
    return np.cumsum(lengths) - lengths


def ranks(draws: Array, lengths: Array) -> Array:
    """Return the rank (N,) of each item's random number within its text, 0 for the smallest."""
    ranks_of_items = np.empty(len(draws), dtype=np.int64)
    ranks_of_items[np.lexsort((draws, owners(lengths)))] = spread(lengths)
    return ranks_of_items


def compositions(draws: Array, totals: Array, num_parts: Array) -> Array:
    """Return the sizes (sum of `num_parts`,) of random compositions of each of `totals` into
    `num_parts` parts of at least 1, all equally likely. A total of 0 has parts of size 0.

    Args:
        draws: a random number for each of the `totals[s]` items of each text.
    """
    steps = spread(totals)
    begins = ranks(np.where(steps == 0, -1.0, draws), totals) < np.repeat(num_parts, totals)
    number = np.cumsum(begins) - 1  # parts of totals of 0 are not counted here
    empty = np.cumsum(np.where(totals == 0, num_parts, 0))
    return np.bincount(number + np.repeat(empty, totals), minlength=int(num_parts.sum()))


def budget(lengths: Array, rate: float) -> Array:
    """Return the number (S,) of items of each text to choose: max(1, round(rate * length))."""
    counts = np.maximum(1, np.rint(rate * lengths)).astype(np.int64)
    return np.minimum(counts, lengths) if rate > 0 else np.zeros_like(lengths)
