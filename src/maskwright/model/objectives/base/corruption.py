"""Choosing positions and replacing tokens, for a whole batch at once.

All draws come from keys (purpose, seed, epoch, row), so a row is corrupted alike whatever batch,
process or resumed run it appears in. Four units of choice:

    token   positions independently                              Devlin et al. 2018, 3.1
    word    whole words, so that no piece gives its word away    BERT's whole-word release, 2019
    span    runs of whole words, length ~ Geometric(0.2) ≤ 10    Joshi et al. 2019, 3.1
    ngram   runs of n ≤ 3 whole words, p(n) ~ 1/n                Lan et al. 2019, 4.1

Every row gets exactly max(1, round(rate * maskable)) positions; only whole words cannot be cut, so
`word` comes as near to that number as its last word allows, and `choose_each` lets chance decide.
"""

from __future__ import annotations

import numpy as np

from maskwright.base import randomness

Array = np.ndarray


def budget(maskable: Array, rate: float) -> Array:
    """Positions to choose per row (B,): max(1, round(rate * maskable)), and 0 where none can be."""
    available = maskable.sum(axis=1)
    return np.where(available > 0, np.maximum(1, np.rint(rate * available)), 0).astype(np.int64)


def choose_tokens(maskable: Array, rate: float, keys: Array) -> Array:
    """(B, T) bool: exactly the budget, every maskable position equally likely."""
    draws = randomness.ranks(keys, maskable.shape[1])
    draws[~maskable] = np.iinfo(np.uint64).max
    return _smallest(draws, budget(maskable, rate))


def choose_each(maskable: Array, rate: float, keys: Array) -> Array:
    """(B, T) bool: each maskable position with probability `rate`, at least one per row."""
    draws = randomness.uniforms(keys, maskable.shape[1])
    draws[~maskable] = 2.0
    chosen = draws < rate
    without_any = maskable.any(axis=1) & ~chosen.any(axis=1)
    chosen[without_any, draws[without_any].argmin(axis=1)] = True
    return chosen


def draw_tokens(maskable: Array, rate: float, keys: Array) -> Array:
    """(B, T) bool: positions drawn with replacement, as in ELECTRA's code, so that fewer are
    chosen."""
    counts, available = budget(maskable, rate), maskable.sum(axis=1)
    size = int(counts.max(initial=0))
    draws = randomness.integers(keys, size, np.maximum(1, available)[:, None])
    row, number = np.nonzero(np.arange(size) < counts[:, None])
    positions = np.argsort(~maskable, axis=1, kind="stable")[row, draws[row, number]]
    chosen = np.zeros_like(maskable)
    chosen[row, positions] = True
    return chosen


def choose_words(maskable: Array, starts_word: Array, rate: float, keys: Array) -> Array:
    """(B, T) bool: whole words in random order, as near to the budget as possible, at least one."""
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
    usable = np.take_along_axis(maskable, order, axis=1)
    # At each word's end: how far is the count from the budget? The nearest end is the cut.
    counts = budget(maskable, rate)
    miss = np.where(ends_word & usable, np.abs(positions - counts[:, None]), length * 2)
    cut = np.where(counts > 0, miss.argmin(axis=1) + 1, 0)
    chosen = np.zeros_like(maskable)
    np.put_along_axis(chosen, order, positions <= cut[:, None], axis=1)
    return chosen & maskable


def choose_spans(
    maskable: Array, starts_word: Array, rate: float, keys: Array, *, lengths: Array
) -> tuple[Array, Array]:
    """Runs of whole words, the last one cut so that the budget is met exactly.

    Args:
        lengths: (L,) the chances of 1 … L words, but for a factor (`geometric` and such).

    Returns:
        chosen (B, T) bool, and span (B, T) int64: the number of the run a position belongs to.
    """
    rows, length = maskable.shape
    words, segment = word_numbers(maskable, starts_word), np.cumsum(~maskable, axis=1)
    counts = budget(maskable, rate)
    chosen = np.zeros_like(maskable)
    span = np.zeros((rows, length), dtype=np.int64)
    lines, attempt = np.arange(rows), 0
    while (remaining := counts - chosen.sum(axis=1)).any():
        # Draws are numbered by the attempt: what else is in the batch changes nothing.
        size = _drawn_lengths(randomness.uniforms_at(keys, np.full(rows, 2 * attempt)), lengths)
        draw = randomness.uniforms_at(keys, np.full(rows, 2 * attempt + 1))
        # Any position that is still free is as likely as another to be where a run begins.
        free = maskable & ~chosen
        which = np.cumsum(free, axis=1)
        number = (draw * which[:, -1]).astype(np.int64) + 1
        anchor = ((which == number[:, None]) & free).argmax(axis=1)
        first_word = words[lines, anchor][:, None]
        run = (words >= first_word) & (words < first_word + size[:, None])
        # A run may not leap over a separator into another document.
        new = run & free & (segment == segment[lines, anchor][:, None])
        new &= np.cumsum(new, axis=1) <= remaining[:, None]
        chosen |= new
        attempt += 1
        span[new] = attempt
    return chosen, span


def geometric(stop: float, longest: int) -> Array:
    """Chances of the lengths 1 … longest: P(l) proportional to (1 - stop)^(l-1)."""
    return (1 - stop) ** np.arange(longest)


def uniform(longest: int) -> Array:
    """Chances of the lengths 1 … longest: all alike."""
    return np.ones(longest)


def inverse(longest: int) -> Array:
    """Chances of the lengths 1 … longest: P(l) proportional to 1/l."""
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
    """80/10/10: chosen positions become the mask, a random ordinary token, or stay as they are.

    Args:
        unit: (B, T) int64, positions with equal numbers in a row share one decision.
        ordinary: ids that may be drawn; special tokens are never put into text.
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
    """(B, T) int64 in [0, T): the word of each position; a separator is a word and ends one."""
    after_gap = np.zeros_like(maskable)
    after_gap[:, 1:] = ~maskable[:, :-1]
    begins = starts_word | ~maskable | after_gap
    begins[:, 0] = True
    return np.cumsum(begins, axis=1) - 1


def _smallest(draws: Array, count: Array) -> Array:
    """(B, T) bool: the `count[b]` smallest draws of each row."""
    largest_chosen = np.take_along_axis(
        np.sort(draws, axis=1), np.maximum(count - 1, 0)[:, None], axis=1
    )
    return (draws <= largest_chosen) & (count > 0)[:, None]


def _drawn_lengths(draws: Array, chances: Array) -> Array:
    """Lengths 1 … L, each by its chance."""
    edges = np.cumsum(chances / chances.sum())
    return 1 + np.minimum(np.searchsorted(edges, draws, side="right"), len(chances) - 1)
