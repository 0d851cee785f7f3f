"""A store is the same bytes however it was built, and no half-built one is ever taken for whole."""

from __future__ import annotations

import errno
import itertools
import os
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.toy import Toy, corpus, documents, store_of
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
from maskwright.text.store.tokenize import (
    SENTENCE_TERMINALS,
    WIDE_TERMINALS,
    build_store,
    sentence_starts,
)

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
    stream = iter(documents(TEXTS))
    store = build_store(stream, Toy(), tmp_path / "store")
    for number, text in enumerate(TEXTS):
        assert store.document(number).tolist() == Toy().encode(text)
    assert store.document_bytes.tolist() == [len(text.encode()) for text in TEXTS]
    assert (store.tokens[store.sentences[1:] - 1] == 57).all()
    assert len(store.sentences) == sum(len(sentence_starts(t)) for t in TEXTS)
    assert os.listdir(tmp_path) == ["store"] and list(stream) == []


def test_a_good_store_is_used_as_it_is(tmp_path: Path) -> None:
    first, toy, files = store_of(tmp_path, TEXTS), Toy(), Watched()
    again = build_store(documents(TEXTS), toy, tmp_path / "store", files=files)
    assert again.fingerprint == first.fingerprint
    assert (toy.encoded, files.count) == (0, 0)


def test_F85_a_store_of_another_text_or_tokenizer_is_not_overwritten(tmp_path: Path) -> None:
    before = contents(store_of(tmp_path, TEXTS).path)
    other = Toy()
    other.fingerprint = "other"
    with pytest.raises(IncompatibleError, match="text"):
        store_of(tmp_path, TEXTS[1:])
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


@pytest.mark.parametrize(
    ("texts", "num_bytes"), [([], []), ([" "], []), (["a.", " \n ", "b c.", "\t"], [2, 4])]
)
def test_F58_F59_documents_without_tokens_are_dropped_and_counted(
    tmp_path: Path, texts: list[str], num_bytes: list[int]
) -> None:
    store = TokenStore.open(store_of(tmp_path, texts).path, verify=True)
    assert store.document_bytes.tolist() == num_bytes
    assert store.manifest.about["dropped"] == len(texts) - len(num_bytes)
    if not num_bytes:
        assert (store.num_documents, store.num_tokens, store.largest_id) == (0, 0, -1)
        assert store.offsets.tolist() == [0]


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
@given(st.lists(st.integers(1, 30), max_size=30), st.integers(1, 60))
def test_parts_are_the_text(sizes: list[int], block: int) -> None:
    """Cut only at sentence starts, never above a block where a sentence allows it."""
    starts = np.cumsum([0, *sizes]).tolist()
    letters = [chr(97 + n % 26) for n in range(starts[-1] + 5)]
    for start in starts[1:]:
        letters[start] = " "
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenize, "BLOCK_CHARACTERS", block)
        parts = list(tokenize.cut_text("".join(letters), starts))
    assert "".join(part for part, _ in parts) == "".join(letters)
    begins = np.cumsum([0, *(len(part) for part, _ in parts)]).tolist()
    marked = [b + m for b, (_, marks) in zip(begins, parts, strict=False) for m in marks]
    assert marked == starts
    assert all(len(part) <= block or marks == [0] for part, marks in parts)


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


def test_one_long_document_is_encoded_in_parts(tmp_path: Path) -> None:
    sizes = []

    class Measured(Toy):
        def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
            sizes.append(sum(map(len, texts)))
            return super().encode_batch(texts)

    text = " ".join(TEXTS)
    assert store_of(tmp_path, [text], Measured()).document(0).tolist() == Toy().encode(text)
    assert max(sizes) < 1500 and len(sizes) > 5


def test_memory_does_not_grow_with_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("SHARD_BYTES", 200), ("BLOCK_CHARACTERS", 20), ("COPY_BYTES", 100)):
        monkeypatch.setattr(tokenize, name, size * 1000)

    class Quick(Toy):
        def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
            return [np.frombuffer(text.encode(), np.uint8) % 58 for text in texts]

        def encode_marked(self, texts: Sequence[str], marks: Any) -> list[Any]:
            return list(zip(self.encode_batch(texts), map(np.array, marks), strict=True))

    def peak(number: int) -> int:
        stream = (Document("lorem ipsum " * 2000, "s", str(n)) for n in range(number))
        tracemalloc.start()
        build_store(stream, Quick(), tmp_path / str(number), files=Unhurried())
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    few, many = peak(40), peak(400)  # 1 MB and 10 MB of text
    assert many < min(2 * few, 4_000_000)  # how far the reader runs ahead varies


# ------------------------------------------------------------------------------ faults
def then_raise(texts: list[str], error: BaseException) -> Iterator[Document]:
    yield from documents(texts)
    raise error


