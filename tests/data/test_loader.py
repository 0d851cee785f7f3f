"""The order of training is arithmetic: nothing is lost, doubled, remembered or shared."""

from __future__ import annotations

import collections
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.toy import corpus, rows_of, store_of

from maskwright.base.errors import DataError, UsageError
from maskwright.text.store.loader import Loader
from maskwright.text.store.pairs import SentencePairs
from maskwright.text.store.rows import PackedDocuments, PackedSentences, Rows, Stream, Windows
from maskwright.text.store.store import TokenStore


class Numbers:
    """A source whose rows say which they are and in which epoch they were asked for."""

    fingerprint, description = "numbers", "numbers"

    def __init__(self, size: int, length: int = 2) -> None:
        self.size, self.length = size, length

    def __len__(self) -> int:
        return self.size

    def rows(self, indices: np.ndarray, epoch: int) -> Rows:
        return rows_of(np.stack([indices, np.full(len(indices), epoch)], axis=1), indices)


def seen(loader: Loader, steps: int) -> list[tuple[int, int]]:
    """(epoch, row) of every sample, in order."""
    numbers, epochs = loader.take(0, steps * loader.batch_rows)
    return list(zip(epochs.tolist(), numbers.tolist(), strict=True))


@given(st.integers(1, 16), st.integers(1, 8))
def test_F49_nothing_is_lost_or_doubled(size: int, batch: int) -> None:
    """Sources from one row to two batches, over several epochs: every row once per epoch."""
    samples = seen(Loader(Numbers(size), batch, 0), -(-3 * size // batch))[: 3 * size]
    assert collections.Counter(samples) == dict.fromkeys(
        [(epoch, row) for epoch in range(3) for row in range(size)], 1
    )
    assert [epoch for epoch, _ in samples] == sorted(epoch for epoch, _ in samples)


def test_the_order_is_frozen() -> None:
    loader = Loader(Numbers(1000), 6, 5)
    assert loader.take(0, 6)[0].tolist() == [207, 247, 793, 759, 21, 576]
    assert loader.take(996, 6)[1].tolist() == [0, 0, 0, 0, 1, 1]


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [seen(Loader(Numbers(50), 50, seed), 2) for seed in (0, 1)]
    first, second = orders[0][:50], orders[0][50:]
    assert [n for _, n in first] != [n for _, n in second]
    assert orders[0] != orders[1]
    assert [n for _, n in first] != list(range(50))


def test_samples_need_no_history() -> None:
    loader = Loader(Numbers(97), 10, 3)
    forward = loader.take(0, 400)[0].tolist()
    one_by_one = [int(loader.take(n, 1)[0][0]) for n in reversed(range(400))]
    assert one_by_one[::-1] == forward
    assert Loader(Numbers(10**9), 10, 3).take(10**16, 10)[1].tolist() == [10**7] * 10


def test_rows_carry_their_own_epoch() -> None:
    loader = Loader(Numbers(7), 20, 0)  # a batch of almost three epochs
    numbers, epochs = loader.take(20, 20)
    rows = loader.rows_of(numbers, epochs)
    assert rows.tokens.tolist() == np.stack([numbers, epochs], axis=1).tolist()
    assert len(set(epochs.tolist())) == 4
    mixed = loader.rows_of(np.array([3, 1, 2]), np.array([5, 0, 5]))
    assert mixed.tokens.tolist() == [[3, 5], [1, 0], [2, 5]]


SOURCES = {
    "packed documents": PackedDocuments,
    "packed sentences": PackedSentences,
    "stream": lambda store, length, seed: Stream(store, length),
    "windows": lambda store, length, seed: Windows(store, length),
    "blocks": lambda store, length, seed: Windows(store, length, step=length),
    "pairs": SentencePairs,
    "swapped pairs": partial(SentencePairs, negatives="swapped"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return store_of(tmp_path_factory.mktemp("loader"), corpus(3, 60, sentences=8))


@pytest.mark.parametrize("kind", SOURCES)
def test_rows_are_a_function_of_seed_epoch_and_number(store: TokenStore, kind: str) -> None:
    source, again, other = (SOURCES[kind](store, 48, seed=seed) for seed in (9, 9, 8))
    whole = source.rows(np.arange(len(source)), 3)
    for some in (np.arange(len(source))[::-1], np.array([4, 0, 4, 9])):
        rows = again.rows(some, 3)
        for name, value in vars(whole).items():
            if value is not None:
                np.testing.assert_array_equal(getattr(rows, name), value[some])
    assert source.rows(np.array([], dtype=np.int64), 0).tokens.shape == (0, whole.tokens.shape[1])
    seeded = kind not in ("stream", "windows", "blocks")
    assert (other.rows(some, 3).tokens != rows.tokens).any() == seeded
    assert (again.rows(some, 4).tokens != rows.tokens).any() == ("pairs" in kind)
    assert (other.fingerprint != source.fingerprint) == seeded


def test_fingerprints_of_sources_differ(store: TokenStore) -> None:
    made = [make(store, length, seed=0) for make in SOURCES.values() for length in (48, 49)]
    again = [make(store, 48, seed=0) for make in SOURCES.values()]
    assert len({source.fingerprint for source in [*made, *again]}) == len(made)


def test_real_sources_through_the_border_of_an_epoch(store: TokenStore) -> None:
    for source in (PackedDocuments(store, 64), SentencePairs(store, 64)):
        loader = Loader(source, len(source) - 1, 0)
        numbers, epochs = loader.take(loader.batch_rows, loader.batch_rows)
        rows = loader.rows_of(numbers, epochs)
        for n, (number, epoch) in enumerate(zip(numbers, epochs, strict=True)):
            alone = source.rows(np.array([number]), int(epoch))
            for name, value in vars(alone).items():
                if value is not None:
                    np.testing.assert_array_equal(getattr(rows, name)[n], value[0])


def test_fingerprints() -> None:
    made = [Loader(Numbers(9), batch, seed) for batch, seed in ((2, 0), (3, 0), (2, 1), (2, 0))]
    assert len({loader.fingerprint for loader in made}) == 3


def test_refusals() -> None:
    with pytest.raises(DataError):
        Loader(Numbers(0), 4, 0)
    with pytest.raises(UsageError):
        Loader(Numbers(3), 0, 0)
