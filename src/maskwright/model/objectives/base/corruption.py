"""Corruption by key: of the tokens of rows, and of texts whose lengths change.

Random numbers depend on keys (purpose, seed, epoch, row) only, so the corruption of a row does not
depend on the batch, process or resumption of a run. There are four units of selection:

    token   single positions                                     Devlin et al. 2018, 3.1
    word    whole words                                          BERT's whole-word release, 2019
    span    runs of whole words, length ~ Geometric(0.2) ≤ 10    Joshi et al. 2019, 3.1
    ngram   runs of n ≤ 3 whole words, p(n) ~ 1/n                Lan et al. 2019, 4.1

Exactly max(1, round(rate * maskable)) positions of each row are chosen, except by `choose_words`,
which comes as close to that number as whole words allow, and by `choose_each` and `draw_tokens`.

For corruption that changes their lengths, texts are ragged arrays:

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

from maskwright.base import randomness
from maskwright.base.errors import IncompatibleError
from maskwright.base.randomness import key, uniforms
from maskwright.text.store.rows import Rows, spread

if TYPE_CHECKING:
    import torch


# ------------------------------------------------------------------------------ rows
Array = np.ndarray


def budget(maskable: Array, rate: float) -> Array:
    """Return the number (B,) of positions to choose: max(1, round(rate * maskable)), or 0 if no
    position is maskable."""
    available = maskable.sum(axis=1)
    return np.where(available > 0, np.maximum(1, np.rint(rate * available)), 0).astype(np.int64)


def choose_tokens(maskable: Array, rate: float, keys: Array) -> Array:
    """Return (B, T) bool: exactly `budget` positions, all maskable ones equally likely."""
    draws = randomness.ranks(keys, maskable.shape[1])
    draws[~maskable] = np.iinfo(np.uint64).max
    return _smallest(draws, budget(maskable, rate))


def choose_each(maskable: Array, rate: float, keys: Array) -> Array:
    """Return (B, T) bool: each maskable position with probability `rate`, at least one per row."""
    draws = randomness.uniforms(keys, maskable.shape[1])
    draws[~maskable] = 2.0
    chosen = draws < rate
    is_empty = maskable.any(axis=1) & ~chosen.any(axis=1)
    chosen[is_empty, draws[is_empty].argmin(axis=1)] = True
    return chosen


def draw_tokens(maskable: Array, rate: float, keys: Array) -> Array:
    """Return (B, T) bool: `budget` positions sampled with replacement, as in ELECTRA's code, so
    that fewer are chosen."""
    counts, available = budget(maskable, rate), maskable.sum(axis=1)
    size = int(counts.max(initial=0))
    draws = randomness.integers(keys, size, np.maximum(1, available)[:, None])
    row, number = np.nonzero(np.arange(size) < counts[:, None])
    positions = np.argsort(~maskable, axis=1, kind="stable")[row, draws[row, number]]
    chosen = np.zeros_like(maskable)
    chosen[row, positions] = True
    return chosen


def choose_words(maskable: Array, starts_word: Array, rate: float, keys: Array) -> Array:
    """Return (B, T) bool: random whole words, as close to `budget` as possible, at least one."""
    words = word_numbers(maskable, starts_word)
    draws = randomness.uniforms(keys, maskable.shape[1])
    by_word = np.take_along_axis(draws, words, axis=1)
    by_word[~maskable] = 2.0
    order = np.argsort(by_word, axis=1, kind="stable")
    ordered = np.take_along_axis(words, order, axis=1)
    length = maskable.shape[1]
    positions = np.arange(1, length + 1)
    ends_word = np.ones_like(maskable)
    ends_word[:, :-1] = ordered[:, 1:] != ordered[:, :-1]
    is_maskable = np.take_along_axis(maskable, order, axis=1)
    # Difference from the budget at the end of each word in random order; cut at the smallest.
    counts = budget(maskable, rate)
    distance = np.where(ends_word & is_maskable, np.abs(positions - counts[:, None]), length * 2)
    cut = np.where(counts > 0, distance.argmin(axis=1) + 1, 0)
    chosen = np.zeros_like(maskable)
    np.put_along_axis(chosen, order, positions <= cut[:, None], axis=1)
    return chosen & maskable


def choose_spans(
    maskable: Array, starts_word: Array, rate: float, keys: Array, *, lengths: Array
) -> tuple[Array, Array]:
    """Choose spans of whole words, the last one truncated so that `budget` is met exactly.

    Args:
        lengths: (L,) unnormalised probabilities of 1 … L words (`geometric` etc.).

    Returns:
        chosen (B, T) bool, and span (B, T) int64: the number of the span of each position.
    """
    rows, length = maskable.shape
    words, segment = word_numbers(maskable, starts_word), np.cumsum(~maskable, axis=1)
    counts = budget(maskable, rate)
    chosen = np.zeros_like(maskable)
    span = np.zeros((rows, length), dtype=np.int64)
    row_indices, attempt = np.arange(rows), 0
    while (remaining := counts - chosen.sum(axis=1)).any():
        # Random numbers depend on the attempt, not on the rest of the batch.
        size = _drawn_lengths(randomness.uniforms_at(keys, np.full(rows, 2 * attempt)), lengths)
        draw = randomness.uniforms_at(keys, np.full(rows, 2 * attempt + 1))
        # Any position that is still free is as likely as another to be where a run begins.
        available = maskable & ~chosen
        available_count = np.cumsum(available, axis=1)
        number = (draw * available_count[:, -1]).astype(np.int64) + 1
        anchor = ((available_count == number[:, None]) & available).argmax(axis=1)
        first_word = words[row_indices, anchor][:, None]
        in_span = (words >= first_word) & (words < first_word + size[:, None])
        # A span may not continue after a separator, in another document.
        new_positions = in_span & available & (segment == segment[row_indices, anchor][:, None])
        new_positions &= np.cumsum(new_positions, axis=1) <= remaining[:, None]
        chosen |= new_positions
        attempt += 1
        span[new_positions] = attempt
    return chosen, span


def geometric(stop: float, longest: int) -> Array:
    """Return unnormalised probabilities of the lengths 1 … longest, (1 - stop)^(l-1)."""
    return (1 - stop) ** np.arange(longest)


def uniform(longest: int) -> Array:
    """Return unnormalised probabilities of the lengths 1 … longest, all equal."""
    return np.ones(longest)


def inverse(longest: int) -> Array:
    """Return unnormalised probabilities of the lengths 1 … longest, 1/l."""
    return 1 / np.arange(1, longest + 1)


def replace_tokens(
    tokens: Array,
    chosen: Array,
    unit: Array,
    keys: Array,
    *,
    mask_id: int,
    ordinary: Array,
    mask_rate: float,
    random_rate: float,
) -> Array:
    """Replace chosen positions by the mask (with probability `mask_rate`) or a random token
    (`random_rate`), or keep them.

    Args:
        unit: (B, T) int64; positions of a row with equal numbers share one decision.
        ordinary: ids of the random tokens, without special ones.
    """
    length = tokens.shape[1]
    row, positions = np.nonzero(chosen)
    keys, originals = keys[row], tokens[row, positions]
    decision = randomness.uniforms_at(keys, unit[row, positions] % length)
    draws = randomness.uniforms_at(keys, length + positions)
    random_tokens = ordinary[(draws * len(ordinary)).astype(np.int64)]
    random_or_original = np.where(decision < mask_rate + random_rate, random_tokens, originals)
    replaced = tokens.copy()
    replaced[row, positions] = np.where(decision < mask_rate, mask_id, random_or_original)
    return replaced


def word_numbers(maskable: Array, starts_word: Array) -> Array:
    """Return (B, T) int64 the number of the word of each position; a separator is a word."""
    after_gap = np.zeros_like(maskable)
    after_gap[:, 1:] = ~maskable[:, :-1]
    begins = starts_word | ~maskable | after_gap
    begins[:, 0] = True
    return np.cumsum(begins, axis=1) - 1


def _smallest(draws: Array, count: Array) -> Array:
    """Return (B, T) bool: the `count[b]` smallest draws of each row b."""
    largest_chosen = np.take_along_axis(
        np.sort(draws, axis=1), np.maximum(count - 1, 0)[:, None], axis=1
    )
    return (draws <= largest_chosen) & (count > 0)[:, None]


def _drawn_lengths(draws: Array, chances: Array) -> Array:
    """Sample lengths 1 … L with probabilities proportional to `chances`, by inverse transform."""
    edges = np.cumsum(chances / chances.sum())
    return 1 + np.minimum(np.searchsorted(edges, draws, side="right"), len(chances) - 1)


# ------------------------------------------------------------------------------ texts
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


def budget_of_lengths(lengths: Array, rate: float) -> Array:
    """Return the number (S,) of items of each text to choose: max(1, round(rate * length))."""
    counts = np.maximum(1, np.rint(rate * lengths)).astype(np.int64)
    return np.minimum(counts, lengths) if rate > 0 else np.zeros_like(lengths)
