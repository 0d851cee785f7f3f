"""Tokenized labelled texts, and how they are packed into batches.

    texts 3 7 1 … of a file  ->  [CLS] a a [SEP] [CLS] b [SEP] pad     documents 1 1 1 1 2 2 2 0
                                 [CLS] c c c c [SEP] pad pad                     1 1 1 1 1 1 0 0

Several short texts share a row without attending to each other, so that there is little padding.
Rows have the same width wherever possible, because every new shape of a matrix product has to be
compiled (model/nn/kernels/linear.py).

Letters: N texts, R of them in a batch, B rows, T positions.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import DataError
from maskwright.model.objectives.base.corruption import Origin, Sequences, first_places, pack
from maskwright.text.images.processor import ImageProcessor
from maskwright.text.store.rows import best_fit, spread

if TYPE_CHECKING:
    from maskwright.model.batch import Batch

# Positions per row, unless a text is longer; widths are multiples of the size of matrix units.
WIDTH, MULTIPLE = 128, 32


@dataclass(frozen=True)
class Collation:
    """How texts are collated for a model: `pad` is the padding id, `last` says whether the state at
    the last token or at the first represents a text, and `decoder_start` is the start token of an
    encoder-decoder model, else None. With `alone` each text has a row of its own."""

    pad: int
    last: bool
    decoder_start: int | None = None
    alone: bool = False


@dataclass(frozen=True)
class ImageRows:
    """Images (N, S, S, C) as bytes, and what makes patches of them, batch by batch."""

    pixels: NDArray[np.uint8]
    processor: ImageProcessor
    patch_size: int

    @property
    def length(self) -> int:
        """The positions of an image."""
        return 1 + (self.pixels.shape[1] // self.patch_size) ** 2

    def patches(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the patches (R, T, K) of the images with these indices."""
        return self.processor.patches(self.pixels[numbers], self.patch_size)


