"""The rows of a training step, as a function of the step, so that no state has to be saved.

    n = step * batch_rows, …          samples, counted from the beginning of the run
    epoch, i = divmod(n, num_rows)
    row = permute(key("shuffle", seed, epoch), num_rows, i)

An `OrderedSource` determines the rows of these samples itself.

Every row comes once per epoch; a batch may span two epochs, so no row is dropped. The state is one
integer, which the trainer owns: the step, or the number of samples if batches differ in size. The
number of processes that share a batch does not change the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.base.config import fingerprint
from maskwright.base.errors import DataError, UsageError
from maskwright.base.randomness import key, permute
from maskwright.text.store.pairs import sentence_starts
from maskwright.text.store.rows import OrderedSource, Rows, RowSource, join
from maskwright.text.store.store import TokenStore, checked_cast
from maskwright.text.store.tokenize import ROLES, Encoder


class TextStore(TokenStore):
    """A `TokenStore` of `texts` in memory, one document each, with their sentences; texts without
    tokens are left out.

    Raises:
        TokenizerError: a text that cannot be tokenized.
        DataError: the tokenizer gives an id outside its own vocabulary.
    """

    def __init__(self, texts: Sequence[str], tokenizer: Encoder) -> None:
        encoded = tokenizer.encode_marked(texts, [sentence_starts(text) for text in texts])
        nonempty = [
            (text, ids, marks)
            for text, (ids, marks) in zip(texts, encoded, strict=True)
            if len(ids)
        ]
        sizes = [len(ids) for _, ids, _ in nonempty]
        flat = np.concatenate([np.zeros(0, np.int64), *(ids for _, ids, _ in nonempty)])
        self.path = Path("text")
        self.vocabulary_size = tokenizer.vocabulary_size
        self.tokens = checked_cast(flat.astype(np.int64), self.vocabulary_size)
        self.offsets = np.cumsum([0, *sizes])
        starts = [
            start + marks[marks < len(ids)].astype(np.int64)
            for start, (_, ids, marks) in zip(self.offsets, nonempty, strict=False)
        ]
        self.sentences = np.unique(np.concatenate([np.zeros(0, np.int64), *starts]))
        self.document_bytes = np.array([len(text.encode()) for text, *_ in nonempty], np.int64)
        self.starts_word = np.asarray(tokenizer.starts_word, dtype=bool)
        self.ends_word = np.asarray(tokenizer.ends_word, dtype=bool)
        roles = {role: getattr(tokenizer, role, None) for role in ROLES}
        self.special = {role: int(id) for role, id in roles.items() if id is not None}
        self.largest_id = int(flat.max()) if len(flat) else -1
        self.tokenizer_fingerprint = tokenizer.fingerprint
        self.num_tokens, self.num_documents = len(flat), len(nonempty)
        self.fingerprint = fingerprint(["texts", list(texts), tokenizer.fingerprint])


class Loader:
    """Batches of `batch_rows` rows of `source`, in the order of `seed`.

    Raises:
        DataError: the source has no rows.
    """

    def __init__(self, source: RowSource, batch_rows: int, seed: int) -> None:
        if len(source) == 0:
            raise DataError(
                "the text is too short for a single row",
                found=source.description,
                do="give more text, or shorten the rows",
            )
        if batch_rows < 1:
            raise UsageError(
                "a batch needs at least one row",
                found=batch_rows,
                wanted="1 or more",
                do="raise training.batch",
            )
        self.source, self.batch_rows, self.seed = source, batch_rows, seed
        self.fingerprint = fingerprint(["loader", 1, source.fingerprint, batch_rows, seed])

    def batch(
        self, step: int, rank: int = 0, world: int = 1
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return row numbers and their epochs, (batch_rows / world,) each, of step `step` from 0.

        Raises:
            UsageError: `world` does not divide the batch.
        """
        if self.batch_rows % world or not 0 <= rank < world or step < 0:
            raise UsageError(
                "the batch has no such slice",
                found=f"{rank} of {world}, step {step}",
                wanted=f"a divisor of {self.batch_rows} rows",
            )
        share = self.batch_rows // world
        return self.take(step * self.batch_rows + rank * share, share)

    def take(self, begin: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return row numbers and epochs, (count,) each, of `count` samples from number `begin`."""
        if isinstance(self.source, OrderedSource):
            return self.source.take(begin, count)
        epochs, positions = np.divmod(np.arange(begin, begin + count), len(self.source))
        keys = key("shuffle", self.seed, epochs)
        return permute(keys, len(self.source), positions), epochs

    def rows_of(self, indices: NDArray[np.int64], epochs: NDArray[np.int64]) -> Rows:
        """Return the rows with these numbers and epochs, in the given order."""
        groups = [np.flatnonzero(epochs == epoch) for epoch in np.unique(epochs)]
        chunks = [self.source.rows(indices[rows], int(epochs[rows[0]])) for rows in groups]
        if len(chunks) == 1:
            return chunks[0]
        return join(chunks).take(np.argsort(np.concatenate(groups)))

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Return the rows of `batch(step, rank, world)`."""
        return self.rows_of(*self.batch(step, rank, world))
