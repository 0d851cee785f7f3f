"""A stream of text kept within a number of bytes: all of it, or a fair and repeatable sample.

Libraries that train on whatever they are given run out of memory on large corpora. Here a document
falls into a shelf by the hash of its text and a seed; shelf k holds the documents whose hash lies
between 2^-(k+1)/4 and 2^-k/4 of the range. When the kept text passes the budget, the lowest shelf
is emptied, which keeps 84 % of the rest, and nothing more is laid there. The last shelf that holds
anything is never emptied: copies of one text all lie on one shelf, so it is cut to what fits. One
pass, no knowledge of the total, and the same documents in any order give the same sample.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Protocol
from zlib import crc32

from maskwright.base.counted import counted
from maskwright.base.errors import DataError, UsageError

HASHES = 1 << 64
SHELVES = 160  # four to a halving: enough for 2^40 times the budget
IN_MEMORY = 1 << 20  # bytes of one shelf before it moves to a temporary file
LONGEST_PIECE = 1 << 20  # characters; a longer document is sampled in pieces


class HasText(Protocol):
    """What a document has to offer here."""

    @property
    def text(self) -> str: ...


@dataclass(frozen=True)
class SampleSize:
    """How much was read and how much was used, in bytes of UTF-8 and in documents."""

    bytes_used: int
    bytes_seen: int
    documents_seen: int
    seed: int

    @property
    def complete(self) -> bool:
        """Whether everything that was read was used."""
        return self.bytes_used == self.bytes_seen

    def render(self) -> str:
        """One line for people."""
        if self.complete:
            return (
                f"used all of {amount(self.bytes_seen)}, {counted(self.documents_seen, 'document')}"
            )
        return f"sampled {amount(self.bytes_used)} of {amount(self.bytes_seen)}, seed {self.seed}"


def amount(size: int) -> str:
    """A number of bytes with its unit, such as `1.5 GB`."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


def text_of(document: HasText | str) -> str:
    """The text of a document, or the text itself."""
    return document if isinstance(document, str) else document.text


