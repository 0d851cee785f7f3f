"""Labelled texts as ids, and the batches they make.

    texts 3 7 1 … of a file  ->  [CLS] a a [SEP] [CLS] b [SEP] pad     documents 1 1 1 1 2 2 2 0
                                 [CLS] c c c c [SEP] pad pad                     1 1 1 1 1 1 0 0

Several short texts share a row, blind to each other, so that next to nothing is padding: a step
costs what its texts are long, not what its longest is. Rows have one width wherever the texts
allow it, because every new size of a product costs its compilation (nn/linear.py).

Letters: N texts, R of them in a batch, B rows, T positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.data.batch import Batch
from maskwright.data.pack import best_fit
from maskwright.data.rows import spread
from maskwright.errors import DataError
from maskwright.objectives.sequences import Origin, Sequences, first_places, pack

# Positions of a row, unless a text is longer; a multiple of what matrix units take at once.
WIDTH, MULTIPLE = 128, 32


@dataclass(frozen=True)
class Reading:
    """How a model reads texts: `pad` fills rows, a text is understood at its `last` token or at its
    first, and a decoder beside an encoder reads the text behind `decoder_start`. With `alone` no
    two texts share a row."""

    pad: int
    last: bool
    decoder_start: int | None = None
    alone: bool = False


@dataclass(frozen=True)
class Examples:
    """Texts with their frames, in the order of the file.

    Attributes:
        texts: ids of all texts, special tokens among them.
        labels: (N,) classes, (N, L) zeros and ones or numbers, or (N / choices,) right choices.
        segments: 0 or 1 for each id; None where the model has none.
        choices: how many texts in a row answer one question.
    """

    texts: Sequences
    labels: NDArray[np.int64] | NDArray[np.float32]
    segments: NDArray[np.int64] | None = None
    choices: int = 1

    def __post_init__(self) -> None:
        count = len(self.texts.lengths)
        if count != len(self.labels) * self.choices:
            raise DataError("texts and labels are not equally many", where="labels",
                            found=f"{count} texts, {len(self.labels)} labels",
                            wanted=f"{self.choices} text(s) a label")  # fmt: skip
        if count and int(self.texts.lengths.min()) < 1:
            raise DataError("a text without a token", where=f"text {self.texts.lengths.argmin()}")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) how many ids each label's longest text has."""
        longest: NDArray[np.int64] = self.texts.lengths.reshape(-1, self.choices).max(1)
        return longest

    def batch(
        self, numbers: NDArray[np.int64], reading: Reading
    ) -> tuple[Batch, NDArray[np.int64]]:
        """The examples with these numbers, packed.

        Returns:
            The batch, and which of `numbers` its labels belong to, one after the other.
        """
        size = self.choices
        longest = self.texts.lengths.reshape(-1, size)[numbers]
        width = _round(int(longest.max()))
        if not reading.alone:
            width = max(width, min(WIDTH, _round(int(longest.sum()))))
        # All choices of a question stay together: they are packed as one piece if they fit.
        whole = longest.sum(1)
        together = bool((whole <= width).all()) and not reading.alone
        if together:
            rows_of = np.repeat(best_fit(whole, width), size)
            order = np.argsort(rows_of[::size], kind="stable")
        else:
            order = np.arange(len(numbers))
            rows_of = np.arange(len(numbers) * size)
        texts = (numbers[order][:, None] * size + np.arange(size)).reshape(-1)
        rows = rows_of.reshape(-1, size)[order].reshape(-1)
        counts = np.bincount(rows)
        origin = Origin(rows, spread(counts) + 1)
        shape = (len(counts), width)
        chosen, at = self._take(texts)
        packed = pack(chosen, origin, shape, reading.pad)
        begins = first_places(chosen.lengths)
        places = rows * width + begins - begins[np.searchsorted(rows, rows)]
        segments = None
        if self.segments is not None:
            both = Sequences(self.segments[at], chosen.lengths)
            segments = pack(both, origin, shape, 0)["tokens"]
        batch = Batch(
            **packed,  # type: ignore[arg-type]
            segments=segments,
            labels=torch.from_numpy(self.labels[numbers[order]]),
            pooled=torch.from_numpy(places + (chosen.lengths - 1 if reading.last else 0)),
        )
        if reading.decoder_start is None:
            return batch, order
        decoder = pack(chosen.shifted(reading.decoder_start), origin, shape, reading.pad)
        names = {f"decoder_{name}": value for name, value in decoder.items()}
        return Batch(**{**vars(batch), **names}), order

    def _take(self, texts: NDArray[np.int64]) -> tuple[Sequences, NDArray[np.int64]]:
        """These texts, and where their ids stand among all."""
        lengths = self.texts.lengths[texts]
        at = np.repeat(first_places(self.texts.lengths)[texts], lengths) + spread(lengths)
        return Sequences(self.texts.tokens[at], lengths), at


def framed(texts: list[list[int]]) -> Sequences:
    """Texts that already have their special tokens, as one array."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    tokens = np.fromiter((i for text in texts for i in text), dtype=np.int64, count=lengths.sum())
    return Sequences(tokens, lengths)


def _round(length: int) -> int:
    return -(-length // MULTIPLE) * MULTIPLE
