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
from maskwright.curate.parts.words import mix, words_of

# What may stand between two words of one sentence; anything else ends a line or sentence.
WITHIN = " \t\u00a0,'\u2019-"


@dataclass(frozen=True)
class Matches:
    """Runs of words that are in the index: spans, and for each the evaluation texts that have it,
    as a number of `TextSets`."""

    spans: Spans
    sets: NDArray[np.int64]


@dataclass(frozen=True)
class Grams:
    """Distinct hashes of runs of `size` words, sorted; whether each is a whole text, which must be
    a line or sentence of its own; the set of evaluation texts that have it, in `TextSets`; and a
    table of bits that says of most other hashes at once that they are not there."""

    size: int
    whole: bool
    hashes: NDArray[np.uint64]
    sets: NDArray[np.int64]
    seen: NDArray[np.bool_]

    @classmethod
    def of(
        cls, size: int, whole: bool, hashes: NDArray[np.uint64], sets: NDArray[np.int64]
    ) -> Grams:
        bits = min(26, max(12, len(hashes).bit_length() + 4))
        seen = np.zeros(1 << bits, np.bool_)
        seen[hashes >> np.uint64(64 - bits)] = True
        return cls(size, whole, hashes, sets, seen)

    def find(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which of `hashes` are here, and the set of each."""
        bits = len(self.seen).bit_length() - 1
        likely = np.flatnonzero(self.seen[hashes >> np.uint64(64 - bits)])
        entries = np.searchsorted(self.hashes, hashes[likely])
        entries = np.minimum(entries, len(self.hashes) - 1)
        right = self.hashes[entries] == hashes[likely]
        return likely[right], self.sets[entries[right]]


@dataclass(frozen=True)
class TextSets:
    """Sets of evaluation texts, each once, the largest first.

    Runs of words that the same texts share have one set. A prompt that a thousand texts begin with
    is then one number for each document that has it, not a thousand pairs.

    Attributes:
        starts: (S + 1,) set s has the texts `texts[starts[s]:starts[s + 1]]`, ascending.
        texts: numbers of evaluation texts.
    """

    starts: NDArray[np.int64]
    texts: NDArray[np.int64]

    def of(self, number: int) -> NDArray[np.int64]:
        """The texts of a set."""
        return self.texts[self.starts[number] : self.starts[number + 1]]

    def union_sizes(self, combinations: Sequence[tuple[int, ...]]) -> list[int]:
        """How many texts the sets of each combination have together.

        Combinations in order share their beginnings, as a trie does; the texts of a beginning are
        marked once. So documents that share a prompt cost their own texts, not those of the prompt.

        Args:
            combinations: ascending numbers of sets.
        """
        marked = np.zeros(int(self.texts.max(initial=-1)) + 1, np.bool_)
        path: list[tuple[int, NDArray[np.int64]]] = []  # each set and the texts that it added
        sizes, total = [0] * len(combinations), 0
        for place in sorted(range(len(combinations)), key=combinations.__getitem__):
            combination = combinations[place]
            shared = 0
            while shared < min(len(path), len(combination)):
                if path[shared][0] != combination[shared]:
                    break
                shared += 1
            while len(path) > shared:
                added = path.pop()[1]
                marked[added] = False
                total -= len(added)
            for number in combination[shared:]:
                texts = self.of(number)
                added = texts[~marked[texts]]
                marked[added] = True
                total += len(added)
                path.append((number, added))
            sizes[place] = total
        return sizes


@dataclass(frozen=True)
class Index:
    """The runs of words of all evaluation texts.

    Attributes:
        texts: the texts that are looked for, without their text.
        grams: the runs by their size.
        sets: which texts have a run.
        rows: of each file, in its order, how many rows it has, and how many are looked for.
    """

    texts: Sequence[EvaluationText]
    grams: Sequence[Grams]
    sets: TextSets
    rows: dict[str, tuple[int, int]]

    def matches(self, batch: Batch) -> Matches:
        """Where the documents share words with evaluation texts."""
        words = batch.words
        stretches, boundaries = Stretches(words), boundaries_of(batch)
        begins_alone = np.flatnonzero(boundaries[:-1])
        matched = [(np.zeros(0, np.int64),) * 4]
        for grams in self.grams:
            if grams.whole:
                # A whole line or sentence: it begins and ends at a boundary, in one text.
                firsts = begins_alone[begins_alone + grams.size <= len(words.hashes)]
                firsts = firsts[boundaries[firsts + grams.size]]
            else:
                firsts = np.arange(len(words.hashes) - grams.size + 1)
            at, sets = grams.find(stretches.hashes(firsts, grams.size))
            firsts = firsts[at]
            texts = np.searchsorted(words.starts, firsts, "right") - 1
            inside = firsts + grams.size <= words.starts[texts + 1]
            texts, begins = texts[inside], (firsts - words.starts[texts])[inside]
            matched.append((texts, begins, begins + grams.size, sets[inside]))
        texts, begins, ends, sets = (np.concatenate(part) for part in zip(*matched, strict=True))
        return Matches(Spans(texts, begins, ends), sets)


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
    keys = [key for key in sorted(hashes) if any(len(part) for part in hashes[key])]
    runs = [_runs(np.concatenate(hashes[key]), np.concatenate(owners[key])) for key in keys]
    sets, sets_of_runs = _sets([(starts, members) for _, starts, members in runs])
    grams = [
        Grams.of(*key, distinct, own_sets)
        for key, (distinct, _, _), own_sets in zip(keys, runs, sets_of_runs, strict=True)
    ]
    return Index(texts, grams, sets, rows)


def _runs(
    hashes: NDArray[np.uint64], owners: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """The distinct hashes, sorted; where the owners of each begin, and where the last end; and the
    owners, each once for a hash, ascending."""
    order = np.lexsort((owners, hashes))
    hashes, owners = hashes[order], owners[order]
    other_hash = np.concatenate([[True], hashes[1:] != hashes[:-1]])
    once = other_hash | np.concatenate([[True], owners[1:] != owners[:-1]])
    hashes, owners, other_hash = hashes[once], owners[once], other_hash[once]
    starts = np.append(np.flatnonzero(other_hash), len(hashes))
    return hashes[starts[:-1]], starts, owners


def _sets(
    runs: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> tuple[TextSets, list[NDArray[np.int64]]]:
    """The distinct sets of owners, and for each part of `runs` the set of each run. Equal sets are
    known by the sum of their mixed numbers, as words are by their hashes."""
    none = np.zeros(0, np.int64)
    owners = np.concatenate([none, *(members for _, members in runs)])
    sizes = np.concatenate([none, *(np.diff(starts) for starts, _ in runs)])
    begins = np.cumsum(sizes) - sizes
    with np.errstate(over="ignore"):
        marks = mix(owners.astype(np.uint64) + np.uint64(1))
        sums = np.add.reduceat(marks, begins) if len(begins) else marks
    _, first, inverse = np.unique(sums, return_index=True, return_inverse=True)
    largest_first = np.argsort(-sizes[first], kind="stable")
    rank = np.argsort(largest_first)
    first = first[largest_first]
    kept = sizes[first]
    starts = np.concatenate([[0], np.cumsum(kept)])
    members = np.arange(starts[-1]) + np.repeat(begins[first] - starts[:-1], kept)
    cuts = np.cumsum([len(run_starts) - 1 for run_starts, _ in runs])
    return TextSets(starts, owners[members]), np.split(rank[inverse], cuts)[: len(runs)]


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
