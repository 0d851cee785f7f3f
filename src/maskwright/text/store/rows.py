"""Rows of training data, and the sources that cut a token store into them.

    tokens       (B, T) int64   ids; padding where `documents` is 0
    positions    (B, T) int64   counted from 0 in each document, or in its part of the row
    documents    (B, T) int32   1, 2, … within the row; 0 is padding
    segments     (B, T) int64   0 for A, 1 for B; None where rows are no pairs
    special      (B, T) bool    framing and padding: never corrupted
    starts_word  (B, T) bool    the token begins a word
    ids          (B,)   int64   the row's number in its source: the counter of its random keys
    starts_sentence (B, T) bool the token begins a sentence; None where the store does not say
    pair_label   (B,)   int64   0: B follows A in its document, 1: it does not; None: no pairs

A source is a pure function: `rows(indices, epoch)` returns the same in every process, in any order
and for batches of any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from maskwright.base.config import fingerprint
from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.base.randomness import key, permute
from maskwright.text.store import BoolArray, IntArray
from maskwright.text.store.store import TokenStore

WINDOW = 1 << 16  # pieces that are packed together


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A batch of rows before corruption; the module's docstring describes the fields."""

    tokens: IntArray
    positions: IntArray
    documents: NDArray[np.int32]
    special: BoolArray
    starts_word: BoolArray
    ids: IntArray
    segments: IntArray | None = None
    starts_sentence: BoolArray | None = None
    pair_label: IntArray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def cut(self, start: int, stop: int | None) -> Rows:
        """Return the rows with the columns `start:stop` only."""
        return self._mapped(lambda value: value[:, start:stop] if value.ndim == 2 else value)

    def take(self, order: NDArray[np.integer]) -> Rows:
        """Return the rows at the indices `order`."""
        return self._mapped(lambda value: value[order])

    def _mapped(self, change: Any) -> Rows:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{n: change(v) for n, v in values.items() if v is not None})


class RowSource(Protocol):
    """Rows by number. `length` is the number of tokens of a row."""

    length: int
    fingerprint: str
    description: str

    def __len__(self) -> int: ...

    def rows(self, indices: NDArray[np.integer], epoch: int) -> Rows: ...


@runtime_checkable
class OrderedSource(RowSource, Protocol):
    """A source with its own order, which the loader does not shuffle."""

    def take(self, begin: int, count: int) -> tuple[IntArray, IntArray]:
        """Return row numbers and epochs, (count,) each, of `count` samples of a run from number
        `begin`; a pure function."""
        ...


def join(chunks: Sequence[Rows]) -> Rows:
    """Concatenate rows."""
    if len(chunks) == 1:
        return chunks[0]
    joined: dict[str, Any] = {}
    for field in fields(Rows):
        values = [getattr(chunk, field.name) for chunk in chunks]
        if any(value is None for value in values):
            if not all(value is None for value in values):
                raise UsageError(f"rows with and without `{field.name}` do not mix")
            continue
        joined[field.name] = np.concatenate(values)
    return Rows(**joined)


