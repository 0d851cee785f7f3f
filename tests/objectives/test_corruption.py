"""Choosing and replacing: exact counts, whole words, whole spans, 80/10/10, keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maskwright.base import randomness
from maskwright.model.objectives.base import corruption

ROWS, LENGTH = 200, 64
GEOMETRIC = corruption.geometric(0.2, 10)


def keys(epoch: int = 0, purpose: str = "mask") -> np.ndarray:
    return randomness.key(purpose, 7, np.full(ROWS, epoch), np.arange(ROWS))


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Maskable and starts-a-word tables with special tokens at both ends and in the middle."""
    generator = np.random.default_rng(0)
    maskable = np.ones((ROWS, LENGTH), dtype=bool)
    maskable[:, [0, 30, 31, LENGTH - 1]] = False
    starts = generator.random((ROWS, LENGTH)) < 0.6
    return maskable, starts


def test_tokens_are_chosen_in_the_exact_number() -> None:
    maskable, _ = rows()
    chosen = corruption.choose_tokens(maskable, 0.15, keys())
    assert not (chosen & ~maskable).any()
    assert (chosen.sum(axis=1) == 9).all()  # round(0.15 * 60)


def test_one_token_is_still_a_target_and_no_token_is_none() -> None:
    maskable = np.zeros((2, 8), dtype=bool)
    maskable[0, 3] = True
    spans, _ = corruption.choose_spans(maskable, maskable, 0.15, keys()[:2], lengths=GEOMETRIC)
    tokens = corruption.choose_tokens(maskable, 0.15, keys()[:2])
    for chosen in (tokens, corruption.choose_words(maskable, maskable, 0.15, keys()[:2]), spans):
        assert chosen.sum() == 1 and chosen[0, 3]


def spans_of_one(maskable: np.ndarray, rate: float, many: randomness.Keys) -> np.ndarray:
    return corruption.choose_spans(maskable, maskable, rate, many, lengths=np.ones(1))[0]


@pytest.mark.parametrize("choose", [corruption.choose_tokens, spans_of_one])
def test_every_position_is_equally_likely(choose: Any) -> None:
    maskable = np.ones((20_000, 20), dtype=bool)
    maskable[:, 5:9] = False
    many = randomness.key("mask", 1, 0, np.arange(20_000))
    share = choose(maskable, 0.25, many).mean(axis=0)
    assert (share[5:9] == 0).all()
    assert np.abs(share[maskable[0]] - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 20_000)


def word_is_whole(chosen: np.ndarray, maskable: np.ndarray, starts: np.ndarray) -> bool:
    words = corruption.word_numbers(maskable, starts)
    for row in range(len(chosen)):
        for word in set(words[row][maskable[row]]):
            inside = (words[row] == word) & maskable[row]
            if chosen[row][inside].any() != chosen[row][inside].all():
                return False
    return True


def test_words_are_chosen_whole_and_near_the_budget() -> None:
    maskable, starts = rows()
    chosen = corruption.choose_words(maskable, starts, 0.15, keys())
    assert not (chosen & ~maskable).any()
    assert word_is_whole(chosen, maskable, starts)
    assert abs(chosen.sum(axis=1).mean() - 9) < 0.25
    # The control: single tokens are not whole words, and the check sees it.
    assert not word_is_whole(corruption.choose_tokens(maskable, 0.15, keys()), maskable, starts)


def test_spans_meet_the_budget_exactly_and_stay_between_separators() -> None:
    maskable, starts = rows()
    chosen, span = corruption.choose_spans(maskable, starts, 0.15, keys(), lengths=GEOMETRIC)
    assert (chosen.sum(axis=1) == 9).all()
    assert not (chosen & ~maskable).any()
    for row in range(ROWS):
        for number in set(span[row][chosen[row]]):
            where = np.flatnonzero((span[row] == number) & chosen[row])
            assert where.max() < 30 or where.min() > 31


def test_spans_in_rows_with_little_text_are_whole_words() -> None:
    """But for the last one, which the budget cuts; 500 of 512 positions are padding."""
    maskable, starts = np.zeros((ROWS, 512), dtype=bool), np.zeros((ROWS, 512), dtype=bool)
    maskable[:, 1:13] = True
    starts[:, 1:13:2] = True  # six words of two pieces
    lengths = corruption.inverse(3)
    chosen, span = corruption.choose_spans(maskable, starts, 0.5, keys(), lengths=lengths)
    assert (chosen.sum(axis=1) == 6).all()
    words = corruption.word_numbers(maskable, starts)
    for row in range(ROWS):
        last = span[row].max()
        for number in range(1, last):
            inside = chosen[row] & (span[row] == number)
            for word in set(words[row][inside]):
                assert chosen[row][(words[row] == word) & maskable[row]].all()