def test_F83_an_exception_in_the_source_leaves_no_store_and_keeps_shards(tmp_path: Path) -> None:
    toy, resumed = Toy(), Toy()
    with pytest.raises(DataError, match="a bad row"):
        build_store(then_raise(TEXTS[:-5], DataError("a bad row")), toy, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    assert len(list((tmp_path / ".work-store").glob("shard-*"))) >= 3
    store = store_of(tmp_path, TEXTS, resumed)
    assert resumed.encoded < toy.encoded
    assert contents(store.path) == contents(store_of(tmp_path / "other", TEXTS).path)


def test_F82_shards_of_an_earlier_attempt_are_checked(tmp_path: Path) -> None:
    """Damaged, exchanged, of another text: made again, never trusted."""

    def stop(folder: Path, texts: list[str]) -> list[Path]:
        with pytest.raises(Killed):
            build_store(then_raise(texts, Killed()), Toy(), folder / "store")
        return sorted((folder / ".work-store").glob("shard-*"))

    shard = stop(tmp_path / "damaged", TEXTS)[0] / "tokens.bin"
    shard.write_bytes(b"\0" * shard.stat().st_size)
    first, second, *_ = stop(tmp_path / "exchanged", TEXTS)
    first.rename(tmp_path / "aside")
    second.rename(first)
    (tmp_path / "aside").rename(second)
    stop(tmp_path / "older", TEXTS[::-1])
    whole = contents(store_of(tmp_path / "whole", TEXTS).path)
    for folder in ("damaged", "exchanged", "older"):
        assert contents(store_of(tmp_path / folder, TEXTS).path) == whole


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Watched], TokenStore]:
    """Builds a store of two shards with as few operations as that takes."""
    monkeypatch.setattr(tokenize, "SHARD_BYTES", 400)
    return lambda folder, files: build_store(
        documents(TEXTS[:10]), Toy(), folder / "store", files=files
    )


def resumed(build: Any, folder: Path) -> dict[str, bytes]:
    """What a second attempt makes where the first was stopped; a store that is there is whole."""
    if (folder / "store").exists():
        TokenStore.open(folder / "store", verify=True)
    return contents(build(folder, Unhurried()).path)


def test_F83_killed_at_every_operation(tmp_path: Path, build: Any) -> None:
    files = Watched()
    whole = contents(build(tmp_path / "whole", files).path)
    assert files.count > 60
    for point in range(1, files.count + 1):
        with pytest.raises(Killed):
            build(tmp_path / str(point), Dying(point))
        assert resumed(build, tmp_path / str(point)) == whole


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, StoppedError), (errno.EIO, StorageError), (errno.EACCES, OutputError)],
)
def test_F83_an_error_at_every_operation(
    tmp_path: Path, build: Any, number: int, kind: type[MaskwrightError]
) -> None:
    """A full disk at each operation; the other errors, told apart by their number, at some."""
    files = Watched()
    whole = contents(build(tmp_path / "whole", files).path)
    refused, every = 0, 1 if number == errno.ENOSPC else 6
    for point in range(1, files.count + 1, every):
        try:
            build(tmp_path / str(point), Failing(number, point))
        except MaskwrightError as told:
            assert type(told) is kind
            refused += 1
        assert resumed(build, tmp_path / str(point)) == whole
    assert refused > 10 // every or number == errno.EIO


def test_F11_two_builders_of_one_store(tmp_path: Path) -> None:
    with Lock(tmp_path / ".work-store/build.lock"), pytest.raises(StoppedError):
        store_of(tmp_path, TEXTS)
    store_of(tmp_path, TEXTS)


def split(text: str) -> list[str]:
    starts = [*sentence_starts(text), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(starts)]


@pytest.mark.parametrize(
    "parts",
    [
        ["One sentence."],
        ["It rains.", " We stay."],
        ["Really?!", " Yes…", " No!"],
        ['He said "Go."', " Then he went."],
        ["(It rained.)", " The end."],
        ["Mr. Smith met Dr. J. Watson at No. 5 in Jan. 1890.", " They spoke."],
        ["Version 3.14 of e.g. this is vs. that.", " Next."],
        ["it goes on. and on.", " But ends."],
        ["A title", "\n\nThen text.", "\n  \n\nMore."],
        ["One line\nof two.", "\nNext."],
        ["終わり。", " 次。"],
        ["Café?", " Été 2020."],
        ["Trailing space.  \n\n"],
        ["   leading."],
        ['End."', ' "Start.'],
        ["他来了。", "我走了！", "天气很好吗？", "是的。"],
        ["「はい。」", "そうです。"],
        ["Yes.", " 好。", " Then."],
        ["5 apples.", " 3 pears."],
        ["यह ठीक है।", " वह गया॥", " फिर।"],
        ["እሺ።", " ጥሩ፧", " አዎ።"],
        ["Այո։", " Ոչ։"],
        ["ဟုတ်ကဲ့။", " မဟုတ်ဘူး။"],
        ["3．5 × 2, “a․b” and ¿que? no."],  # a mark alone ends nothing
    ],
)
def test_by_example(parts: list[str]) -> None:
    assert split("".join(parts)) == parts


def test_the_table_of_terminals_is_unicodes() -> None:
    regex = pytest.importorskip("regex")
    has_property = regex.compile(r"\p{Sentence_Terminal}")
    every = "".join(c for c in map(chr, range(0x110000)) if has_property.match(c))
    assert every == SENTENCE_TERMINALS and {*WIDE_TERMINALS} < {*every}
    assert every != SENTENCE_TERMINALS.replace("។", "")  # the control


@given(st.text(alphabet="aB.!?\n \t\"')(。", max_size=200))
def test_starts_ascend_and_cut_before_white_space(text: str) -> None:
    starts = sentence_starts(text)
    assert starts[0] == 0 and starts == sorted(set(starts))
    for start in starts[1:]:
        assert text[start].isspace() or text[start - 1] in "。\"')"
        assert not text[start - 1].isspace()
        assert text[start:].strip()


@pytest.mark.parametrize(
    "unit", [".", "\n", " ", ". ", "A. ", "\n \n", '."', "a", ".\n", "? )", "\n\t", "…", "Mr. "]
)
@pytest.mark.timeout(60)
def test_F66_a_million_characters_of_one_kind(unit: str) -> None:
    """A quadratic rule would take hours here."""
    text = unit * (1_000_000 // len(unit))
    assert len(sentence_starts(text)) <= len(text) // len(unit) + 1