def spread(lengths: NDArray[np.integer]) -> IntArray:
    """Return 0 … n-1 for each length n, concatenated: [2, 3] -> [0, 1, 0, 1, 2]."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - lengths, lengths)


def check_indices(indices: NDArray[np.integer], size: int, description: str) -> IntArray:
    """Return `indices` as int64; raise a UsageError for one outside of range(size)."""
    numbers = np.asarray(indices, dtype=np.int64)
    if numbers.size and (numbers.min() < 0 or numbers.max() >= size):
        raise UsageError(
            "no such row",
            where=description,
            wanted=f"0 to {size - 1}",
            found=f"{numbers.min()} to {numbers.max()}",
        )
    return numbers


# ------------------------------------------------------------------------------ packed documents
class PackedDocuments:
    """Framed documents of `store`, packed into rows of `length` tokens with almost no padding.

        [CLS] a a a a [SEP] [CLS] b b [SEP] [CLS] c c c [SEP] pad
          0   1 2 3 4   5     0   1 2   3     0   1 2 3   4    0     positions
          1   1 1 1 1   1     2   2 2   2     3   3 3 3   3    0     documents

    Documents longer than a row are split into pieces that fill a row; the rest and the short
    documents are packed by best-fit decreasing: from the largest piece down, each goes into the row
    where it leaves the least free space. This is done in windows of a keyed shuffle of the pieces,
    so that the documents of a row come from the whole store, and the result only depends on store,
    length and seed.

    Attributes:
        fill: the share of all positions that are not padding.
    """

    kind: ClassVar[str] = "packed"
    pieces: ClassVar[str] = "documents"

    def __init__(self, store: TokenStore, length: int, *, seed: int = 0) -> None:
        self.store, self.length = store, length
        special = store.special
        opening = special.get("classify", special.get("begin"))
        closing = special.get("separator", special.get("end"))
        self._opening = [] if opening is None else [opening]
        self._closing = [] if closing is None else [closing]
        self._pad = special.get("pad", 0)
        self._frame = len(self._opening) + len(self._closing)
        if length <= self._frame:
            raise IncompatibleError(
                "a row has no room for text",
                found=f"length {length}",
                wanted=f"more than {self._frame}",
                do="raise rows.length",
            )
        bounds = self._bounds()
        self._rows = _arrange(bounds, length, self._frame, seed)
        used = int(self._rows.lengths.sum()) + self._frame * len(self._rows.lengths)
        self.fill = used / max(1, len(self) * length)
        self.fingerprint = fingerprint([self.kind, 1, store.fingerprint, length, seed])
        self.description = (
            f"{len(bounds) - 1:,} {self.pieces} in {len(self):,} packed rows of {length}, "
            f"{self.fill:.1%} filled"
        )

    def _bounds(self) -> IntArray:
        """Return where pieces begin in the tokens of the store, and where the last one stops."""
        return np.asarray(self.store.offsets)

    def __len__(self) -> int:
        return len(self._rows.bounds) - 1

    def rows(self, indices: NDArray[np.integer], epoch: int) -> Rows:
        """Return rows of exactly `length` tokens, the same in every epoch."""
        numbers = check_indices(indices, len(self), self.description)
        shape, plan, opening = (len(numbers), self.length), self._rows, len(self._opening)
        counts = plan.bounds[numbers + 1] - plan.bounds[numbers]
        pieces = np.repeat(plan.bounds[numbers], counts) + spread(counts)
        lengths = plan.lengths[pieces]
        framed = lengths + self._frame
        begins = np.repeat(np.arange(len(numbers)) * self.length, counts) + plan.columns[pieces]

        step = spread(framed)  # 0 … within each framed piece
        flat_index = np.repeat(begins, framed) + step
        positions = np.zeros(shape, dtype=np.int64)
        positions.reshape(-1)[flat_index] = step
        documents = np.zeros(shape, dtype=np.int32)
        documents.reshape(-1)[flat_index] = np.repeat(spread(counts) + 1, framed)

        step = spread(lengths)
        flat_index = np.repeat(begins + opening, lengths) + step
        source = np.repeat(plan.starts[pieces], lengths) + step
        source_tokens = self.store.tokens[source]
        tokens = np.full(shape, self._pad, dtype=np.int64)
        flat = tokens.reshape(-1)
        flat[flat_index] = source_tokens
        for offset, token in enumerate(self._opening):
            flat[begins + offset] = token
        for offset, token in enumerate(self._closing):
            flat[begins + opening + lengths + offset] = token
        special = np.ones(shape, dtype=bool)
        special.reshape(-1)[flat_index] = False
        starts_word = np.zeros(shape, dtype=bool)
        starts_word.reshape(-1)[flat_index] = self.store.begins_word(source_tokens, step == 0)
        starts = self.store.begins_sentence(source)
        starts_sentence = None if starts is None else np.zeros(shape, dtype=bool)
        if starts_sentence is not None:
            starts_sentence.reshape(-1)[flat_index] = starts
        return Rows(
            tokens=tokens,
            positions=positions,
            documents=documents,
            special=special,
            starts_word=starts_word,
            starts_sentence=starts_sentence,
            ids=numbers,
        )


class PackedSentences(PackedDocuments):
    """Sentences of `store`, each framed as a document, so that a model learns sentences without
    context.

    Raises:
        IncompatibleError: the store does not record where sentences start.
    """

    kind = "packed-sentences"
    pieces = "sentences"

    def _bounds(self) -> IntArray:
        self.store.require_sentences()
        return np.unique(np.concatenate([self.store.offsets, self.store.sentences]))


@dataclass(frozen=True)
class _Plan:
    """Pieces in order of row and column; row r has pieces bounds[r] … bounds[r+1] - 1."""

    bounds: IntArray
    starts: IntArray
    lengths: IntArray
    columns: IntArray


def best_fit(sizes: NDArray[np.integer], capacity: int) -> IntArray:
    """Return the bin of each size by best-fit decreasing; bins of `capacity` are numbered from 0.

    Pieces of equal size are placed together: the bins with the smallest sufficient gap take as many
    as fit. The time grows with the number of distinct sizes, not of pieces.
    """
    bins = np.empty(len(sizes), dtype=np.int64)
    gaps: list[list[IntArray]] = [[] for _ in range(capacity + 1)]
    num_bins = 0
    order = np.argsort(-sizes, kind="stable")
    for pieces in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1):
        if not len(pieces):
            continue
        size, gap = int(sizes[pieces[0]]), int(sizes[pieces[0]])
        while len(pieces):
            while gap <= capacity and not gaps[gap]:
                gap += 1
            per_row = min(gap, capacity) // size
            needed = -(-len(pieces) // per_row)
            if gap > capacity:
                bins_used = np.arange(num_bins, num_bins + needed)
                num_bins += needed
            else:
                free = gaps[gap].pop()
                bins_used, rest = free[:needed], free[needed:]
                if len(rest):
                    gaps[gap].append(rest)
            filled = np.repeat(bins_used, per_row)[: len(pieces)]
            bins[pieces[: len(filled)]] = filled
            pieces = pieces[len(filled) :]
            in_last_bin = len(filled) - per_row * (len(bins_used) - 1)  # the last one may get fewer
            available = min(gap, capacity)
            for group, number in ((bins_used[:-1], per_row), (bins_used[-1:], in_last_bin)):
                if len(group) and available - number * size > 0:
                    gaps[available - number * size].append(group)
    return bins


def _arrange(offsets: IntArray, length: int, frame: int, seed: int) -> _Plan:
    """Split documents into pieces, shuffle these, and pack them into rows window by window."""
    room = length - frame
    starts, lengths = _cut(np.asarray(offsets), room)
    order = permute(key("pack", seed), max(1, len(starts)), np.arange(len(starts)))
    starts, lengths = starts[order], lengths[order]
    bins = np.empty(len(starts), dtype=np.int64)
    num_rows = 0
    for begin in range(0, len(starts), WINDOW):
        window = slice(begin, begin + WINDOW)
        bins[window] = num_rows + best_fit(lengths[window] + frame, length)
        num_rows = int(bins[window].max()) + 1
    order = np.argsort(bins, kind="stable")
    starts, lengths, bins = starts[order], lengths[order], bins[order]
    bounds = np.searchsorted(bins, np.arange(num_rows + 1))
    ends = np.cumsum(lengths + frame)
    row_starts = ends - lengths - frame
    columns = row_starts - row_starts[bounds[bins]] if num_rows else row_starts
    return _Plan(bounds, starts, lengths, columns)


def _cut(offsets: IntArray, room: int) -> tuple[IntArray, IntArray]:
    """Return starts and lengths of all pieces, of at most `room` tokens each."""
    sizes = np.diff(offsets)
    counts = -(-sizes // room)
    number = spread(counts)
    starts = np.repeat(offsets[:-1], counts) + number * room
    lengths = np.minimum(room, np.repeat(offsets[1:], counts) - starts)
    return starts, lengths


# ------------------------------------------------------------------------------ the store as a tape
class Stream:
    """Documents joined by the end token, the tape, cut into rows of `length` + 1 tokens.

        END doc doc | END doc doc doc | … END
        [-------- length + 1 --------)
                                     [-------- length + 1 --------)

    Every token except the first is a target exactly once: the last token of a row is a target there
    and an input in the next row. The last row is padded.

    The end token before a document is also the target after the previous one, so that a model
    learns both to stop and to begin (from the end token alone). Without an end token, the separator
    is used; without either, documents follow each other directly. Positions restart in each
    document and row.
    """

    def __init__(self, store: TokenStore, length: int) -> None:
        self.store, self.length = store, length
        self._end = store.special.get("end", store.special.get("separator"))
        self._pad = store.special.get("pad", 0)
        self._joint = int(self._end is not None)
        # Where each document starts on the tape, at the end token before it; the last entry is the
        # end token after all documents.
        self._starts = np.asarray(store.offsets + self._joint * np.arange(len(store.offsets)))
        self._total = int(self._starts[-1]) + self._joint
        self.fingerprint = fingerprint(["stream", 2, store.fingerprint, length])
        self.description = (
            f"stream of {store.num_documents:,} documents, {len(self):,} rows of {length} + 1"
        )

    def __len__(self) -> int:
        return max(0, -(-(self._total - 1) // self.length))

    def rows(self, indices: NDArray[np.integer], epoch: int) -> Rows:
        """Return rows of `length` + 1 tokens, the same in every epoch."""
        numbers = check_indices(indices, len(self), self.description)
        positions = numbers[:, None] * self.length + np.arange(self.length + 1)
        real = positions < self._total
        owner = self._owners(np.minimum(positions, self._total - 1))
        is_start = positions == self._starts[owner]
        end = is_start & bool(self._joint)
        flat = positions - self._joint * (owner + 1)
        document_begins = np.maximum(self._starts[owner], positions[:, :1])
        tokens = self.store.tokens[np.where(real & ~end, flat, 0)].astype(np.int64)
        fresh = (positions == document_begins) | (positions == self._starts[owner] + self._joint)
        starts_word = self.store.begins_word(tokens, fresh)
        if self._end is not None:
            tokens[end] = self._end
        tokens[~real] = self._pad
        special = end | ~real
        return Rows(
            tokens=tokens,
            positions=np.where(real, positions - document_begins, 0),
            documents=np.where(real, owner - owner[:, :1] + 1, 0).astype(np.int32),
            special=special,
            starts_word=starts_word & ~special,
            ids=numbers,
        )

    def _owners(self, positions: IntArray) -> IntArray:
        """Return the document of each position (B, T) of the tape, ascending in each row."""
        first_owners = np.searchsorted(self._starts, positions[:, 0], "right") - 1
        last_owners = np.searchsorted(self._starts, positions[:, -1], "right") - 1
        counts = last_owners - first_owners
        rows = np.repeat(np.arange(len(positions)), counts)
        new_documents = np.repeat(first_owners + 1, counts) + spread(counts)
        steps = np.zeros(positions.shape, dtype=np.int64)
        steps[rows, self._starts[new_documents] - positions[rows, 0]] = 1
        return first_owners[:, None] + np.cumsum(steps, axis=1)


class Windows:
    """Rows of `length` consecutive tokens, as if the store were one document.

    With a `step` of 1, a row begins at every offset; with a step of `length`, rows are consecutive
    blocks, of which the last is padded.
    """

    def __init__(self, store: TokenStore, length: int, step: int = 1) -> None:
        self.store, self.length, self.step = store, length, step
        self._pad = store.special.get("pad", 0)
        self.fingerprint = fingerprint(["windows", 1, store.fingerprint, length, step])
        self.description = f"{len(self):,} windows of {length} over {store.num_tokens:,} tokens"

    def __len__(self) -> int:
        return max(0, -(-(self.store.num_tokens - self.length + self.step) // self.step))

    def rows(self, indices: NDArray[np.integer], epoch: int) -> Rows:
        """Return rows; row `i` has tokens i * step … i * step + length - 1, in every epoch."""
        numbers = check_indices(indices, len(self), self.description)
        steps = np.arange(self.length)
        positions = numbers[:, None] * self.step + steps
        real = positions < self.store.num_tokens
        tokens = self.store.tokens[np.where(real, positions, 0)].astype(np.int64)
        word_starts = self.store.begins_word(tokens, np.broadcast_to(steps == 0, real.shape))
        sentences = self.store.begins_sentence(positions)
        return Rows(
            tokens=np.where(real, tokens, self._pad),
            positions=np.where(real, steps, 0),
            documents=real.astype(np.int32),
            special=~real,
            starts_word=word_starts & real,
            starts_sentence=sentences,
            ids=numbers,
        )


class Images(Windows):
    """The images of a store of pixels, one a row: `tokens` are the bytes of their pixels, and all
    else is empty."""

    def __init__(self, store: TokenStore) -> None:
        size = int(store.offsets[1])
        super().__init__(store, size, step=size)
        self.description = f"{len(self):,} images"

    def rows(self, indices: NDArray[np.integer], epoch: int) -> Rows:
        numbers = check_indices(indices, len(self), self.description)
        pixels = self.store.tokens.reshape(-1, self.length)[numbers].astype(np.int64)
        names = ("positions", "documents", "special", "starts_word")
        unread: dict[str, Any] = dict.fromkeys(names, np.zeros((len(numbers), 0), np.int64))
        return Rows(tokens=pixels, ids=numbers, **unread)
