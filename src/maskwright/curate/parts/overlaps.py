"""Which evaluation texts share words with documents: an index of their runs of words.

A text of at least `overlap` words is there by each run of so many, a shorter one as a whole. In
scripts without spaces, where every letter counts as a word, both numbers are as many times larger
as a word has letters there.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.curate.parts.batch import Batch
from maskwright.curate.parts.characters import characters_of
from maskwright.curate.parts.evaluation_texts import EvaluationText, read_texts, sources_of
from maskwright.curate.parts.winnow import Stretches
from maskwright.curate.parts.word_spans import Spans
from maskwright.curate.parts.words import words_of

# What may stand between two words of one sentence; anything else ends a line or sentence.
WITHIN = " \t\u00a0,'\u2019-"


@dataclass(frozen=True)
class Matches:
    """Runs of words that are in the index: spans, and for each its `Grams` and its entry there."""

    spans: Spans
    grams: NDArray[np.int64]
    entries: NDArray[np.int64]


@dataclass(frozen=True)
class Grams:
    """Hashes of runs of `size` words, sorted; whether each is a whole text, which must be a line or
    sentence of its own; which evaluation text each is of; and a table of bits that says of most
    other hashes at once that they are not there."""

    size: int
    whole: bool
    hashes: NDArray[np.uint64]
    owners: NDArray[np.int64]
    seen: NDArray[np.bool_]

    @classmethod
    def of(
        cls, size: int, whole: bool, hashes: NDArray[np.uint64], owners: NDArray[np.int64]
    ) -> Grams:
        order = np.lexsort((owners, hashes))
        bits = min(26, max(12, len(hashes).bit_length() + 4))
        seen = np.zeros(1 << bits, np.bool_)
        seen[hashes >> np.uint64(64 - bits)] = True
        return cls(size, whole, hashes[order], owners[order], seen)

    def find(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which of `hashes` are here, and the first entry of each."""
        bits = len(self.seen).bit_length() - 1
        likely = np.flatnonzero(self.seen[hashes >> np.uint64(64 - bits)])
        entries = np.searchsorted(self.hashes, hashes[likely])
        inside = np.minimum(entries, len(self.hashes) - 1)
        right = self.hashes[inside] == hashes[likely]
        return likely[right], entries[right]


@dataclass(frozen=True)
class Index:
    """The runs of words of all evaluation texts.

    Attributes:
        texts: the texts that are looked for, without their text.
        grams: the runs by their size.
        rows: of each file, in its order, how many rows it has, and how many are looked for.
    """

    texts: Sequence[EvaluationText]
    grams: Sequence[Grams]
    rows: dict[str, tuple[int, int]]

    def matches(self, batch: Batch) -> Matches:
        """Where the documents share words with evaluation texts."""
        words = batch.words
        stretches, boundaries = Stretches(words), boundaries_of(batch)
        begins_alone = np.flatnonzero(boundaries[:-1])
        found = [(np.zeros(0, np.int64),) * 4]
        for place, grams in enumerate(self.grams):
            if grams.whole:
                # A whole line or sentence: it begins and ends at a boundary, in one text.
                firsts = begins_alone[begins_alone + grams.size <= len(words.hashes)]
                firsts = firsts[boundaries[firsts + grams.size]]
            else:
                firsts = np.arange(len(words.hashes) - grams.size + 1)
            at, entries = grams.find(stretches.hashes(firsts, grams.size))
            firsts = firsts[at]
            texts = np.searchsorted(words.starts, firsts, "right") - 1
            inside = firsts + grams.size <= words.starts[texts + 1]
            texts, begins = texts[inside], (firsts - words.starts[texts])[inside]
            found.append((texts, begins, np.full(len(texts), place), entries[inside]))
        texts, begins, places, entries = (np.concatenate(c) for c in zip(*found, strict=True))
        sizes = np.array([grams.size for grams in self.grams], np.int64)
        ends = begins + (sizes[places] if len(sizes) else 0)
        return Matches(Spans(texts, begins, ends), places, entries)

    def owners(self, found: Matches) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Documents of the batch and evaluation texts that share a run of words."""
        documents, texts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for place, grams in enumerate(self.grams):
            own = found.grams == place
            entries = found.entries[own]
            ends = np.searchsorted(grams.hashes, grams.hashes[entries], "right")
            counts = ends - entries
            documents.append(np.repeat(found.spans.texts[own], counts))
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            texts.append(grams.owners[np.repeat(entries, counts) + within])
        return np.concatenate(documents), np.concatenate(texts)


def index_of(paths: Sequence[str], overlap: int, shortest: int) -> Index:
    """The index of evaluation files.

    Raises:
        DataError, StorageError, UsageError: a file cannot be read.
    """
    texts: list[EvaluationText] = []
    hashes: dict[tuple[int, bool], list[NDArray[np.uint64]]] = {}
    owners: dict[tuple[int, bool], list[NDArray[np.int64]]] = {}
    rows: dict[str, tuple[int, int]] = {}
    for source in sources_of(paths):
        read = list(read_texts(source))
        words = words_of([one.text for one in read])
        lengths, stretches = words.counts, Stretches(words)
        letters = characters_of([one.text for one in read]).letters_per_word
        long_enough = lengths >= min(shortest, overlap) * letters
        numbers = np.cumsum(long_enough) - 1 + len(texts)
        for each in np.unique(letters).tolist():
            for size in range(min(shortest, overlap) * each, overlap * each + 1):
                whole = size < overlap * each
                # Shorter texts whole, longer ones by all their overlaps.
                own = (letters == each) & (lengths == size if whole else lengths >= size)
                counts = np.where(own, lengths - size + 1, 0)
                starts = np.cumsum(counts) - counts
                firsts = np.arange(counts.sum()) + np.repeat(words.starts[:-1] - starts, counts)
                key = (size, whole)
                hashes.setdefault(key, []).append(stretches.hashes(firsts, size))
                owners.setdefault(key, []).append(np.repeat(numbers, counts))
        kept = [one for one, fits in zip(read, long_enough.tolist(), strict=True) if fits]
        texts += [EvaluationText(t.file, t.row, t.unit, t.column, "") for t in kept]
        rows[source.shown] = (len({t.row for t in read}), len({t.row for t in kept}))
    grams = [
        Grams.of(*key, np.concatenate(hashes[key]), np.concatenate(owners[key]))
        for key in sorted(hashes)
        if any(len(part) for part in hashes[key])
    ]
    return Index(texts, grams, rows)


def boundaries_of(batch: Batch) -> NDArray[np.bool_]:
    """(W + 1,) whether a line or sentence begins at each word of a batch; at the end one does."""
    words, characters = batch.words, batch.characters
    found = np.ones(len(words.hashes) + 1, np.bool_)
    offsets = characters.offsets[words.texts]
    marks = np.concatenate([[0], np.cumsum(_ends_a_sentence()[characters.points], dtype=np.int64)])
    begins, ends = (words.begins + offsets)[1:], (words.ends + offsets)[:-1]
    found[1:-1] = marks[begins] > marks[ends]
    return found


@functools.cache
def _ends_a_sentence() -> NDArray[np.bool_]:
    """Of every code point whether it stands for more than a pause."""
    found = np.ones(0x110000, np.bool_)
    found[[ord(sign) for sign in WITHIN]] = False
    return found
