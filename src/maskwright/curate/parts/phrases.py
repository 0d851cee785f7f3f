"""Words and phrases of lists, found among the words of many texts by their hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.curate.parts.words import Words, words_of
from maskwright.errors import DataError

SIEVE_BITS = 16


@dataclass(frozen=True)
class Phrases:
    """Phrases by the hashes of their words.

    Attributes:
        texts: each as it stands in its list.
        lengths: (P,) words of each, sorted by `firsts`.
        firsts: (P,) the hash of each one's first word, ascending.
        words: (P, L) the hashes of all words, zeros behind the last.
        sieve: (2**16,) whether a first word has these lowest bits.
    """

    texts: Sequence[str]
    lengths: NDArray[np.int64]
    firsts: NDArray[np.uint64]
    words: NDArray[np.uint64]
    sieve: NDArray[np.bool_]

    def find(self, words: Words) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """First and last word and number of the phrase of every occurrence, in the order of the
        words. Of phrases that begin at the same word only the longest is one occurrence."""
        likely = np.flatnonzero(self.sieve[words.hashes & np.uint64(len(self.sieve) - 1)])
        hashes = words.hashes[likely]
        left = np.searchsorted(self.firsts, hashes, side="left")
        counts = np.searchsorted(self.firsts, hashes, side="right") - left
        begins = np.repeat(likely, counts)
        numbers = np.arange(len(begins)) - np.repeat(np.cumsum(counts) - counts - left, counts)
        lasts = begins + self.lengths[numbers] - 1
        fits = lasts < words.starts[words.texts[begins] + 1]
        for place in range(1, self.words.shape[1]):
            there = np.minimum(begins + place, len(words.hashes) - 1)
            same = words.hashes[there] == self.words[numbers, place]
            fits &= same | (place >= self.lengths[numbers])
        begins, lasts, numbers = begins[fits], lasts[fits], numbers[fits]
        order = np.lexsort((-lasts, begins))
        begins, lasts, numbers = begins[order], lasts[order], numbers[order]
        longest = np.concatenate([[True], begins[1:] != begins[:-1]])[: len(begins)]
        return begins[longest], lasts[longest], numbers[longest]


def phrases_of(listed: Sequence[tuple[str, int, str]]) -> Phrases:
    """Phrases of (text, line, file); equal ones, without regard to case, are one.

    Raises:
        DataError: an entry without a word.
    """
    words = words_of([text for text, _, _ in listed])
    for (text, line, file), count in zip(listed, words.counts, strict=True):
        if not count:
            raise DataError(
                "an entry of a list has no word",
                where=f"{file}:{line}",
                found=repr(text),
                wanted="letters or digits",
                do="take the line out",
            )
    table = np.zeros((len(listed), int(words.counts.max())), np.uint64)
    table[words.texts, np.arange(len(words.hashes)) - words.starts[words.texts]] = words.hashes
    _, chosen = np.unique(table, axis=0, return_index=True)
    chosen = chosen[np.argsort(table[chosen, 0], kind="stable")]
    sieve = np.zeros(1 << SIEVE_BITS, np.bool_)
    sieve[table[:, 0] & np.uint64(len(sieve) - 1)] = True
    return Phrases(
        [listed[n][0] for n in chosen],
        words.counts[chosen],
        table[chosen, 0],
        table[chosen],
        sieve,
    )
