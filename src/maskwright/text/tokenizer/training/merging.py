"""Vocabularies that are learned by merging pairs: BPE and WordPiece.

BPE starts from characters and merges the most frequent adjacent pair, again and again (Sennrich et
al. 2016, https://arxiv.org/abs/1508.07909). The end-of-word marker `</w>` is a separate symbol at
first, so `est` is the same symbol with and without it (the `tokenizers` library attaches it to the
last character). Ties are broken by string order, so the result depends on the counts alone.

WordPiece merges the pair that raises the likelihood of the text most (Schuster and Nakajima 2012);
the score is that of the usual account of BERT's vocabulary,

    score(x, y) = count(xy) / (count(x) * count(y))

so a pair is merged because its parts are rarely met apart, not because it is frequent. The
`tokenizers` library's `WordPieceTrainer` is BPE underneath (it merges by count) and gives another
vocabulary. Equal scores go to the more frequent pair, then to the one that sorts first.

The score favours pairs of rare symbols, and a floor under the counts is the guard. With a fixed low
floor the vocabulary fills with rare names (on 5 MB of child-level English, 8,192 pieces, floor 2:
3.6 pieces a word). With `min_frequency=None` the floor starts at half of the largest count and is
halved whenever no pair is left above it, down to 2: 1.48 pieces a word, where BPE has 1.49.

Why the heap may be stale: a merge of x and y lowers count(x) and count(y) and so *raises* the score
of every other pair that holds x or y. Those are pushed again at once. A score can also fall (a pair
lost places); then its old entry is too high, comes up too early, and is put back where it belongs.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# ------------------------------------------------------------------------------ pairs
Pair = tuple[int, int]


@dataclass(frozen=True)
class Merge:
    """A learned merge of `left` and `right` into `token`; the pair occurred `count` times."""

    left: str
    right: str
    token: str
    count: int


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


class _Trainer:
    """Merges of the best pairs of rows of pieces, given with their counts.

    The score of a pair is its count, or by `likelihood` that of WordPiece.
    """

    def __init__(self, rows: Sequence[tuple[Sequence[str], int]], *, likelihood: bool) -> None:
        self.floor = 0
        self.learned: list[Merge] = []
        self._likelihood = likelihood
        self._numbers: dict[str, int] = {}  # of the pieces, in the order of their first occurrence
        self._pieces: list[str] = []
        words = [[self._number(piece) for piece in pieces] for pieces, _ in rows]
        self.table = PairTable(words, [count for _, count in rows])
        self._holders: defaultdict[int, set[Pair]] = defaultdict(set)
        self._heap: list[tuple[float, int, str, str, Pair]] = []
        self._initial = len(self._pieces)

    def _number(self, piece: str) -> int:
        if piece not in self._numbers:
            self._numbers[piece] = len(self._pieces)
            self._pieces.append(piece)
        return self._numbers[piece]

    def run(self, tokens: int, floor: int) -> None:
        """Merge pairs that occur at least `floor` times, until there are `tokens` new tokens."""
        self.floor = floor
        for pair in self.table.pairs:
            self._hold(pair)
            self._push(pair)
        while self._heap and len(self._pieces) - self._initial < tokens:
            best = self._pop()
            if best is None:
                continue
            left, right = (self._pieces[number] for number in best)
            token = join(left, right) if self._likelihood else left + right
            self.learned.append(Merge(left, right, token, self.table.pairs[best]))
            new = self._number(token)
            self._update(best, new, self.table.merge(*best, new))

    def _score(self, pair: Pair) -> tuple[float, int]:
        count = self.table.pairs[pair]
        if not self._likelihood:
            return count, count
        # Division of whole numbers is rounded once, so equal scores are equal floats.
        return count / (self.table.symbols[pair[0]] * self.table.symbols[pair[1]]), count

    def _push(self, pair: Pair) -> None:
        score, count = self._score(pair)
        if count >= self.floor:
            entry = (-score, -count, self._pieces[pair[0]], self._pieces[pair[1]], pair)
            heapq.heappush(self._heap, entry)

    def _pop(self) -> Pair | None:
        """Return the best pair; None if the top entry was outdated, which is updated or removed."""
        score, count, _, _, pair = heapq.heappop(self._heap)
        if pair not in self.table.pairs:
            return None
        current_score = self._score(pair)
        if current_score == (-score, -count):
            return pair
        if current_score < (-score, -count):
            self._push(pair)
        return None

    def _update(self, merged: Pair, new: int, changed: set[Pair]) -> None:
        if self._likelihood:
            for pair in [merged, *changed]:
                self._hold(pair)
            raised = self._holders[merged[0]] | self._holders[merged[1]] | changed
        else:
            raised = {pair for pair in changed if new in pair}
        for pair in raised:
            if pair in self.table.pairs:
                self._push(pair)

    def _hold(self, pair: Pair) -> None:
        """Index `pair` by both symbols if it is frequent enough to be merged, else remove it."""
        if self.table.pairs.get(pair, 0) >= self.floor:
            self._holders[pair[0]].add(pair)
            self._holders[pair[1]].add(pair)
        else:
            self._holders[pair[0]].discard(pair)
            self._holders[pair[1]].discard(pair)


# ------------------------------------------------------------------------------ BPE
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
    rows = [((*word, END), words[word]) for word in sorted(words)]
    rows += [((*run,), inner_runs[run]) for run in sorted(inner_runs)] if inner_runs else []
    trainer = _Trainer(rows, likelihood=False)
    trainer.run(merges, min_frequency)
    return trainer.learned


# ------------------------------------------------------------------------------ WordPiece
CONTINUATION = "##"
LEAST_COUNT = 2  # the lowest floor: what is met once teaches nothing
FLOOR_FALL = 0.5


def train_wordpiece(
    words: Mapping[str, int], *, tokens: int, min_frequency: int | None = 2
) -> list[Merge]:
    """Learn up to `tokens` new tokens from distinct `words` and their counts.

    Args:
        tokens: the maximum number of new tokens.
        min_frequency: the minimum count of merged pairs; None: one that falls to `LEAST_COUNT`.

    Returns:
        The merges in order; `token` is the new piece, with `##` where it continues a word.
    """
    trainer = _Trainer([(spell(word), words[word]) for word in sorted(words)], likelihood=True)
    if min_frequency is not None:
        trainer.run(tokens, min_frequency)
        return trainer.learned
    floor = max(trainer.table.pairs.values(), default=LEAST_COUNT)
    while True:
        floor = max(LEAST_COUNT, int(floor * FLOOR_FALL))
        trainer.run(tokens, floor)
        if floor == LEAST_COUNT or len(trainer.learned) >= tokens:
            break
    return trainer.learned


def spell(word: str) -> list[str]:
    """Return the characters of `word` as pieces: the first one, then others with `##`."""
    return [word[0], *(CONTINUATION + c for c in word[1:])]


def join(left: str, right: str) -> str:
    """Return the piece that results from merging two adjacent pieces."""
    return left + right.removeprefix(CONTINUATION)