class Sample:
    """The kept part of a stream; a context manager, since large shelves are temporary files."""

    def __init__(self, budget_bytes: int, seed: int = 0) -> None:
        self._budget = budget_bytes
        self._seed = seed
        self._salt = seed.to_bytes(8, "little", signed=True)
        self._longest = max(256, min(LONGEST_PIECE, budget_bytes // 64))
        self._shelves: dict[int, IO[bytes]] = {}
        self._sizes: Counter[int] = Counter()
        self._lowest = 0
        self._cut = HASHES  # where the lowest shelf is cut: what has a larger hash is left out
        self._kept = self._seen = self._documents = 0

    def __enter__(self) -> Sample:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._shelves.values():
            file.close()
        self._shelves.clear()

    def add_all(self, documents: Iterable[HasText | str]) -> None:
        """Read `documents` to their end.

        Raises:
            DataError: a text that is not valid Unicode (half of a surrogate pair).
        """
        for number, document in enumerate(documents):
            text = text_of(document)
            self._documents += 1
            offset = 0
            for piece in pieces(text, self._longest):
                try:
                    self._add(piece.encode())
                except UnicodeEncodeError as error:
                    raise not_unicode(error, f"document {number}", offset) from error
                offset += len(piece)
        if self._kept > self._budget:
            self._cut_last()

    def _add(self, piece: bytes) -> None:
        self._seen += len(piece)
        hash_value = self._hash(piece)
        shelf = min(int(-4 * math.log2((hash_value + 1) / HASHES)), SHELVES - 1)
        if shelf < self._lowest or hash_value > self._cut:
            return
        file = self._shelves.get(shelf)
        if file is None:
            file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed on exit
            self._shelves[shelf] = file
        file.write(len(piece).to_bytes(4, "little") + piece)
        self._sizes[shelf] += len(piece)
        self._kept += len(piece)
        while self._over() and self._lowest < max(self._sizes):
            dropped = self._shelves.pop(self._lowest, None)
            if dropped is not None:
                dropped.close()
            self._kept -= self._sizes.pop(self._lowest, 0)
            self._lowest += 1
            self._cut = HASHES
        if self._kept > 2 * self._budget:
            self._cut_last()

    def _over(self) -> bool:
        """Whether more came than the budget, though less is left where a shelf was cut."""
        return self._kept > self._budget or self._cut < HASHES

    def _hash(self, piece: bytes) -> int:
        digest = hashlib.blake2b(piece, digest_size=8, key=self._salt).digest()
        return int.from_bytes(digest, "little")

    def _cut_last(self) -> None:
        """Cut the only shelf that holds anything to the budget, by hash, not by order of arrival.

        It holds few distinct texts: of many, one would have come to a higher shelf.
        """
        file = self._shelves[self._lowest]
        counts = Counter(_read(file))
        file.seek(0)
        file.truncate()
        self._kept = 0
        for piece in sorted(counts, key=self._hash):
            fitting = min(counts[piece], (self._budget - self._kept) // len(piece))
            for _ in range(fitting):
                file.write(len(piece).to_bytes(4, "little") + piece)
            self._kept += fitting * len(piece)
            if fitting < counts[piece]:
                self._cut = self._hash(piece)
                break
        self._sizes[self._lowest] = self._kept

    @property
    def size(self) -> SampleSize:
        """What has been read and kept so far."""
        return SampleSize(self._kept, self._seen, self._documents, self._seed)

    def __iter__(self) -> Iterator[str]:
        """The kept texts, shelf by shelf."""
        for shelf in sorted(self._shelves):
            for piece in _read(self._shelves[shelf]):
                yield piece.decode()


def _read(file: IO[bytes]) -> Iterator[bytes]:
    """The pieces of one shelf, in the order of their arrival."""
    file.seek(0)
    while head := file.read(4):
        yield file.read(int.from_bytes(head, "little"))
    file.seek(0, 2)


def pieces(text: str, longest: int) -> Iterator[str]:
    """`text` in pieces of at most `longest` characters, cut before white space if there is any."""
    start = 0
    while len(text) - start > longest:
        end = start + longest
        cut = max(text.rfind(" ", start + 1, end), text.rfind("\n", start + 1, end))
        end = cut if cut > start else end
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:] if start else text


def not_unicode(error: UnicodeEncodeError, where: str, offset: int = 0) -> DataError:
    """The refusal of a text that has half of a surrogate pair in it; `offset` characters of it came
    before those of the error."""
    return DataError(
        "the text is not valid Unicode: half of a surrogate pair",
        where=f"{where}, character {offset + error.start}",
        found=repr(error.object[error.start]),
        wanted="text that can be written as UTF-8",
        do="read the file with its right encoding, or drop the character",
    )


class WordCounts:
    """Counts of distinct words in bounded memory.

    When more than `limit` words are known, the rarest are forgotten until half are left; the floor
    below which they fell is `forgotten_below`, 0 while every count is exact.
    """

    def __init__(self, limit: int = 2_000_000) -> None:
        if limit < 2:
            raise UsageError(
                "too small a number of words to count", found=limit, wanted="2 or more"
            )
        self.counts: Counter[str] = Counter()
        self.forgotten_below = 0
        self._limit = limit

    def add(self, words: Iterable[str]) -> None:
        """Count `words`, a few thousand at a time."""
        self.counts.update(words)
        if len(self.counts) > self._limit:
            self._forget()

    def _forget(self) -> None:
        by_count = Counter(self.counts.values())
        remaining, floor = len(self.counts), 0
        while remaining > self._limit // 2:
            floor += 1
            remaining -= by_count[floor]
        # Where nearly all are met once, as the lines of a text without spaces are, nothing would be
        # left without those at the floor; a hash says which of them fill the half.
        ties = sorted((w for w, n in self.counts.items() if n == floor), key=hash_of)
        kept_counts = {w: n for w, n in self.counts.items() if n > floor}
        kept_counts |= dict.fromkeys(ties[: self._limit // 2 - remaining], floor)
        self.counts = Counter(kept_counts)
        self.forgotten_below = max(self.forgotten_below, floor + 1)


def hash_of(word: str) -> tuple[int, str]:
    """An order without meaning, the same in every process."""
    return crc32(word.encode()), word
