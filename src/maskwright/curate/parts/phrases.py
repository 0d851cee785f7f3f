"""Words and phrases of lists, found among the words of many texts by their hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.curate.parts.winnow import Stretches
from maskwright.curate.parts.words import Words, words_of
from maskwright.errors import DataError

SIEVE_BITS = 16


@dataclass(frozen=True)
class Phrases:
    """Phrases by the hashes of their words.

    Attributes:
        texts: each as it stands in its list.
        by_length: for each number of words, the largest first, the hashes of the phrases of so many
            words, sorted, and their numbers in `texts`.
        sieve: (2**16,) whether a first word has these lowest bits.
    """

    texts: Sequence[str]
    by_length: Sequence[tuple[int, NDArray[np.uint64], NDArray[np.int64]]]
    sieve: NDArray[np.bool_]

    def find(self, words: Words) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """First and last word and number of the phrase of every occurrence, in the order of the
        words. Of phrases that begin at the same word only the longest is one occurrence.

        A stretch of words is looked up by one hash, so the work does not grow with the number of
        phrases that begin alike.
        """
        begins = np.flatnonzero(self.sieve[words.hashes & np.uint64(len(self.sieve) - 1)])
        room = words.starts[words.texts[begins] + 1] - begins
        stretches = Stretches(words)
        none = np.zeros(0, np.int64)
        occurrences = [(none, none, none)]
        for length, hashes, numbers in self.by_length:
            fits = np.flatnonzero(room >= length)
            sought = stretches.hashes(begins[fits], length)
            places = np.minimum(np.searchsorted(hashes, sought), len(hashes) - 1)
            equal = hashes[places] == sought
            here = begins[fits[equal]]
            occurrences.append((here, here + length - 1, numbers[places[equal]]))
            left = np.ones(len(begins), np.bool_)
            left[fits[equal]] = False
            begins, room = begins[left], room[left]
        firsts, lasts, phrases = (np.concatenate(part) for part in zip(*occurrences, strict=True))
        order = np.argsort(firsts)
        return firsts[order], lasts[order], phrases[order]


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
    stretches, firsts = Stretches(words), words.starts[:-1]
    by_length = []
    for length in np.unique(words.counts)[::-1].tolist():
        own = np.flatnonzero(words.counts == length)
        hashes, first = np.unique(stretches.hashes(firsts[own], length), return_index=True)
        by_length.append((length, hashes, own[first]))
    sieve = np.zeros(1 << SIEVE_BITS, np.bool_)
    sieve[words.hashes[firsts] & np.uint64(len(sieve) - 1)] = True
    return Phrases([text for text, _, _ in listed], by_length, sieve)
