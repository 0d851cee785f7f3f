"""Builds token stores from documents: streaming, resumable and deterministic.

    documents -> shards of 16 MiB of text -> .work-<name>/shard-00000/ …   one commit each
                                          -> <name>/                       joined, manifest last

A shard records the hash of its text and everything else that determines its bytes. A build that was
stopped reads the text again, which is cheap, and only tokenizes missing shards. While a shard is
written, the next is tokenized. A complete store of the same text and tokenizer is reused. A block
is the text that is encoded at once. The ends of shards and blocks depend on the text alone.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.base.config import fingerprint
from maskwright.base.errors import DataError, IncompatibleError, OutputError
from maskwright.base.storage.commit import (
    DISK,
    FileSystem,
    Lock,
    Staging,
    commit,
    read_manifest,
    remove_folder,
    verify,
)
from maskwright.text.corpus.reading import Document
from maskwright.text.store import BoolArray, IntArray
from maskwright.text.store.store import FILES, KIND, MANIFEST, TokenStore, checked_cast

SHARD_BYTES = 16 << 20
BLOCK_CHARACTERS = 1 << 20  # encoded at once: bounds the ids that exist as Python numbers
COPY_BYTES = 8 << 20
ROLES = ("pad", "unknown", "classify", "separator", "mask", "begin", "end")
Part = tuple[str, list[int]]  # text, and the characters in it where sentences start


class Encoder(Protocol):
    """The interface of a tokenizer that a store needs."""

    vocabulary_size: int
    fingerprint: str

    starts_word: BoolArray
    ends_word: BoolArray

    def encode_batch(self, texts: Sequence[str]) -> Sequence[NDArray[np.integer]]: ...

    def encode_marked(
        self, texts: Sequence[str], marks: Sequence[Sequence[int]]
    ) -> Sequence[tuple[NDArray[np.integer], NDArray[np.integer]]]: ...


def build_store(
    documents: Iterable[Document],
    tokenizer: Encoder,
    out: Path,
    *,
    sentences: bool = True,
    read: Callable[[], object] | None = None,
    files: FileSystem = DISK,
) -> TokenStore:
    """Tokenize `documents` into the store `out`, or return the store of these that exists there.

    Documents without tokens are dropped and counted.

    Args:
        documents: read once, in order, with bounded memory.
        sentences: record where sentences start; needed for sentence pairs.
        read: called after all documents are read, before the store exists.

    Raises:
        IncompatibleError: `out` is a valid store of another text or tokenizer.
        DataError: the tokenizer gives an id outside its own vocabulary.
        OutputError, StoppedError, StorageError: as `commit`.
    """
    out = Path(out)
    builder = _Builder(tokenizer, out, sentences, files)
    existing = builder.existing_store()
    if existing is not None:
        input_hash = join_hashes(shard.input for shard in shards(documents))
        builder.check_same("text", existing.manifest.about["input"], input_hash)
        if builder.work.is_dir():  # left by a build that was stopped at its end
            with Lock(builder.work / "build.lock"):
                remove_folder(builder.work, files)
        return existing
    # Only an incomplete or damaged store may be replaced.
    partial = out.is_dir() and {p.name for p in out.iterdir()} <= {MANIFEST, "tokens.bin", *FILES}
    if os.path.lexists(out) and not partial:
        raise OutputError(
            "the folder for the token store holds other files",
            where=out,
            do="choose another folder, or remove it first",
        )
    with Lock(builder.work / "build.lock"):
        folders = builder.make_shards(documents)
        expected = sum(path.stat().st_size for shard in folders for path in shard.glob("*.bin"))
        if read is not None:
            read()
        commit(
            out,
            lambda stage: builder.join(stage, folders),
            manifest=MANIFEST,
            expected_bytes=expected,
            replace=partial,
            files=files,
        )
        remove_folder(builder.work, files)
    return TokenStore.open(out)


# ------------------------------------------------------------------------------ shards and blocks
@dataclass
class TextShard:
    """Consecutive documents, and the hash of their text."""

    texts: list[str]
    bytes: list[int]
    input: str


def shards(documents: Iterable[Document]) -> Iterator[TextShard]:
    """Group consecutive documents into shards of at least SHARD_BYTES of text."""
    texts: list[str] = []
    sizes: list[int] = []
    total, digest = 0, hashlib.sha256()
    for document in documents:
        data = document.text.encode("utf-8")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
        texts.append(document.text)
        sizes.append(len(data))
        total += len(data)
        if total >= SHARD_BYTES:
            yield TextShard(texts, sizes, digest.hexdigest())
            texts, sizes, total, digest = [], [], 0, hashlib.sha256()
    if texts:
        yield TextShard(texts, sizes, digest.hexdigest())


def cut_text(text: str, starts: list[int]) -> Iterator[Part]:
    """Yield `text`, in parts that begin at sentences if it is longer than a block. Parts begin with
    white space, which no token spans."""
    begin, marks = 0, [0]
    for start, following in itertools.pairwise([*starts, len(text)]):
        if following - begin > BLOCK_CHARACTERS and start > begin and text[start].isspace():
            yield text[begin:start], marks
            begin, marks = start, [0]
        elif start > begin:
            marks.append(start - begin)
    yield text[begin:], marks


def blocks(pieces: Iterable[Part]) -> Iterator[list[Part]]:
    """Group parts into lists of at least BLOCK_CHARACTERS, except the last."""
    block: list[Part] = []
    size = 0
    for piece in pieces:
        block.append(piece)
        size += len(piece[0])
        if size >= BLOCK_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


def join_hashes(hashes: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


# ------------------------------------------------------------------------------ building
@dataclass
class _EncodedShard:
    """The ids of a shard, by block.

    Attributes:
        part_counts: parts of each document.
        sizes: tokens of each part.
        marks: token positions in the shard where sentences start.
    """

    part_counts: list[int] = field(default_factory=list)
    tokens: list[NDArray[np.integer]] = field(default_factory=list)
    sizes: list[IntArray] = field(default_factory=list)
    marks: list[IntArray] = field(default_factory=list)


def encode_parts(
    tokenizer: Encoder, parts: Sequence[Part], sentences: bool = True
) -> tuple[NDArray[np.integer], IntArray, IntArray]:
    """Return the ids of some parts, the tokens of each, and the positions where sentences start."""
    texts = [text for text, _ in parts]
    mark_indices: list[NDArray[np.integer]] = []
    if sentences:
        marked = tokenizer.encode_marked(texts, [marks for _, marks in parts])
        ids, mark_indices = [array for array, _ in marked], [array for _, array in marked]
    else:
        ids = list(tokenizer.encode_batch(texts))
    sizes = np.fromiter(map(len, ids), np.int64, len(ids))
    nothing = np.zeros(0, np.uint32)
    tokens = checked_cast(np.concatenate([nothing, *ids]), tokenizer.vocabulary_size)
    counts = np.fromiter(map(len, mark_indices), np.int64, len(mark_indices))
    flat = np.concatenate([nothing, *mark_indices]).astype(np.int64)
    begins = (np.cumsum(sizes) - sizes)[: len(counts)]
    inside = flat < np.repeat(sizes[: len(counts)], counts)  # not those of parts without tokens
    return tokens, sizes, np.unique((np.repeat(begins, counts) + flat)[inside])


class _Builder:
    def __init__(self, tokenizer: Encoder, out: Path, sentences: bool, files: FileSystem) -> None:
        self.tokenizer, self.out = tokenizer, out
        self.sentences, self.files = sentences, files
        self.work = out.with_name(f".work-{out.name}")
        self.facts: dict[str, Any] = {
            "tokenizer": tokenizer.fingerprint,
            "vocabulary_size": tokenizer.vocabulary_size,
            "special": _special_ids(tokenizer),
            "with_sentences": sentences,
        }

    def existing_store(self) -> TokenStore | None:
        """Return the existing store; None if there is none, or a damaged one."""
        try:
            about = read_manifest(self.out, manifest=MANIFEST, error=DataError).about
            store = TokenStore.open(self.out, verify=True)
        except DataError:
            return None
        for name, expected in self.facts.items():
            self.check_same(name.replace("_", " "), about.get(name), expected)
        return store

    def check_same(self, label: str, recorded: object, expected: object) -> None:
        if recorded != expected:
            raise IncompatibleError(
                f"a token store of another {label} stands there",
                where=self.out,
                found=recorded,
                wanted=expected,
                do="choose another folder, or remove it first",
            )

    # -------------------------------------------------------------------------- shards
    def make_shards(self, documents: Iterable[Document]) -> list[Path]:
        """Write all shards, reusing those of an earlier build if nothing changed."""
        folders: list[Path] = []
        with ThreadPoolExecutor(1) as writer:
            writing: Future[Any] | None = None
            for number, shard in enumerate(shards(documents)):
                path = self.work / f"shard-{number:05}"
                folders.append(path)
                about = {**self.facts, "shard": number, "input": shard.input}
                if self._is_made(path, about):
                    continue
                encoded = self._encode(shard)
                if writing is not None:
                    writing.result()
                writing = writer.submit(self._write_shard, path, shard, encoded, about)
            if writing is not None:
                writing.result()
        return folders

    def _is_made(self, path: Path, about: dict[str, Any]) -> bool:
        if not path.is_dir():
            return False
        try:
            recorded = verify(path, manifest=MANIFEST, error=DataError).about
        except DataError:
            return False
        return {name: recorded.get(name) for name in about} == about

    def _encode(self, shard: TextShard) -> _EncodedShard:
        """Encode the documents of a shard, in order; a thread encodes while this one cuts."""
        encoded, total = _EncodedShard(), 0
        cut = blocks(self._cut(shard, encoded.part_counts))
        encode_block = functools.partial(encode_parts, self.tokenizer, sentences=self.sentences)
        with ThreadPoolExecutor(1) as encoder:
            for tokens, sizes, marks in encoder.map(encode_block, cut):
                encoded.tokens.append(tokens)
                encoded.sizes.append(sizes)
                encoded.marks.append(total + marks)
                total += len(tokens)
        return encoded

    def _cut(self, shard: TextShard, counts: list[int]) -> Iterator[Part]:
        """Yield the parts of all documents; appends the number of parts of each to `counts`."""
        for text in shard.texts:
            split = self.sentences or len(text) > BLOCK_CHARACTERS
            text_parts = list(cut_text(text, sentence_starts(text) if split else [0]))
            counts.append(len(text_parts))
            yield from text_parts

    def _write_shard(
        self, path: Path, shard: TextShard, encoded: _EncodedShard, about: dict[str, Any]
    ) -> None:
        sizes = np.concatenate([np.zeros(0, np.int64), *encoded.sizes])
        marks = np.concatenate([np.zeros(0, np.int64), *encoded.marks])
        lengths = np.add.reduceat(sizes, np.cumsum([0, *encoded.part_counts[:-1]]))
        nonempty = lengths > 0
        largest = max((int(t.max()) for t in encoded.tokens if t.size), default=-1)

        def write(stage: Staging) -> None:
            stage.write_bytes("tokens.bin", (_raw(t) for t in encoded.tokens))
            stage.write_bytes("lengths.bin", _raw(lengths[nonempty]))
            stage.write_bytes("sentences.bin", _raw(marks))
            stage.write_bytes("document_bytes.bin", _raw(np.array(shard.bytes, np.int64)[nonempty]))

        facts = {
            **about,
            "tokens": int(lengths.sum()),
            "documents": int(nonempty.sum()),
            "dropped": int((~nonempty).sum()),
            "largest_id": largest,
        }
        commit(path, write, manifest=MANIFEST, about=facts, replace=path.is_dir(), files=self.files)

    # -------------------------------------------------------------------------- the store
    def join(self, stage: Staging, shards: list[Path]) -> None:
        """Write the files of the store from those of its shards, in pieces of COPY_BYTES."""
        facts = [read_manifest(shard, manifest=MANIFEST, error=DataError).about for shard in shards]
        bases = np.cumsum([0, *(f["tokens"] for f in facts)])
        for name in ("tokens.bin", "document_bytes.bin"):
            pieces = (file_pieces(shard / name) for shard in shards)
            stage.write_bytes(name, itertools.chain.from_iterable(pieces))
        with stage.create("offsets.bin") as offsets, stage.create("sentences.bin") as sentences:
            offsets.write(_raw(np.zeros(1, np.int64)))
            for shard, base in zip(shards, bases, strict=False):
                lengths = np.fromfile(shard / "lengths.bin", "<i8")
                offsets.write(_raw(base + np.cumsum(lengths)))
                sentences.write(_raw(base + np.fromfile(shard / "sentences.bin", "<i8")))
        for name in ("starts_word", "ends_word"):
            table = np.asarray(getattr(self.tokenizer, name), dtype=bool)
            stage.write_bytes(f"{name}.bin", _raw(table.astype(FILES[f"{name}.bin"])))
        stage.about.update(self.facts)
        stage.about.update(
            kind=KIND,
            tokens=int(bases[-1]),
            documents=sum(f["documents"] for f in facts),
            dropped=sum(f["dropped"] for f in facts),
            largest_id=max((f["largest_id"] for f in facts), default=-1),
            input=join_hashes(f["input"] for f in facts),
        )


def _raw(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data


def file_pieces(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in pieces of `COPY_BYTES`."""
    with open(path, "rb") as file:
        while piece := file.read(COPY_BYTES):
            yield piece


