"""A stream of documents in parts of bounded size: shards, and blocks to encode at once.

A shard is committed as a whole, and skipped when a build is continued; a block is given to the
tokenizer at a time. The ends of both depend on the text alone.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from maskwright.text.corpus.document import Document

Part = tuple[str, list[int]]  # text, and the characters in it where sentences start

SHARD_BYTES = 16 << 20
BLOCK_CHARACTERS = 1 << 20  # encoded at once: bounds the ids that exist as Python numbers


@dataclass
class Shard:
    """Some consecutive documents, and the hash of their text."""

    number: int
    texts: list[str]
    bytes: list[int]
    input: str


def shards(documents: Iterable[Document]) -> Iterator[Shard]:
    """Consecutive documents, closed as soon as they have SHARD_BYTES of text."""
    numbers = itertools.count()
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
            yield Shard(next(numbers), texts, sizes, digest.hexdigest())
            texts, sizes, total, digest = [], [], 0, hashlib.sha256()
    if texts:
        yield Shard(next(numbers), texts, sizes, digest.hexdigest())


def parts(text: str, starts: list[int]) -> Iterator[Part]:
    """`text` as a whole, or cut at sentence starts if it is longer than a block. Cuts are only
    before white space, where no token lies across them."""
    begin, marks = 0, [0]
    for start, following in itertools.pairwise([*starts, len(text)]):
        if following - begin > BLOCK_CHARACTERS and start > begin and text[start].isspace():
            yield text[begin:start], marks
            begin, marks = start, [0]
        elif start > begin:
            marks.append(start - begin)
    yield text[begin:], marks


def blocks(pieces: Iterable[Part]) -> Iterator[list[Part]]:
    """Parts in lists of at least BLOCK_CHARACTERS, except the last list."""
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


def in_order(work: Callable[[Any], Any], items: Iterable[Any], workers: int) -> Iterator[Any]:
    """`map` with `threads` threads at once, a few items ahead, in order."""
    with ThreadPoolExecutor(workers) as pool:
        ahead: deque[Future[Any]] = deque()
        for item in items:
            ahead.append(pool.submit(work, item))
            if len(ahead) > workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def join_hashes(hashes: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()
