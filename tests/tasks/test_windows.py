"""Truncation and windows: by hand, against slow definitions, and with faults put in."""

from __future__ import annotations

import random
from collections.abc import Callable

import hypothesis
import numpy as np
import pytest
import tokenizers
from hypothesis import strategies

from maskwright.base.errors import ConfigError
from maskwright.learn.tasks.base.encode import (
    KEEPS,
    Cuts,
    central,
    fit,
    fit_pair,
    fit_windows,
    pool,
    room_of,
    truncated,
    windows,
)
from maskwright.text.tokenizer.tokenizer import Tokenizer
from tokenizer.toy_tokenizers import KINDS, trained

every_kind = pytest.mark.parametrize("kind", KINDS)


def test_truncation_by_hand() -> None:
    ids = list(range(7))
    assert truncated(ids, 4, "head") == [0, 1, 2, 3]
    assert truncated(ids, 4, "tail") == [3, 4, 5, 6]
    assert truncated(ids, 4, "head-and-tail", head=1) == [0, 4, 5, 6]
    assert truncated(ids[:3], 4, "tail") == [0, 1, 2]
    # Sun et al. 2019: the first 128 and the last 382 of 510.
    assert truncated(range(1000), 510, "head-and-tail") == [*range(128), *range(618, 1000)]


def test_cuts_are_counted() -> None:
    assert Cuts.of([10, 10, 5], [0, 4, 0]) == Cuts(rows=3, rows_cut=1, tokens=25, tokens_cut=4)
    (finding,) = Cuts(3, 1, 25, 4).findings(6)
    assert finding.name == "truncated" and Cuts.of([5], [0]).findings(6) == ()


def slow_windows(length: int, room: int, stride: int) -> list[list[int]]:
    found, first = [], 0
    while True:
        found.append([first, min(first + room, length)])
        if first + room >= length:
            return found
        first += stride


def slow_central(found: list[list[int]], length: int) -> list[int]:
    owners = []
    for token in range(length):
        holders = [w for w, (first, stop) in enumerate(found) if first <= token < stop]
        context = {w: min(token - found[w][0], found[w][1] - 1 - token) for w in holders}
        owners.append(max(holders, key=lambda w: (context[w], -w)))
    return owners


@hypothesis.given(
    strategies.integers(0, 80), strategies.integers(1, 20), strategies.integers(1, 20)
)
@hypothesis.settings(max_examples=300)
def test_windows_equal_the_slow_definition(length: int, room: int, stride: int) -> None:
    stride = min(stride, room)
    found = windows(length, room, stride)
    assert found.tolist() == slow_windows(length, room, stride)
    assert central(found).tolist() == slow_central(found.tolist(), length)


def test_the_first_window_is_not_the_central_one() -> None:
    """The control: an owner that is merely the first holder is told apart."""
    found = windows(30, 10, 4)
    first = [next(w for w, (a, b) in enumerate(found) if a <= t < b) for t in range(30)]
    assert central(found).tolist() != first


def test_longest_first_equals_that_of_the_library() -> None:
    tokenizer, rng = trained("wordpiece"), random.Random(1)
    theirs = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 7, "b": 8}, unk_token="a"))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    for _ in range(300):
        a, b, room = rng.randint(1, 30), rng.randint(1, 30), rng.randint(2, 40)
        row = fit_pair(tokenizer, [7] * a, [8] * b, room + 3)
        theirs.enable_truncation(room, strategy="longest_first")
        left = theirs.encode("a " * a, "b " * b).ids
        counts = [row.tokens.count(i) for i in (7, 8)]
        assert counts == [left.count(i) for i in (7, 8)], (a, b, room)
        assert row.cut == a + b - len(left)


def test_pooling_equals_a_loop_and_ignores_the_order() -> None:
    draw = np.random.default_rng(0)
    for _ in range(100):
        texts = np.concatenate([np.arange(5), draw.integers(0, 5, 12)])
        scores, order = draw.normal(size=(17, 3)), draw.permutation(17)
        for how, slow in (("mean", np.mean), ("max", np.max)):
            wanted = np.stack([slow(scores[texts == t], axis=0) for t in range(5)])
            for rows in (np.arange(17), order):
                pooled = pool(scores[rows], texts[rows], how)  # type: ignore[arg-type]
                np.testing.assert_allclose(pooled, wanted, rtol=1e-12)
    assert np.isclose(pool(np.array([[1.0], [3.0]]), np.array([0, 0]), "mean"), 2.0)


@every_kind
@pytest.mark.parametrize("style", ["bert", "roberta", "t5", "gpt2"])
@pytest.mark.parametrize("over", [-1, 0, 1, 90])
def test_F76_no_special_token_is_cut_and_every_cut_is_counted(
    kind: str, style: str, over: int
) -> None:
    tokenizer, length = trained(kind, style), 20
    room = room_of(tokenizer, length)
    ids = [100 + i for i in range(room + over)]
    empty, _ = tokenizer.frame([])
    for keep in KEEPS:
        row = fit(tokenizer, ids, length, keep, head=4)
        assert len(row) == min(length, len(ids) + len(empty))
        assert [t for t in row.tokens if t < 100] == empty
        kept = [t for t in row.tokens if t >= 100]
        assert row.cut == max(0, over) == len(ids) - len(kept) and row.num_first == len(kept)
    rows = fit_windows(tokenizer, ids, length, 6)
    assert all(len(row) <= length for row in rows)
    assert {t for row in rows for t in row.tokens} >= set(ids)


@pytest.mark.parametrize(
    "call",
    [
        lambda tokenizer: fit(tokenizer, [5, 6], 2),
        lambda tokenizer: fit_pair(tokenizer, [5], [6], 3),
        lambda tokenizer: fit_windows(tokenizer, [5], 2, 1),
    ],
)
def test_no_room_is_refused(call: Callable[[Tokenizer], object]) -> None:
    with pytest.raises(ConfigError) as refused:
        call(trained("wordpiece"))
    assert refused.value.where == "length"