def test_all_of_a_row_can_be_chosen() -> None:
    maskable, starts = rows()
    lengths = corruption.uniform(3)
    chosen, _ = corruption.choose_spans(maskable, starts, 1.0, keys(), lengths=lengths)
    assert np.array_equal(chosen, maskable)


@pytest.mark.parametrize(
    ("chances", "shares"),
    [
        (corruption.uniform(3), [1 / 3, 1 / 3, 1 / 3]),
        (corruption.inverse(3), [6 / 11, 3 / 11, 2 / 11]),  # ALBERT, 4.1
        (corruption.geometric(0.5, 3), [4 / 7, 2 / 7, 1 / 7]),
    ],
)
def test_span_lengths_follow_their_chances(chances: np.ndarray, shares: list[float]) -> None:
    draws = (np.arange(110_000) + 0.5) / 110_000
    lengths = corruption._drawn_lengths(draws, chances)
    assert np.bincount(lengths)[1:] / 110_000 == pytest.approx(shares, abs=1e-4)


def test_each_position_by_itself_is_chosen_with_its_probability() -> None:
    """The number in a row is binomial: mean np and variance np(1 - p), where a budget has none."""
    maskable = np.ones((4_000, 48), dtype=bool)
    maskable[:, :2] = False
    many = randomness.key("mask", 1, 0, np.arange(len(maskable)))
    chosen = corruption.choose_each(maskable, 0.15, many)
    assert not (chosen & ~maskable).any() and chosen.any(axis=1).all()
    counts, n = chosen.sum(axis=1), 46
    assert abs(counts.mean() - n * 0.15) < 4 * counts.std() / np.sqrt(len(counts))
    assert abs(counts.var() / (n * 0.15 * 0.85) - 1) < 0.1
    assert np.array_equal(corruption.choose_each(maskable[7:9], 0.15, many[7:9]), chosen[7:9])
    # The control: a budget takes as many of every row.
    assert corruption.choose_tokens(maskable, 0.15, many).sum(axis=1).var() == 0
    short = np.zeros((50, 48), dtype=bool)
    short[:, 3] = True
    few = corruption.choose_each(short, 0.15, many[:50])
    assert few.sum(axis=1).tolist() == [1] * 50, "a row with one place has it chosen"
    assert not corruption.choose_each(short & False, 0.15, many[:50]).any()


def test_draws_with_replacement_fall_together() -> None:
    maskable = np.ones((4_000, 128), dtype=bool)
    maskable[:, :2] = False
    many = randomness.key("mask", 1, 0, np.arange(len(maskable)))
    chosen = corruption.draw_tokens(maskable, 0.15, many)
    assert not (chosen & ~maskable).any()
    counts, n, k = chosen.sum(axis=1), 126, 19
    assert counts.max() <= k
    expected = n * (1 - (1 - 1 / n) ** k)
    assert abs(counts.mean() - expected) < 4 * counts.std() / np.sqrt(len(counts))
    share = chosen[:, 2:].mean(axis=0)
    assert np.abs(share - expected / n).max() < 5 * np.sqrt(0.14 * 0.86 / len(chosen))
    part = corruption.draw_tokens(maskable[7:9], 0.15, many[7:9])
    assert np.array_equal(part, chosen[7:9])
    # The control: without replacement all 19 are there.
    assert (corruption.choose_tokens(maskable, 0.15, many).sum(axis=1) == k).all()


def replaced(unit: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    tokens = np.full((2_000, LENGTH), 50)
    chosen = np.zeros(tokens.shape, dtype=bool)
    chosen[:, :10] = True
    many = randomness.key("replace", 1, 0, np.arange(len(tokens)))
    each = np.broadcast_to(np.arange(LENGTH), tokens.shape) if unit is None else unit
    how = {"mask_id": 4, "ordinary": np.arange(5, 100), "mask_rate": 0.8, "random_rate": 0.1}
    new = corruption.replace_tokens(tokens, chosen, each, many, **how)
    return tokens, chosen, new


def test_eighty_ten_ten_within_binomial_bounds() -> None:
    tokens, chosen, new = replaced()
    n = chosen.sum()
    assert (new[~chosen] == tokens[~chosen]).all()
    masked = (new[chosen] == 4).mean()
    kept = (new[chosen] == 50).mean()
    assert abs(masked - 0.8) < 4 * np.sqrt(0.16 / n)
    assert abs(kept - (0.1 + 0.1 / 95)) < 4 * np.sqrt(0.09 / n)
    assert new[chosen][new[chosen] != 4].min() >= 5  # never another special token


def test_a_span_shares_one_decision() -> None:
    unit = np.broadcast_to(np.arange(LENGTH) // 5, (2_000, LENGTH))
    _, _, new = replaced(unit)
    masked = new == 4
    assert (masked[:, 0] == masked[:, 4]).all() and (masked[:, 5] == masked[:, 9]).all()
    assert (masked[:, 0] != masked[:, 5]).any()
