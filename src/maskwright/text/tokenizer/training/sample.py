"""Samples a stream of texts within a budget of bytes, in one pass and independent of the order.

A document belongs to a shelf by the hash of its text and a seed; shelf k has the documents whose
hash is between 2^-(k+1)/4 and 2^-k/4 of the range. When the kept text exceeds the budget, the
lowest shelf is emptied for good, which keeps 84 % of the text. The last shelf is never emptied but
cut to the budget, as all copies of a text are on one shelf.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Protocol
from zlib import crc32

from maskwright.base.errors import DataError, UsageError
from maskwright.base.terminal import counted

HASHES = 1 << 64
SHELVES = 160  # four to a halving: enough for 2^40 times the budget
IN_MEMORY = 1 << 20  # bytes of one shelf before it moves to a temporary file
LONGEST_PIECE = 1 << 20  # characters; a longer document is sampled in pieces


class HasText(Protocol):
    """The interface of a document."""

    @property
    def text(self) -> str: ...


@dataclass(frozen=True)
class SampleSize:
    """The size of the read text and of the sample, in bytes of UTF-8 and in documents."""

    bytes_used: int
    bytes_seen: int
    documents_seen: int
    seed: int

    @property
    def complete(self) -> bool:
        """Whether the sample is the whole text."""
        return self.bytes_used == self.bytes_seen

    def render(self) -> str:
        """Return the sizes as one line."""
        if self.complete:
            return (
                f"used all of {amount(self.bytes_seen)}, {counted(self.documents_seen, 'document')}"
            )
        return f"sampled {amount(self.bytes_used)} of {amount(self.bytes_seen)}, seed {self.seed}"


def amount(size: int) -> str:
    """Format a number of bytes, such as `1.5 GB`."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


def text_of(document: HasText | str) -> str:
    """Return the text of a document, or the text itself."""
    return document if isinstance(document, str) else document.text


class Sample:
    """A sample of a stream; a context manager, since large shelves are temporary files."""

    def __init__(self, budget_bytes: int, seed: int = 0) -> None:
        self._budget = budget_bytes
        self._seed = seed
        self._salt = seed.to_bytes(8, "little", signed=True)
        self._longest = max(256, min(LONGEST_PIECE, budget_bytes // 64))
        self._shelves = defaultdict[int, IO[bytes]](
            lambda: tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed on exit
        )
        self._sizes: Counter[int] = Counter()
        self._lowest = 0
        self._cut = HASHES  # pieces of the lowest shelf with a larger hash are left out
        self._kept = self._seen = self._documents = 0

    def __enter__(self) -> Sample:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._shelves.values():
            file.close()
        self._shelves.clear()

    def add_all(self, documents: Iterable[HasText | str]) -> None:
        """Add all documents of a stream.

        Raises:
            DataError: a text that is not valid Unicode (a lone surrogate).
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
        self._shelves[shelf].write(len(piece).to_bytes(4, "little") + piece)
        self._sizes[shelf] += len(piece)
        self._kept += len(piece)
        # A shelf that was cut already held more than the budget.
        while (self._kept > self._budget or self._cut < HASHES) and self._lowest < max(self._sizes):
            dropped = self._shelves.pop(self._lowest, None)
            if dropped is not None:
                dropped.close()
            self._kept -= self._sizes.pop(self._lowest, 0)
            self._lowest += 1
            self._cut = HASHES
        if self._kept > 2 * self._budget:
            self._cut_last()

    def _hash(self, piece: bytes) -> int:
        digest = hashlib.blake2b(piece, digest_size=8, key=self._salt).digest()
        return int.from_bytes(digest, "little")

    def _cut_last(self) -> None:
        """Cut the last shelf to the budget, by hash, not by order.

        It has few distinct texts: of many, one would be on a higher shelf.
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
        """The sizes of the read text and of the sample so far."""
        return SampleSize(self._kept, self._seen, self._documents, self._seed)

    def __iter__(self) -> Iterator[str]:
        """Yield the texts of the sample, shelf by shelf."""
        for shelf in sorted(self._shelves):
            for piece in _read(self._shelves[shelf]):
                yield piece.decode()


def _read(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the pieces of a shelf in the order in which they were added."""
    file.seek(0)
    while head := file.read(4):
        yield file.read(int.from_bytes(head, "little"))
    file.seek(0, 2)


def pieces(text: str, longest: int) -> Iterator[str]:
    """Split `text` into pieces of at most `longest` characters, before white space if possible."""
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
    """Return the error for a text with a lone surrogate; `offset` is that of the failed piece."""
    return DataError(
        "the text is not valid Unicode: half of a surrogate pair",
        where=f"{where}, character {offset + error.start}",
        found=repr(error.object[error.start]),
        wanted="text that can be written as UTF-8",
        do="read the file with its right encoding, or drop the character",
    )


class WordCounts:
    """Counts of distinct words in bounded memory.

    If there are more than `limit` words, the rarest are dropped until half are left; all words that
    occur less often than `forgotten_below`, 0 while every count is exact, may be missing.
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
        # If almost all words occur once, as in a text without spaces, too few would be left without
        # those at the floor; a hash chooses among them.
        ties = sorted((w for w, n in self.counts.items() if n == floor), key=hash_of)
        kept_counts = {w: n for w, n in self.counts.items() if n > floor}
        kept_counts |= dict.fromkeys(ties[: self._limit // 2 - remaining], floor)
        self.counts = Counter(kept_counts)
        self.forgotten_below = max(self.forgotten_below, floor + 1)


def hash_of(word: str) -> tuple[int, str]:
    """Return a key for an arbitrary order that is the same in every process."""
    return crc32(word.encode()), word
