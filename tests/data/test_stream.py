"""Streams predict every token but the first exactly once; windows read from every offset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.toy import Toy, corpus, store_of

from maskwright.base.errors import UsageError
from maskwright.text.store.rows import Stream, Windows
from maskwright.text.store.store import TokenStore

END = 3


class Ended(Toy):
    """With an end token of its own, and none that separates."""

    end, separator = END, None  # type: ignore[assignment]


def tape(store: TokenStore, end: int | None) -> list[int]:
    joined = [] if end is None else [end]
    for number in range(store.num_documents):
        joined += [*store.document(number).tolist(), *([] if end is None else [end])]
    return joined


def test_eight_tokens_by_hand(tmp_path: Path) -> None:
    source = Stream(store_of(tmp_path, ["ab c", "d", "ef"], Ended()), 4)
    rows = source.rows(np.arange(len(source)), 0)
    #    END a b c END d END e f END  ->  10 tokens, three rows of 4 + 1, the last one padded
    assert rows.tokens.tolist() == [[END, 5, 32, 7, END], [END, 8, END, 9, 36], [36, END, 0, 0, 0]]
    assert rows.positions.tolist() == [[0, 1, 2, 3, 0], [0, 1, 0, 1, 2], [0, 0, 0, 0, 0]]
    assert rows.documents.tolist() == [[1, 1, 1, 1, 2], [1, 1, 2, 2, 2], [1, 2, 0, 0, 0]]
    special = [[1, 0, 0, 0, 1], [1, 0, 1, 0, 0], [0, 1, 1, 1, 1]]
    assert rows.special.astype(int).tolist() == special
    starts_word = [[0, 1, 0, 1, 0], [0, 1, 0, 1, 0], [1, 0, 0, 0, 0]]
    assert rows.starts_word.astype(int).tolist() == starts_word
    assert rows.ids.tolist() == [0, 1, 2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stream")


@pytest.mark.parametrize("length", [1, 5, 64, 100_000])
@pytest.mark.parametrize("end", [END, None])
def test_every_token_but_the_first_is_wanted_once(
    tmp_path: Path, length: int, end: int | None
) -> None:
    tokenizer = Ended()
    tokenizer.end = end
    store = store_of(tmp_path, corpus(2, 30), tokenizer)
    source = Stream(store, length)
    rows = source.rows(np.arange(len(source)), 0)
    assert rows.tokens.shape == (len(source), length + 1)
    real, joined = rows.documents != 0, tape(store, end)
    assert rows.tokens[:, 1:][real[:, 1:]].tolist() == joined[1:]
    assert rows.tokens[:, :-1][real[:, 1:]].tolist() == joined[:-1]
    assert (rows.tokens[~real] == 0).all() and rows.special[~real].all() and real[:-1].all()


@settings(max_examples=20)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 12))
def test_documents_and_positions_agree(folder: Path, sizes: list[int], length: int) -> None:
    name = "-".join(map(str, sizes))
    source = Stream(store_of(folder / name, ["a" * size for size in sizes], Ended()), length)
    rows = source.rows(np.arange(len(source)), 0)
    owners = np.repeat(np.arange(len(sizes) + 1), [*(size + 1 for size in sizes), 1])
    for number in range(len(source)):
        mine = owners[number * length :][: length + 1]
        shown = rows.documents[number][: len(mine)]
        assert shown.tolist() == (mine - mine[0] + 1).tolist()
        assert not rows.documents[number][len(mine) :].any()
        for document in set(shown.tolist()):
            inside = rows.positions[number][: len(mine)][shown == document]
            assert inside.tolist() == list(range(len(inside)))


def test_without_an_end_the_separator_ends(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["ab", "c"])
    assert Stream(store, 5).rows(np.array([0]), 0).tokens.tolist() == [[3, 5, 32, 3, 7, 3]]


def test_windows_read_from_every_offset(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["ab c", "de"])
    source = Windows(store, 3)
    rows = source.rows(np.arange(len(source)), 0)
    assert rows.tokens.tolist() == [[5, 32, 7], [32, 7, 8], [7, 8, 35]]
    assert rows.positions.tolist() == [[0, 1, 2]] * 3
    assert (rows.documents == 1).all() and not rows.special.any()
    assert rows.starts_word.astype(int).tolist() == [[1, 0, 1], [1, 1, 1], [1, 1, 0]]
    assert len(Windows(store, 5)) == 1 and len(Windows(store, 6)) == 0


def test_short_texts_and_wrong_numbers(tmp_path: Path) -> None:
    assert len(Stream(store_of(tmp_path / "0", []), 4)) == 0
    store = store_of(tmp_path / "1", ["a"])
    assert len(Stream(store, 4)) == 1
    for source in (Stream(store, 4), Windows(store, 1)):
        with pytest.raises(UsageError):
            source.rows(np.array([len(source)]), 0)


def test_blocks_hold_every_token_once(tmp_path: Path) -> None:
    store = store_of(tmp_path, corpus(5, 20))
    for length in (1, 7, 16, store.num_tokens, store.num_tokens + 3):
        source = Windows(store, length, step=length)
        rows = source.rows(np.arange(len(source)), 0)
        real = rows.documents == 1
        assert rows.tokens[real].tolist() == store.tokens.tolist()
        assert (rows.tokens[~real] == store.special["pad"]).all() and (rows.special == ~real).all()
        assert (~real).sum() == len(source) * length - store.num_tokens < length
        begun = np.flatnonzero(rows.starts_sentence[real])
        np.testing.assert_array_equal(begun, store.sentences)
        assert not rows.starts_sentence[~real].any() and not rows.starts_word[~real].any()
