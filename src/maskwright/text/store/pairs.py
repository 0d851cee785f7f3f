"""Rows for next-sentence prediction, after BERT (Devlin et al. 2018, section 3.1 and appendix A.2),
and for sentence-order prediction, after ALBERT (Lan et al. 2019, section 3.1).

    [CLS] A A A A [SEP] B B B [SEP] pad
      0   0 0 0 0   0   1 1 1   1    0     segments

Every document is divided once into chunks of whole sentences, each just long enough for a row; one
chunk in ten has a random shorter length. Each row is a chunk. Its first sentences, up to a random
cut, are A. For half of the rows B is the rest of the chunk (label 0); for the others, and for
chunks of a single sentence, B starts at a random sentence of another document (label 1). Pairs that
are too long lose tokens at a random end, from the longer part first.

The cut, the label and B are drawn anew in every epoch. Unlike in BERT's script, which uses the rest
of a chunk again if B came from another document, the division into chunks is the same in all
epochs, so that a row is a function of its number.

For sentence order, A and B of label 1 are swapped instead, before truncation. A chunk of a single
sentence is cut at a random token (ALBERT's script uses another document there, which mixes both
tasks); a chunk of a single token is left out.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.base.config import fingerprint
from maskwright.base.errors import DataError, IncompatibleError
from maskwright.base.randomness import integers, key, uniforms
from maskwright.text.store import BoolArray, FloatArray, IntArray
from maskwright.text.store.rows import Rows, check_indices, spread
from maskwright.text.store.store import TokenStore

FRAME = 3


class SentencePairs:
    """Pairs of sentence runs from `store`, in rows of `length` tokens.

    Args:
        short_fraction: the share of chunks with a random shorter length.
        negatives: the pairs of label 1: B from another document, or A and B swapped.

    Raises:
        IncompatibleError: no classify or separator token, or no sentences in the store.
        DataError: a single document, so that B cannot come from another.
    """

    def __init__(
        self,
        store: TokenStore,
        length: int,
        *,
        seed: int = 0,
        short_fraction: float = 0.1,
        negatives: Literal["foreign", "swapped"] = "foreign",
    ) -> None:
        self.store, self.length = store, length
        self._seed, self._room = seed, length - FRAME
        self._swaps = negatives == "swapped"
        self._check()
        self._pad = store.special.get("pad", 0)
        self._bounds = np.append(store.sentences, store.num_tokens)
        # Document d owns the sentences _firsts[d] … _firsts[d + 1] - 1.
        self._firsts = np.searchsorted(store.sentences, store.offsets)
        chunks = self._divide(short_fraction)
        if self._swaps:  # a chunk of one token cannot be cut
            divisible = self._bounds[chunks[1]] - self._bounds[chunks[0]] > 1
            chunks = tuple(column[divisible] for column in chunks)
        self._first, self._stop, self._owner, self._goal = chunks
        kind = "swapped pairs" if self._swaps else "pairs"
        self.fingerprint = fingerprint([kind, 1, store.fingerprint, length, seed, short_fraction])
        self.description = (
            f"{len(self):,} sentence pairs of {length} from {store.num_documents:,} documents"
        )

    def __len__(self) -> int:
        return len(self._first)

    def rows(self, indices: NDArray[np.integer], epoch: int) -> Rows:
        """Return rows of exactly `length` tokens, with `segments` and `pair_label`."""
        numbers = check_indices(indices, len(self), self.description)
        (a_start, a_length), (b_start, b_length), label = self._draw(numbers, epoch)
        shape = (len(numbers), self.length)
        begins = np.arange(len(numbers)) * self.length
        b_begins = begins + 2 + a_length
        ranges = ((a_start, a_length, begins + 1), (b_start, b_length, b_begins))
        tokens = np.full(shape, self._pad, dtype=np.int64)
        special = np.ones(shape, dtype=bool)
        starts_word = np.zeros(shape, dtype=bool)
        for starts, lengths, offsets in ranges:
            step = spread(lengths)
            flat_index = np.repeat(offsets, lengths) + step
            part_tokens = self.store.tokens[np.repeat(starts, lengths) + step]
            tokens.reshape(-1)[flat_index] = part_tokens
            starts_word.reshape(-1)[flat_index] = self.store.begins_word(part_tokens, step == 0)
            special.reshape(-1)[flat_index] = False
        tokens[:, 0] = self.store.special["classify"]
        tokens.reshape(-1)[b_begins - 1] = self.store.special["separator"]
        tokens.reshape(-1)[b_begins + b_length] = self.store.special["separator"]
        column = np.arange(self.length)
        stop = (FRAME + a_length + b_length)[:, None]
        second = (column >= 2 + a_length[:, None]) & (column < stop)
        return Rows(
            tokens=tokens,
            positions=np.where(column < stop, column, 0),
            documents=(column < stop).astype(np.int32),
            special=special,
            starts_word=starts_word,
            segments=second.astype(np.int64),
            ids=numbers,
            pair_label=label.astype(np.int64),
        )

    def _draw(self, numbers: IntArray, epoch: int) -> tuple[_Ranges, _Ranges, BoolArray]:
        """Return (starts, lengths) of A and of B for each row, and whether the label is 1."""
        draws = uniforms(key("pair", self._seed, epoch, numbers), 6)
        first_sentence, stop = self._first[numbers], self._stop[numbers]
        num_cuts = np.maximum(1, stop - first_sentence - 1)
        cut = first_sentence + 1 + (draws[:, 0] * num_cuts).astype(np.int64)
        coin = draws[:, 1] < 0.5
        if self._swaps:
            (a_start, a_stop), (b_start, b_stop) = self._swapped(
                first_sentence, cut, stop, coin, draws
            )
        else:
            coin |= stop - first_sentence == 1
            a_start, a_stop = self._bounds[first_sentence], self._bounds[cut]
            b_first, b_last = self._foreign(numbers, a_stop - a_start, draws)
            b_start = self._bounds[np.where(coin, b_first, cut)]
            b_stop = self._bounds[np.where(coin, b_last, stop)]
        a_length, b_length = a_stop - a_start, b_stop - b_start
        kept_a, kept_b = trim_pair(a_length, b_length, self._room)
        a_start = a_start + (draws[:, 4] * (a_length - kept_a + 1)).astype(np.int64)
        b_start = b_start + (draws[:, 5] * (b_length - kept_b + 1)).astype(np.int64)
        return (a_start, kept_a), (b_start, kept_b), coin

    def _foreign(self, numbers: IntArray, a_length: IntArray, draws: FloatArray) -> _Ranges:
        """Return the first sentence of B from another document, and the one after its last."""
        owner = self._owner[numbers]
        other_document = (draws[:, 2] * (self.store.num_documents - 1)).astype(np.int64)
        other_document += other_document >= owner
        low, high = self._firsts[other_document], self._firsts[other_document + 1]
        first_sentence = low + (draws[:, 3] * (high - low)).astype(np.int64)
        goal = self._bounds[first_sentence] + np.maximum(1, self._goal[numbers] - a_length)
        return first_sentence, np.minimum(np.searchsorted(self._bounds, goal), high)

    def _swapped(
        self,
        first_sentence: IntArray,
        cut: IntArray,
        stop: IntArray,
        coin: BoolArray,
        draws: FloatArray,
    ) -> tuple[_Ranges, _Ranges]:
        """Return (starts, stops) of A and of B, the parts of the chunk, swapped where `coin`."""
        start, end = self._bounds[first_sentence], self._bounds[stop]
        within = start + 1 + (draws[:, 0] * (end - start - 1)).astype(np.int64)
        middle = np.where(stop - first_sentence == 1, within, self._bounds[cut])
        a = np.where(coin, middle, start), np.where(coin, end, middle)
        b = np.where(coin, start, middle), np.where(coin, middle, end)
        return a, b

    def _divide(self, short_fraction: float) -> tuple[IntArray, ...]:
        """Return chunks in order: first sentence, the one after the last, document, tokens to fill.

        All documents advance together, by one chunk per turn.
        """
        documents = np.arange(self.store.num_documents)
        first_sentences, document_ends = self._firsts[:-1].copy(), self._firsts[1:]
        chunks: list[tuple[IntArray, ...]] = [(np.zeros(0, np.int64),) * 4]
        turn = 0
        while len(documents):
            keys = key("crop", self._seed, documents, turn)
            short = uniforms(keys, 1)[:, 0] < short_fraction
            length = 2 + integers(key("crop", self._seed, documents, turn, 1), 1, self._room - 1)
            goal = np.where(short, length[:, 0], self._room)
            stop = np.searchsorted(self._bounds, self._bounds[first_sentences] + goal)
            stop = np.minimum(stop, document_ends[documents])
            chunks.append((first_sentences, stop, documents, goal))
            unfinished = stop < document_ends[documents]
            documents, first_sentences = documents[unfinished], stop[unfinished]
            turn += 1
        columns = [np.concatenate(column) for column in zip(*chunks, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return tuple(column[order] for column in columns)

    def _check(self) -> None:
        """Check that the store has the special tokens, sentences and documents of pairs."""
        store = self.store
        missing = {"classify", "separator"} - set(store.special)
        if missing:
            raise IncompatibleError(
                "sentence pairs need special tokens that the tokenizer lacks",
                where=store.path,
                found=sorted(store.special),
                wanted=sorted(missing),
                do="train the tokenizer with --set tokenizer.style=bert",
            )
        if self._room < 4:
            raise IncompatibleError(
                "a row has no room for two sentences",
                wanted="7 or more",
                found=f"length {self.length}",
                do="raise rows.length",
            )
        if store.num_tokens:
            store.require_sentences()
        if store.num_documents == 1 and not self._swaps:
            raise DataError(
                "sentence pairs need at least two documents",
                where=store.path,
                found="1 document",
                do="give more documents, split the text "
                "(corpus.form), or hold out more of it (corpus.held_out)",
            )


_Ranges = tuple[IntArray, IntArray]


def trim_pair(a_length: IntArray, b_length: IntArray, room: int) -> tuple[IntArray, IntArray]:
    """Return two lengths after removing tokens from the longer, one by one, until both fit.

    Of equal lengths the second is shortened, as in BERT's script.
    """
    more, less = -(-room // 2), room // 2
    kept_a = np.minimum(a_length, np.maximum(more, room - b_length))
    kept_b = np.minimum(b_length, np.maximum(less, room - a_length))
    return kept_a, kept_b
