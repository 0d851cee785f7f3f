"""The statistics that BPE and WordPiece training share, kept up to date while pairs are merged.

A corpus is a table of distinct words with their counts; a word is a list of symbol numbers. After
a merge only the neighbours of the merged places change, so a merge costs as much as it has places,
and not as much as the corpus. What is left behind (a word that no longer holds a pair) is found
when it is next looked up.

    low x5, lower x2        l o w | l o w e r        pairs  lo 7  ow 7  we 2  er 2
    merge (l, o) -> lo      lo w  | lo w e r         pairs  low 7  we 2  er 2
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

Pair = tuple[int, int]


@dataclass(frozen=True)
class Merge:
    """One learned step: `left` and `right` became one symbol; the pair stood `count` times."""

    left: str
    right: str
    token: str
    count: int


class Symbols:
    """Symbol strings and their numbers, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, string: str) -> int:
        """The number of `string`, given now if it is new."""
        found = self._numbers.get(string)
        if found is None:
            found = self._numbers[string] = len(self.strings)
            self.strings.append(string)
        return found


class PairTable:
    """Words as lists of symbols, with the counts of symbols and of adjacent pairs."""

    def __init__(self, words: Sequence[list[int]], counts: Sequence[int]) -> None:
        self._words = words
        self._counts = counts
        self._places: defaultdict[Pair, set[int]] = defaultdict(set)
        self.pairs: defaultdict[Pair, int] = defaultdict(int)
        self.symbols: defaultdict[int, int] = defaultdict(int)
        for index, (word, count) in enumerate(zip(words, counts, strict=True)):
            for symbol in word:
                self.symbols[symbol] += count
            for pair in itertools.pairwise(word):
                self.pairs[pair] += count
                self._places[pair].add(index)

    def merge(self, left: int, right: int, new: int) -> set[Pair]:
        """Replace `left right` by `new` in every word, from left to right.

        Returns:
            The pairs whose count changed, without the merged one, which is gone.
        """
        changed: defaultdict[Pair, int] = defaultdict(int)
        merged = 0
        for index in self._places.pop((left, right), ()):
            merged += self._merge_word(index, (left, right), new, changed)
        self.symbols[left] -= merged
        self.symbols[right] -= merged
        self.symbols[new] += merged
        changed.pop((left, right), None)
        del self.pairs[left, right]
        for pair, difference in changed.items():
            self.pairs[pair] += difference
            if self.pairs[pair] <= 0:
                del self.pairs[pair]
                self._places.pop(pair, None)
        return set(changed)

    def _merge_word(self, index: int, pair: Pair, new: int, changed: dict[Pair, int]) -> int:
        word, count = self._words[index], self._counts[index]
        left, right = pair
        merged = place = 0
        while place < len(word) - 1:
            if word[place] == left and word[place + 1] == right:
                if place > 0:
                    before = word[place - 1]
                    changed[before, left] -= count
                    changed[before, new] += count
                    self._places[before, new].add(index)
                if place + 2 < len(word):
                    after = word[place + 2]
                    changed[right, after] -= count
                    changed[new, after] += count
                    self._places[new, after].add(index)
                word[place : place + 2] = [new]
                merged += count
            place += 1
        return merged