@dataclass(frozen=True)
class EncodedExamples:
    """Tokenized examples with special tokens, in the order of the file.

    Attributes:
        texts: ids of all texts.
        labels: (N,) classes, (N, L) zeros and ones or numbers, or (N / choices,) correct choices.
            With `places`: (M,) the class of each place, or (N, 2) the index, among the places of
            its text, of the begin and end of an answer; -1 if unknown.
        segments: 0 or 1 for each id; None if the model has no segments.
        choices: number of consecutive texts that are the choices of one question.
        pieces: (len(labels),) number of consecutive texts that are pieces of one text, or choices
            of one question; None if each text is whole.
        places: increasing positions in each text for which something is predicted, M in total; None
            for predictions of whole texts.
        targets: decoder targets of each text for an encoder-decoder model.
        groups: (N,) a number for each example; those with the same one are trained on together,
            and an index stands for all of them. None: each by itself.
        images: the images that are read in place of `texts`, which then have their lengths alone.
    """

    texts: Sequences
    labels: NDArray[np.int64] | NDArray[np.float32]
    segments: NDArray[np.int64] | None = None
    choices: int = 1
    pieces: NDArray[np.int64] | None = None
    places: Sequences | None = None
    targets: Sequences | None = None
    groups: NDArray[np.int64] | None = None
    images: ImageRows | None = None

    @classmethod
    def of_images(cls, images: ImageRows, labels: NDArray[Any]) -> EncodedExamples:
        """Return examples of one image each; in place of ids stands a hash of its pixels."""
        lengths = np.full(len(images.pixels), images.length)
        digests = [hashlib.sha256(image.tobytes()).digest()[:8] for image in images.pixels]
        tokens = np.repeat(np.frombuffer(b"".join(digests), np.int64), lengths)
        return cls(Sequences(tokens, lengths), labels, images=images)

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
        """Number of rows of scores: one for each label or place."""
        return len(self) if self.places is None else len(self.places.tokens)

    @property
    def training_indices(self) -> NDArray[np.int64]:
        """Indices of the examples to train on. Examples without labelled places are left out;
        examples with an answer may be repeated; of a group there is the first."""
        if self.groups is not None:
            return np.unique(self.groups, return_index=True)[1]
        if self.places is None:
            return np.arange(len(self))
        if self.labels.ndim == 1:
            return np.flatnonzero(self.places.lengths > 0)
        labelled = np.flatnonzero((self.labels >= 0).any(1))
        # The first place of a text means that there is no answer. If most windows have none, a
        # model would always predict that; the others are therefore repeated up to equal numbers.
        answered = labelled[(self.labels[labelled] > 0).any(1)]
        num_repeats = len(labelled) - 2 * len(answered)
        if not len(answered) or num_repeats <= 0:
            return labelled
        return np.concatenate([labelled, np.resize(answered, num_repeats)])

    def with_groups(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices of the examples `numbers`, and of the others in their groups."""
        if self.groups is None:
            return numbers
        return np.flatnonzero(np.isin(self.groups, self.groups[numbers]))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of the longest text of each label, or of all its pieces together."""
        if self.pieces is not None:
            return np.add.reduceat(self.texts.lengths, first_places(self.pieces))
        longest: NDArray[np.int64] = self.texts.lengths.reshape(-1, self.choices).max(1)
        return longest if self.targets is None else np.maximum(longest, self.targets.lengths)

    def batch(
        self, numbers: NDArray[np.int64], collation: Collation
    ) -> tuple[Batch, NDArray[np.int64]]:
        """Pack the examples with the indices `numbers`.

        Returns:
            The batch, and for each row of the model's scores its index among those of all examples.
        """
        if self.images is not None:
            return self._of_images(self.images, numbers), numbers
        if self.pieces is not None:
            return self._in_pieces(numbers, self.pieces, collation)
        size = self.choices
        longest = self.texts.lengths.reshape(-1, size)[numbers]
        if self.targets is not None:
            longest = np.maximum(longest, self.targets.lengths[numbers, None])
        width = _round(int(longest.max()))
        if not collation.alone:
            width = max(width, min(WIDTH, _round(int(longest.sum()))))
        # The choices of a question stay in one row if they fit.
        question_lengths = longest.sum(1)
        fits_width = bool((question_lengths <= width).all()) and not collation.alone
        if fits_width:
            row_of_text = np.repeat(best_fit(question_lengths, width), size)
            order = np.argsort(row_of_text[::size], kind="stable")
        else:
            order = np.arange(len(numbers))
            row_of_text = np.arange(len(numbers) * size)
        texts = (numbers[order][:, None] * size + np.arange(size)).reshape(-1)
        rows = row_of_text.reshape(-1, size)[order].reshape(-1)
        begins = _begins(rows, self.texts.lengths[texts], width)
        score_rows, fields = self._score_fields(numbers[order], texts, begins, collation)
        return self._packed(texts, rows, width, collation, fields), score_rows

    def without_end(self, token: int) -> EncodedExamples:
        """Return the examples without `token` at the ends of texts; at least one id of a text is
        kept."""
        lengths = self.texts.lengths
        positions = np.where(self.texts.tokens == token, 0, spread(lengths))
        kept_lengths = np.maximum.reduceat(positions, first_places(lengths)) + 1
        is_kept = spread(lengths) < np.repeat(kept_lengths, lengths)
        segments = None if self.segments is None else self.segments[is_kept]
        return replace(
            self, texts=Sequences(self.texts.tokens[is_kept], kept_lengths), segments=segments
        )

    @property
    def plain(self) -> bool:
        """Whether each label or place belongs to a single whole text, without decoder targets."""
        return self.choices == 1 and self.pieces is None and self.targets is None

    def in_line(
        self, numbers: NDArray[np.int64], collation: Collation
    ) -> tuple[Batch, NDArray[np.int64]]:
        """As `batch` for `plain` examples, with all texts concatenated in one row, in order."""
        if self.images is not None:
            import torch

            batch = self._of_images(self.images, numbers)
            documents = np.repeat(
                np.arange(1, len(numbers) + 1, dtype=np.int32), self.images.length
            )
            batch = replace(batch, documents=torch.from_numpy(documents)[None])
            return replace(batch, tokens=batch.tokens.flatten(0, 1)[None]), numbers
        lengths = self.texts.lengths[numbers]
        rows, width = np.zeros(len(numbers), np.int64), int(lengths.sum())
        begins = first_places(lengths)
        score_rows, fields = self._score_fields(numbers, numbers, begins, collation)
        return self._packed(numbers, rows, width, collation, fields), score_rows

    def of_answers(
        self, numbers: NDArray[np.int64]
    ) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]] | None, Batch]:
        """Return the ids of each text of the examples `numbers`, the segments of each or None, and
        a batch without tokens, whose targets map each text to its example."""
        import torch

        from maskwright.model.batch import Batch

        if self.pieces is None:
            texts = (numbers[:, None] * self.choices + np.arange(self.choices)).reshape(-1)
            targets = None
        else:
            texts = members_of(self.pieces, numbers)
            targets = torch.from_numpy(np.repeat(np.arange(len(numbers)), self.pieces[numbers]))
        chosen, token_indices = self._take(texts)
        ends = np.cumsum(chosen.lengths)[:-1]
        segments = None if self.segments is None else np.split(self.segments[token_indices], ends)
        batch = Batch(
            tokens=torch.empty(0, dtype=torch.int64),
            labels=torch.from_numpy(self.labels[numbers]),
            targets=targets,
        )
        return np.split(chosen.tokens, ends), segments, batch

    def _of_images(self, images: ImageRows, numbers: NDArray[np.int64]) -> Batch:
        """Return a batch with an image in each row."""
        import torch

        from maskwright.model.batch import Batch

        return Batch(
            tokens=torch.from_numpy(images.patches(numbers)),
            labels=torch.from_numpy(self.labels[numbers]),
            pooled=torch.arange(len(numbers)) * images.length,
        )

    def _in_pieces(
        self, numbers: NDArray[np.int64], pieces: NDArray[np.int64], collation: Collation
    ) -> tuple[Batch, NDArray[np.int64]]:
        """Pack each piece separately; the batch's targets map pieces to labels."""
        texts = members_of(pieces, numbers)
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
            "targets": np.repeat(np.arange(len(numbers)), pieces[numbers]),
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
        """Build a batch of `texts` in the increasing `rows`, with the given further `fields`."""
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
        decoder_texts = chosen
        if self.targets is not None:
            decoder_texts = Sequences(
                self.targets.tokens[members_of(self.targets.lengths, texts)],
                self.targets.lengths[texts],
            )
        decoder = pack(decoder_texts.shifted(collation.decoder_start), origin, shape, collation.pad)
        decoder_fields = {f"decoder_{name}": value for name, value in decoder.items()}
        if self.targets is not None:
            documents = decoder["documents"]
            target_positions = None if documents is None else documents.reshape(-1).nonzero()[:, 0]
            decoder_fields["index"] = target_positions
            decoder_fields["targets"] = torch.from_numpy(decoder_texts.tokens)
        return Batch(**{**vars(batch), **decoder_fields})

    def _score_fields(
        self,
        numbers: NDArray[np.int64],
        texts: NDArray[np.int64],
        begins: NDArray[np.int64],
        collation: Collation,
    ) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
        """Return what scores are of: the examples `numbers`, or the indices of the places of
        `texts`, which begin at the flat positions `begins`; and the fields of a batch that refer to
        them."""
        predicted = self.places
        if predicted is None:
            pooled = begins + (self.texts.lengths[texts] - 1 if collation.last else 0)
            return numbers, {"labels": self.labels[numbers], "pooled": pooled}
        counts = predicted.lengths[texts]
        score_rows = members_of(predicted.lengths, texts)
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
        """Return the texts with these indices, and the indices of their ids among all."""
        token_indices = members_of(self.texts.lengths, texts)
        return Sequences(self.texts.tokens[token_indices], self.texts.lengths[texts]), token_indices


def framed(texts: list[list[int]]) -> Sequences:
    """Concatenate texts that already have their special tokens."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    tokens = np.fromiter((i for text in texts for i in text), dtype=np.int64, count=lengths.sum())
    return Sequences(tokens, lengths)


def members_of(lengths: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the flat indices of the items of the `chosen` of sequences of these `lengths`."""
    counts = lengths[chosen]
    return np.repeat(first_places(lengths)[chosen], counts) + spread(counts)


def _begins(rows: NDArray[np.int64], lengths: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """Return the flat position in the batch of the first id of each text, for increasing `rows`."""
    offsets = first_places(lengths)
    return rows * width + offsets - offsets[np.searchsorted(rows, rows)]


def _round(length: int) -> int:
    return -(-length // MULTIPLE) * MULTIPLE
