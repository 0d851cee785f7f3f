"""Packed rows hold every token once, framed, with next to no padding, by the seed alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.toy import Toy, corpus, documents, sentence_ranges, store_of

from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.text.store.rows import PackedDocuments, PackedSentences, Rows, best_fit
from maskwright.text.store.store import TokenStore
from maskwright.text.store.tokenize import build_store

CLS, SEP, PAD = Toy.classify, Toy.separator, Toy.pad


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return store_of(tmp_path_factory.mktemp("pack"), corpus(7, 600, sentences=3))


def pieces(rows: Rows) -> list[tuple[int, ...]]:
    """The documents of all rows, unframed, read back from the fields."""
    found = []
    for row in range(len(rows)):
        for number in range(1, rows.documents[row].max() + 1):
            inside = np.flatnonzero(rows.documents[row] == number)
            tokens = rows.tokens[row, inside].tolist()
            assert inside.tolist() == list(range(inside[0], inside[-1] + 1))
            assert (tokens[0], tokens[-1]) == (CLS, SEP)
            assert rows.positions[row, inside].tolist() == list(range(len(inside)))
            special = rows.special[row, inside].tolist()
            assert special == [True] + [False] * (len(inside) - 2) + [True]
            found.append(tuple(tokens[1:-1]))
    return found


def test_eight_tokens_by_hand(tmp_path: Path) -> None:
    source = PackedDocuments(store_of(tmp_path, ["ab", "c", "d ef"]), 12)
    assert (len(source), source.fill) == (1, 1.0)
    rows = source.rows(np.array([0]), 0)
    assert sorted(pieces(rows)) == [(5, 32), (7,), (8, 9, 36)]
    assert rows.starts_word[0].tolist() == [t in (5, 7, 8, 9) for t in rows.tokens[0].tolist()]
    assert rows.segments is None and rows.pair_label is None
    assert rows.ids.tolist() == [0]


def test_long_documents_are_cut_at_rows(store: TokenStore) -> None:
    documents = [store.document(n).tolist() for n in range(store.num_documents)]
    assert max(map(len, documents)) <= 510, "the control: in long rows they are whole"
    for length in (32, 512):
        source, room = PackedDocuments(store, length, seed=3), length - 2
        wanted = [tuple(d[n : n + room]) for d in documents for n in range(0, len(d), room)]
        assert sorted(pieces(source.rows(np.arange(len(source)), 0))) == sorted(wanted)


@pytest.mark.parametrize("length", [32, 512])
def test_fields_of_padding(store: TokenStore, length: int) -> None:
    source = PackedDocuments(store, length)
    rows = source.rows(np.arange(len(source)), 0)
    padding = rows.documents == 0
    assert rows.tokens.shape == (len(source), length)
    assert (rows.tokens[padding] == PAD).all() and rows.special[padding].all()
    assert not rows.starts_word[padding].any() and not rows.positions[padding].any()
    assert source.fill == pytest.approx(1 - padding.mean())
    assert f"{source.fill:.1%} filled" in source.description


def _one_by_one(sizes: list[int], capacity: int) -> list[int]:
    """Best-fit decreasing as the books have it."""
    gaps: list[int] = []
    for size in sorted(sizes, reverse=True):
        fitting = [n for n, gap in enumerate(gaps) if gap >= size]
        if not fitting:
            gaps.append(capacity - size)
        else:
            best = min(fitting, key=lambda n: gaps[n])
            gaps[best] -= size
    return sorted(gaps)


@given(
    st.integers(1, 40).flatmap(
        lambda c: st.tuples(st.just(c), st.lists(st.integers(1, c), max_size=60))
    )
)
def test_it_is_best_fit_decreasing(case: tuple[int, list[int]]) -> None:
    capacity, sizes = case
    bins = best_fit(np.array(sizes, dtype=np.int64), capacity)
    used = np.bincount(bins, weights=sizes) if sizes else np.zeros(0)
    assert sorted(capacity - used) == _one_by_one(sizes, capacity)


def test_windows_are_packed_alone(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = PackedDocuments(store, 128)
    monkeypatch.setattr("maskwright.text.store.rows.WINDOW", 100)
    narrow = PackedDocuments(store, 128)
    in_wide, in_narrow = (
        sorted(pieces(source.rows(np.arange(len(source)), 0))) for source in (wide, narrow)
    )
    assert in_wide == in_narrow and narrow.fill > 0.95


def test_a_vocabulary_without_framing(tmp_path: Path) -> None:
    class Bare(Toy):
        classify = separator = pad = None  # type: ignore[assignment]

    source = PackedDocuments(store_of(tmp_path, ["abc", "de"], Bare()), 5)
    rows = source.rows(np.array([0]), 0)
    assert rows.tokens.tolist() == [[5, 32, 33, 8, 35]]
    assert rows.positions.tolist() == [[0, 1, 2, 0, 1]]
    assert not rows.special.any()


def test_refusals(store: TokenStore, tmp_path: Path) -> None:
    with pytest.raises(IncompatibleError):
        PackedDocuments(store, 2)
    assert len(PackedDocuments(store_of(tmp_path, []), 16)) == 0
    source = PackedDocuments(store, 32)
    for wrong in (-1, len(source)):
        with pytest.raises(UsageError):
            source.rows(np.array([0, wrong]), 0)


@pytest.fixture
def plain(tmp_path: Path) -> TokenStore:
    """A store without sentences."""
    return build_store(documents(corpus(6, 30)), Toy(), tmp_path / "plain", sentences=False)


def test_rows_say_where_sentences_start(tmp_path: Path, plain: TokenStore) -> None:
    store = store_of(tmp_path, corpus(6, 30))
    source = PackedDocuments(store, 48)
    rows = source.rows(np.arange(len(source)), 0)
    assert rows.starts_sentence.sum() == len(store.sentences)
    assert not (rows.starts_sentence & rows.special).any()
    before = np.zeros_like(rows.tokens)
    before[:, 1:] = rows.tokens[:, :-1]
    opens = rows.positions == 1  # the text's first token, after the frame
    assert (rows.starts_sentence <= (opens | (before == 57))).all()  # 57 is the full stop
    assert PackedDocuments(plain, 48).rows(np.array([0]), 0).starts_sentence is None


def test_every_sentence_comes_once_and_alone(tmp_path: Path, plain: TokenStore) -> None:
    store = store_of(tmp_path, corpus(6, 30))
    source = PackedSentences(store, 64, seed=3)
    ranges = np.concatenate([sentence_ranges(store, n) for n in range(store.num_documents)])
    wanted = [tuple(store.tokens[start:stop].tolist()) for start, stop in ranges]
    assert len(wanted) > store.num_documents
    assert sorted(pieces(source.rows(np.arange(len(source)), 0))) == sorted(wanted)
    assert "sentences" in source.description
    with pytest.raises(IncompatibleError):
        PackedSentences(plain, 64)
