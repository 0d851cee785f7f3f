"""Sentence order: both parts from one document, half of them the other way round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.data.test_pairs import parts
from tests.data.toy import Toy, corpus, store_of

from maskwright.base.errors import DataError
from maskwright.text.store.pairs import SentencePairs
from maskwright.text.store.store import TokenStore


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return store_of(tmp_path_factory.mktemp("order"), corpus(11, 300, sentences=12))


def owner(store: TokenStore, starts: np.ndarray) -> np.ndarray:
    return np.searchsorted(store.offsets, starts, "right") - 1


def test_negatives_come_from_the_same_document(store: TokenStore) -> None:
    source = SentencePairs(store, 64, negatives="swapped")
    numbers = np.arange(len(source))
    labels = []
    for epoch in range(4):
        (a_start, a_length), (b_start, b_length), swapped = source._draw(numbers, epoch)
        for starts, lengths in ((a_start, a_length), (b_start, b_length)):
            assert (owner(store, starts) == source._owner).all()
            assert (owner(store, starts + lengths - 1) == source._owner).all()
        before = a_start + a_length <= b_start
        assert (before == ~swapped).all() and ((b_start + b_length <= a_start) == swapped).all()
        labels.append(swapped)
    n = 4 * len(source)
    assert abs(np.mean(labels) - 0.5) < 4 * 0.5 / np.sqrt(n)
    # The control: strangers are seen as such.
    _, (b_start, _), foreign = SentencePairs(store, 64)._draw(numbers, 0)
    assert (owner(store, b_start) != source._owner)[foreign].all()


def test_lengths_do_not_tell_the_order(tmp_path: Path) -> None:
    """An odd room leaves one part a token more: always A, whichever part that is."""
    long = ["Ab " * 20 + "end. " + "Cd " * 20 + "end."]
    source = SentencePairs(store_of(tmp_path, long), 64, negatives="swapped", short_fraction=0.0)
    seen = set()
    for epoch in range(8):
        (_, a), (_, b), swapped = source._draw(np.arange(1), epoch)
        assert (a[0], b[0]) == (31, 30)
        seen.add(bool(swapped[0]))
    assert seen == {False, True}


def test_a_pair_by_hand(tmp_path: Path) -> None:
    source = SentencePairs(
        store_of(tmp_path, ["Ab cd. Ef."]), 16, negatives="swapped", short_fraction=0.0
    )
    toy = Toy()
    first, second = toy.encode("Ab cd."), toy.encode("Ef.")
    seen = set()
    for epoch in range(8):
        rows = source.rows(np.arange(1), epoch)
        a, b, padding = parts(rows.tokens[0].tolist())
        swapped = bool(rows.pair_label is not None and rows.pair_label[0])
        assert (a, b) == ((second, first) if swapped else (first, second)) and padding == 5
        seen.add(swapped)
    assert seen == {False, True}


def test_a_single_sentence_is_cut_and_a_single_token_is_none(tmp_path: Path) -> None:
    texts = ["abcdefgh.", ".", "Ab. Cd."]
    source = SentencePairs(store_of(tmp_path, texts), 32, negatives="swapped", short_fraction=0.0)
    assert len(source) == 2  # the full stop alone is no pair
    whole = Toy().encode(texts[0])
    cuts = set()
    for epoch in range(40):
        rows = source.rows(np.array([0]), epoch)
        a, b, _ = parts(rows.tokens[0].tolist())
        assert rows.pair_label is not None
        assert (b + a if rows.pair_label[0] else a + b) == whole
        cuts.add(len(b if rows.pair_label[0] else a))
    assert len(cuts) > 4


def test_one_document_is_enough_here(tmp_path: Path) -> None:
    store = store_of(tmp_path, corpus(1, 1, sentences=9)[:1])
    assert len(SentencePairs(store, 32, negatives="swapped")) > 0
    with pytest.raises(DataError, match="at least two"):
        SentencePairs(store, 32)


def test_rows_are_a_function_of_seed_epoch_and_number(store: TokenStore) -> None:
    source = SentencePairs(store, 48, seed=9, negatives="swapped")
    whole = source.rows(np.arange(len(source)), 3)
    some = np.array([4, 0, 4, len(source) - 1])
    rows = source.rows(some, 3)
    for name, value in vars(whole).items():
        if value is None:
            continue
        np.testing.assert_array_equal(getattr(rows, name), value[some])
    assert (source.rows(some, 4).tokens != rows.tokens).any()
    assert source.fingerprint != SentencePairs(store, 48, seed=9).fingerprint
