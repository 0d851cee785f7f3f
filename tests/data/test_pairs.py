"""Sentence pairs: half neighbours, half strangers, framed and fitted as BERT does; or in order and
swapped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.toy import Toy, corpus, documents, store_of

from maskwright.base.errors import DataError, IncompatibleError
from maskwright.text.store.pairs import SentencePairs, trim_pair
from maskwright.text.store.store import TokenStore
from maskwright.text.store.tokenize import build_store

CLS, SEP, PAD = Toy.classify, Toy.separator, Toy.pad


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return store_of(tmp_path_factory.mktemp("pairs"), corpus(11, 300, sentences=12))


def owner(store: TokenStore, starts: np.ndarray) -> np.ndarray:
    """The documents in which these tokens stand."""
    return np.searchsorted(store.offsets, starts, "right") - 1


def parts(tokens: list[int]) -> tuple[list[int], list[int], int]:
    """(A, B, padding) of a framed row."""
    first = tokens.index(SEP)
    second = tokens.index(SEP, first + 1)
    assert tokens[0] == CLS and not any(tokens[second + 1 :])
    return tokens[1:first], tokens[first + 1 : second], len(tokens) - second - 1


def place(store: TokenStore, part: list[int]) -> list[int]:
    """The documents in which the tokens of `part` stand in a row."""
    needle = np.array(part, dtype=store.tokens.dtype).tobytes()
    return [n for n in range(store.num_documents) if needle in store.document(n).tobytes()]


def test_every_field_of_every_row(store: TokenStore) -> None:
    source = SentencePairs(store, 64)
    rows = source.rows(np.arange(len(source)), 0)
    for n in range(len(source)):
        first, second, padding = parts(rows.tokens[n].tolist())
        assert first and second
        used = 64 - padding
        a, b = len(first) + 2, len(second) + 1
        assert rows.segments[n].tolist() == [0] * a + [1] * b + [0] * padding
        assert rows.positions[n].tolist() == [*range(used), *[0] * padding]
        assert rows.documents[n].tolist() == [1] * used + [0] * padding
        special = np.ones(64, dtype=bool)
        special[1 : a - 1] = special[a : a + b - 1] = False
        assert rows.special[n].tolist() == special.tolist()
        tokens, begun = rows.tokens[n], rows.starts_word[n]
        assert begun[1] and begun[a] and not begun[special].any()
        inner = np.flatnonzero(~special[1:] & ~special[:-1]) + 1
        after = (tokens[inner] >= 5) & (tokens[inner] < 31) | (tokens[inner - 1] == 57)
        assert begun[inner].tolist() == after.tolist()


def test_labels_tell_the_truth(store: TokenStore) -> None:
    rows = SentencePairs(store, 64).rows(np.arange(150), 0)
    for tokens, is_stranger in zip(rows.tokens.tolist(), rows.pair_label, strict=True):
        first, second, _ = parts(tokens)
        if len(first) < 6 or len(second) < 6:
            continue  # a few tokens stand in many documents
        here, there = place(store, first), place(store, second)
        assert len(here) == len(there) == 1 and (here != there) == bool(is_stranger)
        if not is_stranger and len(first) + len(second) < 61:
            assert place(store, first + second) == here  # nothing lost between neighbours


def test_half_are_strangers(store: TokenStore) -> None:
    source = SentencePairs(store, 64)
    divided = source._stop - source._first
    labels = np.stack([source.rows(np.arange(len(source)), e).pair_label for e in range(40)])
    many = labels[:, divided > 1]
    assert abs(many.mean() - 0.5) < 4 * 0.5 / np.sqrt(many.size)
    assert labels[:, divided == 1].all()
    per_row = many.mean(axis=0)
    assert per_row.min() > 0 and per_row.max() < 1  # the coin is thrown anew in every epoch


def test_chunks_cover_every_sentence_once(store: TokenStore) -> None:
    source = SentencePairs(store, 64, seed=2)
    assert source._first.tolist() == [0, *source._stop[:-1].tolist()]
    assert source._stop[-1] == len(store.sentences)
    for sentence in (source._first, source._stop - 1):
        assert (owner(store, store.sentences[sentence]) == source._owner).all()


def test_chunks_are_as_long_as_their_goals_ask(store: TokenStore) -> None:
    source = SentencePairs(store, 64, seed=2)
    bounds = np.append(store.sentences, store.num_tokens)
    sizes = bounds[source._stop] - bounds[source._first]
    last = source._stop == np.searchsorted(store.sentences, store.offsets)[source._owner + 1]
    assert (sizes >= source._goal)[~last].all()  # long enough …
    without = bounds[source._stop - 1] - bounds[source._first]
    assert (without < source._goal).all()  # … and not a sentence longer
    short = source._goal < 61
    assert abs(short.mean() - 0.1) < 0.03
    assert source._goal.min() >= 2 and source._goal.max() == 61
    assert not (SentencePairs(store, 64, short_fraction=0)._goal < 61).any()


def test_strangers_come_from_everywhere(store: TokenStore) -> None:
    source = SentencePairs(store, 64)
    strangers = []
    for epoch in range(6):
        _, (starts, _), foreign = source._draw(np.arange(len(source)), epoch)
        owners = owner(store, starts)
        assert ((owners != source._owner) == foreign).all()
        strangers.append(owners[foreign])
    seen = np.bincount(np.concatenate(strangers), minlength=store.num_documents)
    assert (seen > 0).mean() > 0.95


def _trim_by_hand(first: int, second: int, room: int) -> tuple[int, int]:
    while first + second > room:
        first, second = (first - 1, second) if first > second else (first, second - 1)
    return first, second


@given(st.integers(1, 90), st.integers(1, 90), st.integers(4, 70))
def test_trimming_takes_from_the_longer(first: int, second: int, room: int) -> None:
    kept = trim_pair(np.array([first]), np.array([second]), room)
    assert (int(kept[0][0]), int(kept[1][0])) == _trim_by_hand(first, second, room)


def test_sentences_longer_than_a_row(tmp_path: Path) -> None:
    texts = ["abcdefghijklmnopqrstuvwxyz " * 4 + "end. Next one.", "zz " * 40 + "stop. Last."]
    source = SentencePairs(store_of(tmp_path, texts), 16)
    for epoch in range(20):
        rows = source.rows(np.arange(len(source)), epoch)
        for row in rows.tokens.tolist():
            first, second, padding = parts(row)
            assert first and second and len(first) + len(second) + padding == 13


def test_refusals(tmp_path: Path) -> None:
    texts = corpus(1, 4)
    with pytest.raises(DataError):
        SentencePairs(store_of(tmp_path / "one", texts[:1]), 32)
    assert len(SentencePairs(store_of(tmp_path / "one", texts[:1]), 8, negatives="swapped")) > 0
    without = build_store(documents(texts), Toy(), tmp_path / "without", sentences=False)
    with pytest.raises(IncompatibleError):
        SentencePairs(without, 32)

    class Bare(Toy):
        separator = None  # type: ignore[assignment]

    with pytest.raises(IncompatibleError, match="separator"):
        SentencePairs(store_of(tmp_path / "bare", texts, Bare()), 32)
    good = store_of(tmp_path / "good", texts)
    with pytest.raises(IncompatibleError, match="no room"):
        SentencePairs(good, 6)
    assert len(SentencePairs(store_of(tmp_path / "none", []), 32)) == 0


# ------------------------------------------------------------------------------ sentence order
def test_negatives_come_from_the_same_document(store: TokenStore) -> None:
    source = SentencePairs(store, 64, negatives="swapped")
    labels = []
    for epoch in range(4):
        (a_start, a_length), (b_start, b_length), swapped = source._draw(
            np.arange(len(source)), epoch
        )
        for token in (a_start, a_start + a_length - 1, b_start, b_start + b_length - 1):
            assert (owner(store, token) == source._owner).all()
        assert ((a_start + a_length <= b_start) == ~swapped).all()
        assert ((b_start + b_length <= a_start) == swapped).all()
        labels.append(swapped)
    assert abs(np.mean(labels) - 0.5) < 4 * 0.5 / np.sqrt(4 * len(source))


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
    store = store_of(tmp_path, ["Ab cd. Ef."])
    source = SentencePairs(store, 16, negatives="swapped", short_fraction=0.0)
    first, second = map(Toy().encode, ("Ab cd.", "Ef."))
    seen = set()
    for epoch in range(8):
        rows = source.rows(np.arange(1), epoch)
        swapped = bool(rows.pair_label[0])
        wanted = (second, first) if swapped else (first, second)
        assert parts(rows.tokens[0].tolist()) == (*wanted, 5)
        seen.add(swapped)
    assert seen == {False, True}


def test_a_single_sentence_is_cut_and_a_single_token_is_none(tmp_path: Path) -> None:
    texts = ["abcdefgh.", ".", "Ab. Cd."]
    source = SentencePairs(store_of(tmp_path, texts), 32, negatives="swapped", short_fraction=0.0)
    assert len(source) == 2  # the full stop alone is no pair
    cuts = set()
    for epoch in range(40):
        rows = source.rows(np.array([0]), epoch)
        a, b, _ = parts(rows.tokens[0].tolist())
        first, second = (b, a) if rows.pair_label[0] else (a, b)
        assert first + second == Toy().encode(texts[0])
        cuts.add(len(first))
    assert len(cuts) > 4