def _special_ids(tokenizer: Encoder) -> dict[str, int]:
    """Return the ids of special tokens by role."""
    ids = {role: getattr(tokenizer, role, None) for role in ROLES}
    return {role: int(number) for role, number in ids.items() if number is not None}


# ------------------------------------------------------------------------------ texts in memory
class TextStore(TokenStore):
    """A `TokenStore` of `texts` in memory, one document each, with their sentences; texts without
    tokens are left out.

    Raises:
        TokenizerError: a text that cannot be tokenized.
        DataError: the tokenizer gives an id outside its own vocabulary.
    """

    def __init__(self, texts: Sequence[str], tokenizer: Encoder) -> None:
        tokens, sizes, sentences = encode_parts(tokenizer, [(t, sentence_starts(t)) for t in texts])
        self.path = Path("text")
        self.vocabulary_size = tokenizer.vocabulary_size
        self.tokens, self.sentences = tokens, sentences
        self.offsets = np.concatenate([[0], np.cumsum(sizes[sizes > 0])])
        bytes_of_texts = np.array([len(text.encode()) for text in texts], np.int64)
        self.document_bytes = bytes_of_texts[sizes > 0]
        self.starts_word = np.asarray(tokenizer.starts_word, dtype=bool)
        self.ends_word = np.asarray(tokenizer.ends_word, dtype=bool)
        self.special = _special_ids(tokenizer)
        self.largest_id = int(tokens.max()) if len(tokens) else -1
        self.tokenizer_fingerprint = tokenizer.fingerprint
        self.num_tokens, self.num_documents = len(tokens), len(self.document_bytes)
        self.fingerprint = fingerprint(["texts", list(texts), tokenizer.fingerprint])


