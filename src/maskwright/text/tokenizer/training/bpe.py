"""Byte-pair encoding with an end-of-word marker that is a symbol of its own.

Sennrich et al. 2016 (https://arxiv.org/abs/1508.07909): start from characters, merge the most
frequent adjacent pair, repeat. The marker `</w>` is a separate symbol at first, so `est` is the
same symbol with and without it (the `tokenizers` library attaches it to the last character). Ties
are broken by string order, so the result depends on the counts alone.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Pair = tuple[int, int]


@dataclass(frozen=True)
class Merge:
    """A learned merge of `left` and `right` into `token`; the pair occurred `count` times."""

    left: str
    right: str
    token: str
    count: int


class Symbols:
    """Symbol strings and their numbers, in order of first occurrence."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, string: str) -> int:
        """Return the number of `string`, which is added if new."""
        index = self._numbers.get(string)
        if index is None:
            index = self._numbers[string] = len(self.strings)
            self.strings.append(string)
        return index


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
            The other pairs whose counts changed.
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
        """Merge `pair` in a word; adds changes to `changed`, returns the merged count."""
        word, count = self._words[index], self._counts[index]
        left, right = pair
        merged = position = 0
        while position < len(word) - 1:
            if word[position] == left and word[position + 1] == right:
                if position > 0:
                    before = word[position - 1]
                    changed[before, left] -= count
                    changed[before, new] += count
                    self._places[before, new].add(index)
                if position + 2 < len(word):
                    after = word[position + 2]
                    changed[right, after] -= count
                    changed[new, after] += count
                    self._places[new, after].add(index)
                word[position : position + 2] = [new]
                merged += count
            position += 1
        return merged


END = "</w>"


def train_bpe(
    words: Mapping[str, int],
    inner_runs: Mapping[str, int] | None = None,
    *,
    merges: int,
    min_frequency: int = 2,
) -> list[Merge]:
    """Learn up to `merges` new tokens from distinct `words` and their counts.

    `inner_runs` are counts of parts that do not reach the end of a word, so have no marker. Two
    merges may give the same token (`ab`+`c`, `a`+`bc`); both are kept, the token counts once.

    Returns:
        The merges in the order in which they have to be applied.
    """
    symbols = Symbols()
    rows = [((*word, END), words[word]) for word in sorted(words)]
    rows += [(tuple(run), inner_runs[run]) for run in sorted(inner_runs)] if inner_runs else []
    table = PairTable(
        [[symbols.number(c) for c in row] for row, _ in rows], [count for _, count in rows]
    )
    strings = symbols.strings
    heap: list[tuple[int, str, str, int, int]] = []

    def push(left: int, right: int, count: int) -> None:
        heapq.heappush(heap, (-count, strings[left], strings[right], left, right))

    for (left, right), count in table.pairs.items():
        if count >= min_frequency:
            push(left, right, count)
    learned: list[Merge] = []
    num_initial = len(strings)
    while heap and len(strings) - num_initial < merges:
        negative, _, _, left, right = heapq.heappop(heap)
        count = table.pairs.get((left, right), 0)
        if count != -negative:
            # Decreases of counts are not pushed, so an outdated entry has too large a count.
            if min_frequency <= count < -negative:
                push(left, right, count)
            continue
        token = strings[left] + strings[right]
        learned.append(Merge(strings[left], strings[right], token, count))
        new = symbols.number(token)
        for a, b in table.merge(left, right, new):
            current_count = table.pairs.get((a, b), 0)
            if current_count >= min_frequency and new in (a, b):
                push(a, b, current_count)
    return learned
