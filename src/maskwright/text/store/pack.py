"""Rows for encoders: several framed documents per row, with almost no padding.

    [CLS] a a a a [SEP] [CLS] b b [SEP] [CLS] c c c [SEP] pad
      0   1 2 3 4   5     0   1 2   3     0   1 2 3   4    0     positions
      1   1 1 1 1   1     2   2 2   2     3   3 3 3   3    0     documents

Documents longer than a row are split into pieces that fill a row; the rest and the short documents
are packed by best-fit decreasing: from the largest piece down, each goes into the row where it
leaves the least free space. This is done in windows of a keyed shuffle of the pieces, so that the
documents of a row come from the whole store, and the result only depends on store, length and seed.
Single sentences are packed in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from maskwright.base.config import fingerprint
from maskwright.base.errors import IncompatibleError
from maskwright.base.randomness import key, permute
from maskwright.text.store.rows import Rows, check_indices, spread
from maskwright.text.store.store import TokenStore

WINDOW = 1 << 16


class PackedDocuments:
    """Framed documents of `store`, packed into rows of `length` tokens.

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

    def _bounds(self) -> NDArray[np.int64]:
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

    def _bounds(self) -> NDArray[np.int64]:
        store = self.store
        if not len(store.sentences):
            raise IncompatibleError(
                "the token store does not record where sentences start",
                where=store.path,
                do="build it with sentences",
            )
        return np.unique(np.concatenate([store.offsets, store.sentences]))


@dataclass(frozen=True)
class _Plan:
    """Pieces in order of row and column; row r has pieces bounds[r] … bounds[r+1] - 1."""

    bounds: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    columns: NDArray[np.int64]


def best_fit(sizes: NDArray[np.integer], capacity: int) -> NDArray[np.int64]:
    """Return the bin of each size by best-fit decreasing; bins of `capacity` are numbered from 0.

    Pieces of equal size are placed together: the bins with the smallest sufficient gap take as many
    as fit. The time grows with the number of distinct sizes, not of pieces.
    """
    bins = np.empty(len(sizes), dtype=np.int64)
    gaps: list[list[NDArray[np.int64]]] = [[] for _ in range(capacity + 1)]
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


def _arrange(offsets: NDArray[np.int64], length: int, frame: int, seed: int) -> _Plan:
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


def _cut(offsets: NDArray[np.int64], room: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return starts and lengths of all pieces, of at most `room` tokens each."""
    sizes = np.diff(offsets)
    counts = -(-sizes // room)
    number = spread(counts)
    starts = np.repeat(offsets[:-1], counts) + number * room
    lengths = np.minimum(room, np.repeat(offsets[1:], counts) - starts)
    return starts, lengths
