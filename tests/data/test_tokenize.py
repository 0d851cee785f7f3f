"""A store is the same bytes however it was built, and no half-built one is ever taken for whole."""

from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.data.toy import Toy, corpus, documents, sentence_ranges, store_of
from tests.faults.fs import Dying, Failing, Killed, Unhurried, Watched

from maskwright.base.errors import (
    DataError,
    IncompatibleError,
    MaskwrightError,
    OutputError,
    StoppedError,
    StorageError,
)
from maskwright.base.storage.commit import Lock
from maskwright.text.corpus.reading import Document
from maskwright.text.store import tokenize
from maskwright.text.store.store import TokenStore
from maskwright.text.store.tokenize import build_store, sentence_starts

TEXTS = corpus(5, 120)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several shards and blocks even for a few kilobytes of text."""
    monkeypatch.setattr(tokenize, "SHARD_BYTES", 3000)
    monkeypatch.setattr(tokenize, "BLOCK_CHARACTERS", 700)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_store_holds_what_the_tokenizer_says(tmp_path: Path) -> None:
    assert sum(map(len, TEXTS)) > 3 * 3000
    store, toy = store_of(tmp_path, TEXTS), Toy()
    assert [store.document(n).tolist() for n in range(len(TEXTS))] == [
        toy.encode(text) for text in TEXTS
    ]
    assert store.document_bytes.tolist() == [len(text.encode()) for text in TEXTS]
    ends = [store.tokens[start - 1] == 57 for start in store.sentences[1:]]
    assert all(ends) and len(store.sentences) == sum(len(sentence_starts(t)) for t in TEXTS)
    assert os.listdir(tmp_path) == ["store"]


def test_documents_may_be_any_iterable_and_are_read_once(tmp_path: Path) -> None:
    stream = iter(documents(TEXTS))
    build_store(stream, Toy(), tmp_path / "store")
    assert list(stream) == []
    assert contents(tmp_path / "store") == contents(store_of(tmp_path / "again", TEXTS).path)


def test_a_good_store_is_used_as_it_is(tmp_path: Path) -> None:
    first, toy, files = store_of(tmp_path, TEXTS), Toy(), Watched()
    again = build_store(documents(TEXTS), toy, tmp_path / "store", files=files)
    assert again.fingerprint == first.fingerprint
    assert (toy.encoded, files.count) == (0, 0)


def test_F85_a_store_of_another_text_or_tokenizer_is_not_overwritten(tmp_path: Path) -> None:
    store_of(tmp_path, TEXTS)
    before = contents(tmp_path / "store")
    with pytest.raises(IncompatibleError, match="text"):
        store_of(tmp_path, TEXTS[1:])
    other = Toy()
    other.fingerprint = "other"
    with pytest.raises(IncompatibleError, match="another tokenizer") as refusal:
        store_of(tmp_path, TEXTS, other)
    assert (refusal.value.found, refusal.value.wanted) == ("toy", "other")
    with pytest.raises(IncompatibleError):
        build_store(documents(TEXTS), Toy(), tmp_path / "store", sentences=False)
    assert contents(tmp_path / "store") == before


def test_a_damaged_store_is_built_again(tmp_path: Path) -> None:
    store = store_of(tmp_path, TEXTS)
    good = contents(store.path)
    for name in ("tokens.bin", "manifest.json"):
        (store.path / name).write_bytes(b"damaged")
        store_of(tmp_path, TEXTS)
        assert contents(store.path) == good
        (store.path / name).unlink()
        store_of(tmp_path, TEXTS)
        assert contents(store.path) == good


def test_a_folder_that_is_no_store_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/thesis.tex").write_text("thesis")
    with pytest.raises(OutputError):
        store_of(tmp_path, TEXTS)
    assert (tmp_path / "store/thesis.tex").read_text() == "thesis"


def test_F59_documents_without_tokens_are_dropped_and_counted(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["a.", " \n ", "b c.", "\t"])
    assert store.num_documents == 2
    assert store.manifest.about["dropped"] == 2
    assert store.document_bytes.tolist() == [2, 4]


@pytest.mark.parametrize("texts", [[], [" "]])
def test_F58_no_text_makes_an_empty_store(tmp_path: Path, texts: list[str]) -> None:
    store = store_of(tmp_path, texts)
    assert (store.num_documents, store.num_tokens, store.largest_id) == (0, 0, -1)
    assert store.offsets.tolist() == [0]
    TokenStore.open(store.path, verify=True)


def test_sentences_may_be_left_out(tmp_path: Path) -> None:
    toy = Toy()
    store = build_store(documents(TEXTS), toy, tmp_path / "store", sentences=False)
    assert len(store.sentences) == 0
    assert toy.encoded == len(TEXTS)
    assert sentence_ranges(store, 0).shape == (0, 2)


def test_F84_an_id_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    class Wrong(Toy):
        def encode(self, text: str) -> list[int]:
            return [70000]

    with pytest.raises(DataError, match="token id"):
        store_of(tmp_path, TEXTS, Wrong())
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("size", "each"), [(65536, 2), (65537, 4)])
def test_F84_the_largest_id_survives(tmp_path: Path, size: int, each: int) -> None:
    class Large(Toy):
        vocabulary_size = size

        def encode(self, text: str) -> list[int]:
            return [size - 1, 0]

    store = store_of(tmp_path, ["a", "b"], Large())
    assert store.tokens.tolist() == [size - 1, 0] * 2
    assert store.tokens.itemsize == each
    assert store.largest_id == size - 1


# ------------------------------------------------------------------------------ bounded parts
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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


# ------------------------------------------------------------------------------ faults
def test_F83_an_exception_in_the_source_leaves_no_store_and_keeps_shards(tmp_path: Path) -> None:
    def broken() -> Iterator[Document]:
        yield from documents(TEXTS[:-5])
        raise DataError("a bad row")

    toy = Toy()
    with pytest.raises(DataError, match="a bad row"):
        build_store(broken(), toy, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    made = len(list((tmp_path / ".work-store").glob("shard-*")))
    assert made >= 3
    resumed = Toy()
    store = store_of(tmp_path, TEXTS, resumed)
    assert resumed.encoded < toy.encoded
    assert contents(store.path) == contents(store_of(tmp_path / "other", TEXTS).path)


def test_F82_shards_of_an_earlier_attempt_are_checked(tmp_path: Path) -> None:
    """Damaged, exchanged, of another text or tokenizer: made again, never trusted."""
    whole = contents(store_of(tmp_path / "whole", TEXTS).path)

    def stop(folder: Path, texts: list[str]) -> list[Path]:
        with pytest.raises(Killed):
            build_store(_then_die(texts), Toy(), folder / "store")
        return sorted((folder / ".work-store").glob("shard-*"))

    made = stop(tmp_path / "damaged", TEXTS)
    (made[0] / "tokens.bin").write_bytes(b"\0" * (made[0] / "tokens.bin").stat().st_size)
    made = stop(tmp_path / "exchanged", TEXTS)
    os.rename(made[0], tmp_path / "aside")
    os.rename(made[1], made[0])
    os.rename(tmp_path / "aside", made[1])
    stop(tmp_path / "older", TEXTS[::-1])
    for folder in ("damaged", "exchanged", "older"):
        assert contents(store_of(tmp_path / folder, TEXTS).path) == whole


def _then_die(texts: list[str]) -> Iterator[Document]:
    yield from documents(texts)
    raise Killed


def test_F83_killed_at_every_operation(tmp_path: Path) -> None:
    texts = TEXTS[:40]
    whole = contents(store_of(tmp_path / "whole", texts).path)
    files = Watched()
    build_store(documents(texts), Toy(), tmp_path / "counted/store", files=files)
    assert files.count > 60
    for point in range(1, files.count + 1):
        folder = tmp_path / str(point)
        with pytest.raises(Killed):
            build_store(documents(texts), Toy(), folder / "store", files=Dying(point))
        if (folder / "store").exists():
            TokenStore.open(folder / "store", verify=True)
        resumed = build_store(documents(texts), Toy(), folder / "store", files=Unhurried())
        assert contents(resumed.path) == whole


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, StoppedError), (errno.EIO, StorageError), (errno.EACCES, OutputError)],
)
def test_F83_an_error_at_every_operation(
    tmp_path: Path, number: int, kind: type[MaskwrightError]
) -> None:
    texts = TEXTS[:30]
    whole = contents(store_of(tmp_path / "whole", texts).path)
    files = Watched()
    build_store(documents(texts), Toy(), tmp_path / "counted/store", files=files)
    refused = 0
    for point in range(1, files.count + 1):
        folder = tmp_path / str(point)
        try:
            build_store(documents(texts), Toy(), folder / "store", files=Failing(number, point))
        except MaskwrightError as told:
            assert type(told) is kind
            refused += 1
        if (folder / "store").exists():
            TokenStore.open(folder / "store", verify=True)
        resumed = build_store(documents(texts), Toy(), folder / "store", files=Unhurried())
        assert contents(resumed.path) == whole
    assert refused > 10 or number == errno.EIO


def test_F11_two_builders_of_one_store(tmp_path: Path) -> None:
    with Lock(tmp_path / ".work-store/build.lock"), pytest.raises(StoppedError):
        store_of(tmp_path, TEXTS)
    store_of(tmp_path, TEXTS)
