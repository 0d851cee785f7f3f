"""However long a document or a corpus, only a bounded part of it is in hand at a time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.toy import Toy, corpus, documents, store_of
from tests.faults.fs import Unhurried

from maskwright.text.corpus.document import Document
from maskwright.text.store import tokenize
from maskwright.text.store.tokenize import build_store, sentence_starts


@given(st.lists(st.integers(1, 30), max_size=30), st.integers(1, 60))
def test_parts_are_the_text(sizes: list[int], block: int) -> None:
    """Cut only at sentence starts, never above a block where a sentence allows it."""
    starts = np.cumsum([0, *sizes]).tolist()
    letters = [chr(97 + n % 26) for n in range(starts[-1] + 5)]
    for start in starts[1:]:
        letters[start] = " "
    text = "".join(letters)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenize, "BLOCK_CHARACTERS", block)
        found = list(tokenize.cut_text(text, starts))
    assert "".join(part for part, _ in found) == text
    begins = np.cumsum([0, *(len(part) for part, _ in found)]).tolist()
    marked = [b + m for b, (_, marks) in zip(begins, found, strict=False) for m in marks]
    assert marked == starts
    assert all(len(part) <= block or marks == [0] for part, marks in found)


def test_no_cut_where_a_token_may_lie_across(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences of a text without spaces are marked, and parts end before white space."""
    text = "他来了。我走了！" * 3 + "\n" + "他来了。我走了！" * 3
    monkeypatch.setattr(tokenize, "BLOCK_CHARACTERS", 10)
    starts = sentence_starts(text)
    found = list(tokenize.cut_text(text, starts))
    assert [part for part, _ in found] == [text[:24], text[24:]]
    assert sum(len(marks) for _, marks in found) == len(starts) == 12


def test_shards_end_where_the_text_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenize, "SHARD_BYTES", 10)
    found = list(tokenize.shards(documents(["aaaa", "éééé", "b", "c" * 20, "d"])))
    assert [shard.texts for shard in found] == [["aaaa", "éééé"], ["b", "c" * 20], ["d"]]
    assert [shard.bytes for shard in found] == [[4, 8], [1, 20], [1]]
    assert [shard.number for shard in found] == [0, 1, 2]
    other = list(tokenize.shards(documents(["aaaaé", "ééé"])))
    assert other[0].input != found[0].input  # the same bytes in a row, other documents


def test_one_long_document_is_encoded_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    class Measured(Toy):
        def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
            sizes.append(sum(map(len, texts)))
            return super().encode_batch(texts)

    monkeypatch.setattr(tokenize, "BLOCK_CHARACTERS", 700)
    text = " ".join(corpus(5, 120))
    store = store_of(tmp_path, [text], Measured())
    assert store.document(0).tolist() == Toy().encode(text)
    assert max(sizes) < 1500 and len(sizes) > 5


def test_memory_does_not_grow_with_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenize, "SHARD_BYTES", 200_000)
    monkeypatch.setattr(tokenize, "BLOCK_CHARACTERS", 20_000)
    monkeypatch.setattr(tokenize, "COPY_BYTES", 100_000)

    class Quick(Toy):
        def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
            return [np.frombuffer(text.encode(), np.uint8) % 58 for text in texts]

        def encode_marked(
            self, texts: Sequence[str], marks: Sequence[Sequence[int]]
        ) -> list[tuple[np.ndarray, np.ndarray]]:
            return list(zip(self.encode_batch(texts), map(np.array, marks), strict=True))

    def peak(number: int) -> int:
        stream = (Document("lorem ipsum " * 2000, "s", str(n)) for n in range(number))
        tracemalloc.start()
        build_store(stream, Quick(), tmp_path / str(number), files=Unhurried())
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    few, many = peak(40), peak(400)  # 1 MB and 10 MB of text
    assert many < 2 * few  # ten times the text; how far the reader runs ahead varies
    assert many < 4_000_000