# ------------------------------------------------------------------------------ sentences
# The Unicode property Sentence_Terminal, of Unicode 18.0.0, as hexadecimal code points and ranges,
# read off the package `regex` 2026.11.15. It is stored because `unicodedata` has no such property,
# and because corpora and token stores must not depend on the version of a library.
_RANGES = """
    0021 002E 003F 0589 061D-061F 06D4 0700-0702 07F9 0837 0839 083D-083E 0964-0965 104A-104B
    1362 1367-1368 166E 1735-1736 17D4-17D5 1803 1809 1944-1945 1AA8-1AAB 1B4E-1B4F 1B5A-1B5B
    1B5E-1B5F 1B7D-1B7F 1C3B-1C3C 1C7E-1C7F 2024 203C-203D 2047-2049 2CF9-2CFB 2E2E 2E3C
    2E53-2E54 2E60-2E61 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9
    AA5D-AA5F AAF0-AAF1 ABEB FE12 FE15-FE16 FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57
    10F55-10F59 10F86-10F89 11047-11048 110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF
    11238-11239 1123B-1123C 112A9 113D4-113D5 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642
    1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44
    16A6E-16A6F 16AF5 16B37-16B38 16B44 16D6E-16D6F 16E98 1BC9F 1DA88
"""
SENTENCE_TERMINALS = "".join(
    chr(code)
    for first, _, last in (part.partition("-") for part in _RANGES.split())
    for code in range(int(first, 16), int(last or first, 16) + 1)
)
# These end a sentence without white space behind them: Chinese and Japanese write none.
WIDE_TERMINALS = "。！？｡︒︕︖"
# The ellipsis has not the property, as it often stands within a sentence; what follows it decides.
SPACED_TERMINALS = "".join(c for c in SENTENCE_TERMINALS if c not in WIDE_TERMINALS) + "…"
_OPENING = "\"'“‘«(\\[*–—-"


