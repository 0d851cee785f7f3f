"""Mixtures keep their shares, and no source repeats itself before it is exhausted."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.toy import corpus, rows_of, store_of

from maskwright.base.errors import ConfigError, IncompatibleError, UsageError
from maskwright.text.store.loader import BLOCK, Loader, Mixture, ScheduledMixture
from maskwright.text.store.pairs import SentencePairs
from maskwright.text.store.rows import PackedDocuments, Rows


class Named:
    """Rows of (name, row, epoch)."""

    length = 3

    def __init__(self, name: int, size: int) -> None:
        self.name, self.size = name, size
        self.fingerprint = self.description = f"source {name}"

    def __len__(self) -> int:
        return self.size

    def rows(self, indices: np.ndarray, epoch: int) -> Rows:
        name, epochs = (np.full(len(indices), value) for value in (self.name, epoch))
        return rows_of(np.stack([name, indices, epochs], axis=1), indices)


def epoch_of(mixture: Mixture, epoch: int) -> list[tuple[int, int, int]]:
    rows = mixture.rows(np.arange(len(mixture)), epoch)
    assert rows.ids.tolist() == list(range(len(mixture)))
    return [tuple(row) for row in rows.tokens.tolist()]


def test_shares() -> None:
    mixture = Mixture([(Named(0, 100), 3), (Named(1, 100), 1)])
    counts = collections.Counter(name for name, _, _ in epoch_of(mixture, 0))
    assert counts == {0: 150, 1: 50}
    assert "75.0% source 0" in mixture.description
    rare = Mixture([(Named(0, 10), 1), (Named(1, 10), 1e-9)])
    assert 1 in {name for name, _, _ in epoch_of(rare, 0)}, "a rare source still comes"


def assert_whole_epochs(rows: Iterable[tuple[int, int, int]], sizes: Sequence[int]) -> None:
    """Each source was seen as a whole so many times, and once more in part."""
    for number, size in enumerate(sizes):
        epochs = collections.Counter(epoch for name, _, epoch in rows if name == number)
        if epochs:
            *whole, last = [epochs[epoch] for epoch in range(max(epochs) + 1)]
            assert whole == [size] * len(whole) and 0 < last <= size


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(0, 5),
)
def test_no_row_is_seen_again_before_all_are_seen(made: list[tuple[int, int]], seed: int) -> None:
    sources = [(Named(n, size), weight) for n, (size, weight) in enumerate(made)]
    mixture = Mixture(sources, seed=seed)
    rows = collections.Counter(row for epoch in range(4) for row in epoch_of(mixture, epoch))
    assert set(rows.values()) == {1}  # (source, row, its own epoch) never twice
    assert {name for name, _, _ in rows} == set(range(len(made)))
    assert_whole_epochs(rows, [size for size, _ in made])


def test_rows_come_in_the_order_asked() -> None:
    mixture = Mixture([(Named(0, 5), 1), (Named(1, 9), 2)], seed=1)
    everything, some = epoch_of(mixture, 2), [7, 0, 13, 7, 2]
    rows = mixture.rows(np.array(some), 2).tokens.tolist()
    assert list(map(tuple, rows)) == [everything[n] for n in some]
    assert mixture.rows(np.array([], dtype=np.int64), 0).tokens.shape == (0, 3)


def test_the_seed_orders_each_source() -> None:
    made = [(Named(0, 50), 1.0), (Named(1, 50), 1.0)]
    first, second = Mixture(made, seed=0), Mixture(made, seed=1)
    assert epoch_of(first, 0) != epoch_of(second, 0)
    assert epoch_of(first, 0) == epoch_of(Mixture(made, seed=0), 0)
    assert first.fingerprint != second.fingerprint
    assert first.fingerprint != Mixture([made[0], (made[1][0], 2.0)]).fingerprint


@pytest.mark.parametrize(
    ("sizes", "weights"),
    [([], []), ([5], [0]), ([5], [-1]), ([5], [float("nan")]), ([5, 0], [1, 1])],
)
def test_mixtures_that_cannot_be_are_refused(sizes: list[int], weights: list[float]) -> None:
    sources = [Named(n, size) for n, size in enumerate(sizes)]
    with pytest.raises(ConfigError):
        Mixture(list(zip(sources, weights, strict=True)))


def test_sources_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    longer = Named(1, 5)
    longer.length = 4
    with pytest.raises(IncompatibleError):
        Mixture([(Named(0, 5), 1), (longer, 1)])
    store = store_of(tmp_path, corpus(1, 30))
    mixture = Mixture([(PackedDocuments(store, 32), 1), (SentencePairs(store, 32), 1)])
    with pytest.raises(UsageError, match="segments"):
        mixture.rows(np.arange(len(mixture)), 0)


def scheduled(
    sizes: tuple[int, ...], begin: list[float], end: list[float], samples: int, seed: int = 0
) -> ScheduledMixture:
    sources = [Named(n, size) for n, size in enumerate(sizes)]
    progress = [(0, 0.0), (samples, 1.0)]
    return ScheduledMixture(sources, np.array(begin), np.array(end), progress, seed=seed)


def drawn(mixture: ScheduledMixture, begin: int, count: int) -> list[tuple[int, int, int]]:
    rows = Loader(mixture, 1, 0).rows_of(*mixture.take(begin, count))
    return [tuple(row) for row in rows.tokens.tolist()]


def test_shares_that_change_over_the_run() -> None:
    mixture = scheduled((70, 1000, 300), [3, 1, 0], [1, 1, 2], 20_000)
    names = np.array([name for name, _, _ in drawn(mixture, 0, 20_000)])
    begin, end = np.array([0.75, 0.25, 0]), np.array([0.25, 0.25, 0.5])
    for tenth, part in enumerate(np.split(names, 10)):
        wanted = begin + (end - begin) * (tenth + 0.5) / 10
        assert np.bincount(part, minlength=3) / 2000 == pytest.approx(wanted, abs=0.02)
    for count in (777, 20_000):
        assert mixture.realised(count).tolist() == np.bincount(names[:count], minlength=3).tolist()
    assert mixture.realised(20_000) / 20_000 == pytest.approx([0.5, 0.25, 0.25], abs=2e-3)
    assert "75.0% to 25.0% source 0" in mixture.description
    # Behind the end the last shares stay.
    later = np.array([name for name, _, _ in drawn(mixture, 50_000, 8192)])
    assert np.bincount(later) / 8192 == pytest.approx(end, abs=0.01)
    # The control: the same weights at both ends.
    even = scheduled((70, 1000, 300), [3, 1, 1], [3, 1, 1], 20_000)
    first = [name for name, _, _ in drawn(even, 0, 2000)]
    assert np.bincount(first) / 2000 == pytest.approx([0.6, 0.2, 0.2], abs=0.01)


def test_a_rare_source_of_a_schedule_has_its_share() -> None:
    mixture = scheduled((10, 10), [1, 1e-4], [1, 3e-4], 1_000_000)
    assert mixture.realised(1_000_000)[1] == pytest.approx(200, abs=3)


WEIGHTED = st.tuples(st.integers(1, 12), st.integers(0, 9), st.integers(1, 9))


@settings(max_examples=25)
@given(
    st.lists(WEIGHTED, min_size=1, max_size=4).filter(lambda made: any(w for _, w, _ in made)),
    st.integers(1, 3000),
    st.integers(0, 5),
)
def test_a_schedule_repeats_no_row_before_all_are_seen(
    made: list[tuple[int, int, int]], samples: int, seed: int
) -> None:
    sizes, begin, end = zip(*made, strict=True)
    mixture = scheduled(sizes, list(begin), list(end), samples, seed)
    blocks = -(-1000 // BLOCK) * BLOCK  # whole blocks: in one, rows come in any order
    seen = drawn(mixture, 0, blocks)
    assert len(set(seen)) == len(seen)
    assert_whole_epochs(seen, sizes)


def test_a_schedule_is_a_function_of_the_sample() -> None:
    plan = {"sizes": (7, 30, 90), "begin": [1, 2, 3], "end": [3, 2, 1], "samples": 5000, "seed": 4}
    mixture, other = scheduled(**plan), scheduled(**plan)
    whole = drawn(mixture, 0, 3000)
    for n in (2999, 0, 131, 128, 127):
        assert drawn(other, n, 1) == whole[n : n + 1], "asked in any order, in a fresh object"
    numbers, epochs = mixture.take(0, 3000)
    keys = set(zip(numbers.tolist(), epochs.tolist(), strict=True))
    assert len(keys) == 3000, "no two samples share their masks"
    assert drawn(scheduled(**plan | {"seed": 5}), 0, 3000) != whole
    changes = ({"begin": [1, 2, 4]}, {"samples": 5001}, {"seed": 5}, {})
    prints = {scheduled(**plan | change).fingerprint for change in changes}
    assert len(prints) == 4 and mixture.fingerprint in prints


def test_a_loader_takes_the_order_of_a_schedule() -> None:
    mixture = scheduled((70, 100), [1, 0], [0, 1], 1600)
    loader = Loader(mixture, 16, 9)
    names = loader.rows_of(*loader.take(0, 1600)).tokens[:, 0]
    assert names[:160].mean() < 0.1 and names[-160:].mean() > 0.9
    # The control: a mixture that the loader shuffles has the same share in every part.
    plain = Loader(Mixture([(s, 1) for s in mixture.sources]), 16, 9)
    assert plain.rows_of(*plain.take(0, 160)).tokens[:, 0].mean() == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize(
    ("sizes", "begin", "end"),
    [
        ((5, 5), [0, 1], [0, 1]),
        ((5, 5), [-1, 1], [1, 1]),
        ((5, 5), [1], [1]),
        ((5, 0), [1, 1], [1, 1]),
    ],
)
def test_refusals_of_schedules(sizes: tuple[int, int], begin: list[int], end: list[int]) -> None:
    with pytest.raises((ConfigError, ValueError)):
        scheduled(sizes, begin, end, 100)
