"""Selection of positions and replacement of tokens, vectorised over a batch.

Random numbers depend on keys (purpose, seed, epoch, row) only, so the corruption of a row does not
depend on the batch, process or resumption of a run. There are four units of selection:

    token   single positions                                     Devlin et al. 2018, 3.1
    word    whole words                                          BERT's whole-word release, 2019
    span    runs of whole words, length ~ Geometric(0.2) ≤ 10    Joshi et al. 2019, 3.1
    ngram   runs of n ≤ 3 whole words, p(n) ~ 1/n                Lan et al. 2019, 4.1

Exactly max(1, round(rate * maskable)) positions of each row are chosen, except by `choose_words`,
which comes as close to that number as whole words allow, and by `choose_each` and `draw_tokens`.
"""

from __future__ import annotations

import numpy as np

from maskwright.base import randomness

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


def replace(
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