def _mark(terminals: str, wide: str) -> re.Pattern[str]:
    return re.compile(
        # Group 1: the letter after the mark; ASCII lower case is excluded at once.
        rf"[{re.escape(terminals)}][\"'”’»)\]]{{0,3}}"
        rf"(?=\s+[{_OPENING}]{{0,3}}([^a-z\s{_OPENING}]))"
        # Scripts without spaces between words have none between sentences.
        rf"|[{wide}][\"'”’»)\]」』）]{{0,3}}(?=\s*\S)"
    )


_ASCII_MARK = _mark(".!?", "。")  # four times as fast
_MARK = _mark(SPACED_TERMINALS, WIDE_TERMINALS)
_EMPTY_LINE = re.compile(r"\n[^\S\n]*\n\s*")
_SHORT = """
    Mr Mrs Ms Dr Prof St Sr Jr Gen Col Capt Lt Sgt Rev Hon Gov Sen Rep vs etc al cf e.g i.e viz
    approx No Nos Vol vol pp p Fig fig Eq eq Sec sec Ch ch Inc Ltd Co Corp Jan Feb Mar Apr Jun Jul
    Aug Sep Sept Oct Nov Dec
"""
_ABBREVIATIONS = frozenset(_SHORT.split())
_LONGEST = 1 + max(map(len, _ABBREVIATIONS))


def sentence_starts(text: str) -> list[int]:
    """Return the character offsets where sentences start; the first is 0.

    White space before a sentence belongs to it, so that tokenizers that mark words by the space
    before them tokenize the parts like the whole.
    """
    starts = {0}
    pattern = _ASCII_MARK if text.isascii() else _MARK
    for match in pattern.finditer(text):
        mark = match.start()
        small = match[1] is not None and match[1].islower()
        if not (small or (text[mark] == "." and _abbreviated(text, mark))):
            starts.add(match.end())
    for match in _EMPTY_LINE.finditer(text):
        start = match.start()
        while start and text[start - 1].isspace():
            start -= 1
        if match.end() < len(text):
            starts.add(start)
    return sorted(starts)


def _abbreviated(text: str, mark: int) -> bool:
    words = text[max(0, mark - _LONGEST) : mark].split()
    word = words[-1].lstrip(_OPENING) if words else ""
    return word in _ABBREVIATIONS or (len(word) == 1 and word.isupper())
