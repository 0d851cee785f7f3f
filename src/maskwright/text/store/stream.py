"""Rows for causal models, and for studies of one text: the store as one sequence, the tape.

    Stream    END doc doc | END doc doc doc | … END    cut every `length`; the rows share one token
              [-------- length + 1 --------)
                                           [-------- length + 1 --------)
    Windows   every `step`-th offset of the tape begins a row, without framing

In `Stream` every token except the first is a target exactly once: the last token of a row is a
target there and an input in the next row. The last row is padded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maskwright.base.config import fingerprint
from maskwright.text.store.rows import Rows, check_indices, spread
from maskwright.text.store.store import TokenStore


class Stream:
    """Documents joined by the end token and cut into rows of `length` + 1 tokens.

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

    def _owners(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
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
