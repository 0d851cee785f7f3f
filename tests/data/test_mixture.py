"""Mixtures keep their shares, and no source repeats itself before it is exhausted."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.toy import corpus, store_of

from maskwright.data.loader import Loader
from maskwright.data.mixture import Mixture
from maskwright.data.pack import PackedDocuments, SentencePairs
from maskwright.data.rows import Rows
from maskwright.errors import ConfigError, IncompatibleError, UsageError


class Named:
    """Rows of (name, row, epoch)."""

    length = 3

    def __init__(self, name: int, size: int) -> None:
        self.name, self.size = name, size
        self.fingerprint = self.description = f"source {name}"

    def __len__(self) -> int:
        return self.size

    def rows(self, indices: np.ndarray, epoch: int) -> Rows:
        ones = np.ones(len(indices), dtype=np.int64)
        tokens = np.stack([self.name * ones, indices, epoch * ones], axis=1)
        falses = np.zeros(tokens.shape, dtype=bool)
        return Rows(
            tokens=tokens,
            positions=tokens * 0,
            documents=np.ones(tokens.shape, np.int32),
            special=falses,
            starts_word=falses,
            ids=indices,
        )


def epoch_of(mixture: Mixture, epoch: int) -> list[tuple[int, int, int]]:
    rows = mixture.rows(np.arange(len(mixture)), epoch)
    assert rows.ids.tolist() == list(range(len(mixture)))
    return [tuple(row) for row in rows.tokens.tolist()]


def test_shares() -> None:
    mixture = Mixture([(Named(0, 100), 3), (Named(1, 100), 1)])
    counts = collections.Counter(name for name, _, _ in epoch_of(mixture, 0))
    assert counts == {0: 150, 1: 50}
    assert "75.0% source 0" in mixture.description


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(0, 5),
)
def test_no_row_is_seen_again_before_all_are_seen(made: list[tuple[int, int]], seed: int) -> None:
    sources = [(Named(n, size), weight) for n, (size, weight) in enumerate(made)]
    mixture = Mixture(sources, seed=seed)
    drawn = collections.Counter(row for epoch in range(4) for row in epoch_of(mixture, epoch))
    assert set(drawn.values()) == {1}  # (source, row, its own epoch) never twice
    for number, (size, _) in enumerate(made):
        epochs = collections.Counter(e for name, _, e in drawn if name == number)
        *whole, last = [epochs[e] for e in range(max(epochs) + 1)]
        assert whole == [size] * len(whole) and 0 < last <= size


def test_rows_come_in_the_order_asked() -> None:
    mixture = Mixture([(Named(0, 5), 1), (Named(1, 9), 2)], seed=1)
    everything = epoch_of(mixture, 2)
    some = np.array([7, 0, 13, 7, 2])
    assert [tuple(r) for r in mixture.rows(some, 2).tokens.tolist()] == [
        everything[n] for n in some
    ]
    assert mixture.rows(np.array([], dtype=np.int64), 0).tokens.shape == (0, 3)


def test_the_seed_orders_each_source() -> None:
    made = [(Named(0, 50), 1.0), (Named(1, 50), 1.0)]
    first, second = Mixture(made, seed=0), Mixture(made, seed=1)
    assert epoch_of(first, 0) != epoch_of(second, 0)
    assert epoch_of(first, 0) == epoch_of(Mixture(made, seed=0), 0)
    assert first.fingerprint != second.fingerprint
    assert first.fingerprint != Mixture([made[0], (made[1][0], 2.0)]).fingerprint


def test_a_rare_source_still_comes() -> None:
    mixture = Mixture([(Named(0, 10), 1), (Named(1, 10), 1e-9)])
    assert 1 in {name for name, _, _ in epoch_of(mixture, 0)}


def test_real_sources_in_a_loader(tmp_path: Path) -> None:
    first = PackedDocuments(store_of(tmp_path / "a", corpus(1, 30)), 32)
    second = PackedDocuments(store_of(tmp_path / "b", corpus(2, 50)), 32)
    loader = Loader(Mixture([(first, 1), (second, 1)], seed=3), 8, 0)
    rows = loader.rows(0)
    assert rows.tokens.shape == (8, 32)
    again = loader.rows_of(*loader.batch(0))
    np.testing.assert_array_equal(rows.tokens, again.tokens)


def test_refusals(tmp_path: Path) -> None:
    for made in ([], [(Named(0, 5), 0)], [(Named(0, 5), -1)], [(Named(0, 5), float("nan"))]):
        with pytest.raises(ConfigError, match="not positive"):
            Mixture(made)
    with pytest.raises(ConfigError, match="no rows"):
        Mixture([(Named(0, 5), 1), (Named(1, 0), 1)])
    longer = Named(1, 5)
    longer.length = 4
    with pytest.raises(IncompatibleError, match="different lengths"):
        Mixture([(Named(0, 5), 1), (longer, 1)])
    store = store_of(tmp_path, corpus(1, 30))
    mixture = Mixture([(PackedDocuments(store, 32), 1), (SentencePairs(store, 32), 1)])
    with pytest.raises(UsageError, match="segments"):
        mixture.rows(np.arange(len(mixture)), 0)
