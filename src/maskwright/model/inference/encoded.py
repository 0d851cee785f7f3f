"""Labelled texts as ids, and the batches they make.

    texts 3 7 1 … of a file  ->  [CLS] a a [SEP] [CLS] b [SEP] pad     documents 1 1 1 1 2 2 2 0
                                 [CLS] c c c c [SEP] pad pad                     1 1 1 1 1 1 0 0

Several short texts share a row, blind to each other, so that next to nothing is padding: a step
costs what its texts are long, not what its longest is. Rows have one width wherever the texts
allow it, because every new size of a product costs its compilation (model/nn/kernels/linear.py).

Letters: N texts, R of them in a batch, B rows, T positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import DataError
from maskwright.model.objectives.base.sequences import Origin, Sequences, first_places, pack
from maskwright.text.store.pack import best_fit
from maskwright.text.store.rows import spread

if TYPE_CHECKING:
    from maskwright.model.batch import Batch

# Positions of a row, unless a text is longer; a multiple of what matrix units take at once.
WIDTH, MULTIPLE = 128, 32


@dataclass(frozen=True)
class Collation:
    """How a model reads texts: `pad` fills rows, a text is understood at its `last` token or at its
    first, and a decoder beside an encoder reads the text behind `decoder_start`. With `alone` no
    two texts share a row."""

    pad: int
    last: bool
    decoder_start: int | None = None
    alone: bool = False


@dataclass(frozen=True)
class EncodedExamples:
    """Texts with their frames, in the order of the file.

    Attributes:
        texts: ids of all texts, special tokens among them.
        labels: (N,) classes, (N, L) zeros and ones or numbers, or (N / choices,) right choices.
            With `places`: (M,) the class of each place, or (N, 2) at which of its text's own places
            an answer begins and ends, counted from 0; -1: not known.
        segments: 0 or 1 for each id; None where the model has none.
        choices: how many texts in a row answer one question.
        pieces: (len(labels),) how many texts in a row are pieces of one, or answer one question;
            None: each is whole.
        places: where in each text something is predicted, rising, M in all; None where whole
            texts are.
        targets: what a decoder beside the encoder is to write for each text.
    """

    texts: Sequences
    labels: NDArray[np.int64] | NDArray[np.float32]
    segments: NDArray[np.int64] | None = None
    choices: int = 1
    pieces: NDArray[np.int64] | None = None
    places: Sequences | None = None
    targets: Sequences | None = None

    def __post_init__(self) -> None:
        count = len(self.texts.lengths)
        expected = len(self.labels) * self.choices
        if self.pieces is not None:
            expected = int(self.pieces.sum()) if len(self.pieces) == len(self.labels) else -1
        if self.places is not None and self.labels.ndim == 1:
            expected = count if len(self.labels) == len(self.places.tokens) else -1
        if count != expected or (self.places is not None and len(self.places.lengths) != count):
            raise DataError(
                "texts and labels are not equally many",
                where="labels",
                found=f"{count} texts, {len(self.labels)} labels",
                wanted="one for each place"
                if self.places is not None
                else f"{self.choices} text(s) a label",
            )
        if count and int(self.texts.lengths.min()) < 1:
            raise DataError("a text without a token", where=f"text {self.texts.lengths.argmin()}")

    def __len__(self) -> int:
        if self.pieces is not None:
            return len(self.pieces)
        return len(self.texts.lengths) // self.choices

    @property
    def num_scores(self) -> int:
        """How many scores, or rows of scores, there are to them: one for each label or place."""
        return len(self) if self.places is None else len(self.places.tokens)

    @property
    def training_indices(self) -> NDArray[np.int64]:
        """The numbers of examples to learn from, some twice: a window may hold no beginning of a
        word, or no end of an answer."""
        if self.places is None:
            return np.arange(len(self))
        if self.labels.ndim == 1:
            return np.flatnonzero(self.places.lengths > 0)
        labelled = np.flatnonzero((self.labels >= 0).any(1))
        # The first place of a text says that there is no answer. Where most windows have none, a
        # model learns to say so always; the others are then shown as often as these.
        answered = labelled[(self.labels[labelled] > 0).any(1)]
        missing = len(labelled) - 2 * len(answered)
        if not len(answered) or missing <= 0:
            return labelled
        return np.concatenate([labelled, np.resize(answered, missing)])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) how many ids each label's longest text has, or all its pieces."""
        if self.pieces is not None:
            return np.add.reduceat(self.texts.lengths, first_places(self.pieces))
        longest: NDArray[np.int64] = self.texts.lengths.reshape(-1, self.choices).max(1)
        return longest if self.targets is None else np.maximum(longest, self.targets.lengths)

    def batch(
        self, numbers: NDArray[np.int64], collation: Collation
    ) -> tuple[Batch, NDArray[np.int64]]:
        """The examples with these numbers, packed.

        Returns:
            The batch, and for each row of scores that a model gives it, which one of all it is.
        """
        if self.pieces is not None:
            return self._in_pieces(numbers, self.pieces, collation)
        size = self.choices
        longest = self.texts.lengths.reshape(-1, size)[numbers]
        if self.targets is not None:
            longest = np.maximum(longest, self.targets.lengths[numbers, None])
        width = _round(int(longest.max()))
        if not collation.alone:
            width = max(width, min(WIDTH, _round(int(longest.sum()))))
        # All choices of a question stay together: they are packed as one piece if they fit.
        question_lengths = longest.sum(1)
        together = bool((question_lengths <= width).all()) and not collation.alone
        if together:
            rows_of = np.repeat(best_fit(question_lengths, width), size)
            order = np.argsort(rows_of[::size], kind="stable")
        else:
            order = np.arange(len(numbers))
            rows_of = np.arange(len(numbers) * size)
        texts = (numbers[order][:, None] * size + np.arange(size)).reshape(-1)
        rows = rows_of.reshape(-1, size)[order].reshape(-1)
        begins = _begins(rows, self.texts.lengths[texts], width)
        if self.places is None:
            score_rows = numbers[order]
            read = begins + (self.texts.lengths[texts] - 1 if collation.last else 0)
            fields = {"labels": self.labels[score_rows], "pooled": read}
        else:
            score_rows, fields = self._at_places(texts, begins, self.places)
        return self._packed(texts, rows, width, collation, fields), score_rows

    def without_end(self, token: int) -> EncodedExamples:
        """The same without this token at the end of texts; of a text of nothing else the first
        stays."""
        lengths = self.texts.lengths
        positions = np.where(self.texts.tokens == token, 0, spread(lengths))
        lengths_left = np.maximum.reduceat(positions, first_places(lengths)) + 1
        stays = spread(lengths) < np.repeat(lengths_left, lengths)
        segments = None if self.segments is None else self.segments[stays]
        return replace(
            self, texts=Sequences(self.texts.tokens[stays], lengths_left), segments=segments
        )

    @property
    def plain(self) -> bool:
        """Whether each label or place belongs to one whole text, which is read by itself."""
        return self.choices == 1 and self.pieces is None and self.targets is None

    def in_line(
        self, numbers: NDArray[np.int64], collation: Collation
    ) -> tuple[Batch, NDArray[np.int64]]:
        """As `batch` of `plain` examples, all texts in one row, one after the other as numbered."""
        lengths = self.texts.lengths[numbers]
        rows, width = np.zeros(len(numbers), np.int64), int(lengths.sum())
        begins = first_places(lengths)
        if self.places is None:
            which = numbers
            read = begins + (lengths - 1 if collation.last else 0)
            fields = {"labels": self.labels[which], "pooled": read}
        else:
            which, fields = self._at_places(numbers, begins, self.places)
        return self._packed(numbers, rows, width, collation, fields), which

    def of_answers(
        self, numbers: NDArray[np.int64]
    ) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]] | None, Batch]:
        """The texts of these answers in order, their segments, and a batch that maps texts to
        answers."""
        import torch

        from maskwright.model.batch import Batch

        if self.pieces is None:
            texts = (numbers[:, None] * self.choices + np.arange(self.choices)).reshape(-1)
            targets = None
        else:
            counts = self.pieces[numbers]
            texts = np.repeat(first_places(self.pieces)[numbers], counts) + spread(counts)
            targets = torch.from_numpy(np.repeat(np.arange(len(numbers)), counts))
        chosen, at = self._take(texts)
        ends = np.cumsum(chosen.lengths)[:-1]
        segments = None if self.segments is None else np.split(self.segments[at], ends)
        batch = Batch(
            tokens=torch.empty(0, dtype=torch.int64),
            labels=torch.from_numpy(self.labels[numbers]),
            targets=targets,
        )
        return np.split(chosen.tokens, ends), segments, batch

    def _in_pieces(
        self, numbers: NDArray[np.int64], pieces: NDArray[np.int64], collation: Collation
    ) -> tuple[Batch, NDArray[np.int64]]:
        """Every piece is packed for itself, and says which label of the batch it belongs to."""
        counts = pieces[numbers]
        texts = np.repeat(first_places(pieces)[numbers], counts) + spread(counts)
        lengths = self.texts.lengths[texts]
        width = _round(int(lengths.max()))
        rows = np.arange(len(texts))
        if not collation.alone:
            width = max(width, min(WIDTH, _round(int(lengths.sum()))))
            rows = best_fit(lengths, width)
        order = np.argsort(rows, kind="stable")
        begins = np.empty_like(rows)
        begins[order] = _begins(rows[order], lengths[order], width)
        fields = {
            "labels": self.labels[numbers],
            "pooled": begins + (lengths - 1 if collation.last else 0),
            "targets": np.repeat(np.arange(len(numbers)), counts),
        }
        return self._packed(texts[order], rows[order], width, collation, fields), numbers

    def _packed(
        self,
        texts: NDArray[np.int64],
        rows: NDArray[np.int64],
        width: int,
        collation: Collation,
        fields: dict[str, NDArray[Any]],
    ) -> Batch:
        """These texts in these rows, rising, and what is `asked` of them."""
        import torch

        from maskwright.model.batch import Batch

        counts = np.bincount(rows)
        origin = Origin(rows, spread(counts) + 1)
        shape = (len(counts), width)
        chosen, token_indices = self._take(texts)
        packed = pack(chosen, origin, shape, collation.pad)
        segments = None
        if self.segments is not None:
            token_segments = Sequences(self.segments[token_indices], chosen.lengths)
            segments = pack(token_segments, origin, shape, 0)["tokens"]
        batch = Batch(
            **packed,  # type: ignore[arg-type]
            segments=segments,
            **{name: torch.from_numpy(value) for name, value in fields.items()},
        )
        if collation.decoder_start is None:
            return batch
        written = chosen
        if self.targets is not None:
            written = Sequences(
                self.targets.tokens[_members(self.targets, texts)], self.targets.lengths[texts]
            )
        decoder = pack(written.shifted(collation.decoder_start), origin, shape, collation.pad)
        names = {f"decoder_{name}": value for name, value in decoder.items()}
        if self.targets is not None:
            documents = decoder["documents"]
            real = None if documents is None else documents.reshape(-1).nonzero()[:, 0]
            names["index"] = real
            names["targets"] = torch.from_numpy(written.tokens)
        return Batch(**{**vars(batch), **names})

    def _at_places(
        self, texts: NDArray[np.int64], begins: NDArray[np.int64], predicted: Sequences
    ) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
        """Which places are predicted, and their part of a batch; `texts` begin at `begins`."""
        counts = predicted.lengths[texts]
        score_rows = _members(predicted, texts)
        index = np.repeat(begins, counts) + predicted.tokens[score_rows]
        if self.labels.ndim == 1:
            return score_rows, {"index": index, "targets": self.labels[score_rows]}
        ends = self.labels[texts]
        offsets = first_places(counts)
        return score_rows, {
            "index": index,
            "targets": np.repeat(np.arange(len(texts)), counts),
            "labels": np.where(ends >= 0, ends + offsets[:, None], ends),
        }

    def _take(self, texts: NDArray[np.int64]) -> tuple[Sequences, NDArray[np.int64]]:
        """These texts, and where their ids stand among all."""
        at = _members(self.texts, texts)
        return Sequences(self.texts.tokens[at], self.texts.lengths[texts]), at


def framed(texts: list[list[int]]) -> Sequences:
    """Texts that already have their special tokens, as one array."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    tokens = np.fromiter((i for text in texts for i in text), dtype=np.int64, count=lengths.sum())
    return Sequences(tokens, lengths)


def _members(sequences: Sequences, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the items of the chosen sequences stand among all."""
    lengths = sequences.lengths[chosen]
    return np.repeat(first_places(sequences.lengths)[chosen], lengths) + spread(lengths)


def _begins(rows: NDArray[np.int64], lengths: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """Where in the batch each text begins, of texts in `rows`, rising."""
    before = first_places(lengths)
    return rows * width + before - before[np.searchsorted(rows, rows)]


def _round(length: int) -> int:
    return -(-length // MULTIPLE) * MULTIPLE
