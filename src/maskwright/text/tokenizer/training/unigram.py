"""Training of Unigram vocabularies by pruning a large set of candidate pieces.

Kudo 2018 (https://arxiv.org/abs/1804.10959). Each round fits the pieces' probabilities by two steps
of expectation maximisation over all splits, computes for every piece the loss of likelihood if it
is removed, and keeps the best three quarters, until the requested size is near.

The trainer of the `tokenizers` library is not used, since it sums in the order of a randomly seeded
hash table and gives a different vocabulary in each run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy

from maskwright.base.errors import TokenizerError
from maskwright.text.tokenizer.training.sample import hash_of

Array = np.ndarray
LONGEST_PIECE = 16  # characters
LONGEST_WORD = 24  # characters
# Products of probabilities are scaled by 2^LIFT per character to avoid underflow: a character that
# is rare among a billion pieces has a score of -31, and 24 of them give 2^-1074, the smallest
# float64. Scaled, they are within 2^-768 … 2^768 for scores down to -44. Powers of two are exact.
LIFT = 32


class Lattice:
    """Words with their counts, and all occurrences of candidate pieces in them.

    Words are the rows of a ragged matrix, sorted by descending length; column j has the pieces that
    start at character j.

    Attributes:
        size: the number of pieces; they are numbered 0 … size - 1, characters first.
        lengths: (size,) characters of each piece.
        seed_counts: (size,) occurrences of each piece in the text, including overlaps.
        reach: by j, the number of words of at least j characters.
    """

    def __init__(self, words: Mapping[str, int], most_pieces: int) -> None:
        """Find at most `most_pieces` seed pieces: all characters, and the substrings that cover the
        most text. As in SentencePiece, a substring that is always followed by the same character is
        replaced by the longer one."""
        rows = sorted(words, key=lambda word: (-len(word), word))
        self.counts = np.array([words[row] for row in rows], np.float64)
        self._sizes = sizes = np.array([len(row) for row in rows])
        self.longest = int(sizes[0])
        self.reach = [int(np.searchsorted(-sizes, -j, "right")) for j in range(self.longest + 1)]
        self.characters = sorted(set("".join(rows)))
        codes = {c: i for i, c in enumerate(self.characters)}
        self._columns = [
            np.array([codes[row[j]] for row in rows[: self.reach[j + 1]]], np.int64)
            for j in range(self.longest)
        ]
        self.most_length = min(LONGEST_PIECE, self.longest)
        self._rows = rows
        self._find(most_pieces)

    def _find(self, most_pieces: int) -> None:
        """Count all substrings that occur twice or more, by increasing length; select the best."""
        levels: list[dict[str, Any]] = []
        before, keys = self._columns, self._columns
        for length in range(1, self.most_length + 1):
            if length > 1:
                keys = self._extend(before, length)
            distinct, firsts, inverse = np.unique(
                np.concatenate(keys), return_index=True, return_inverse=True
            )
            weights = np.concatenate([self.counts[: len(k)] for k in keys])
            totals = np.bincount(inverse, weights, len(distinct))
            rejected = totals < 2 if length > 1 else np.zeros(len(distinct), bool)
            if length > 1 and distinct[0] < 0:
                rejected[0] = True  # the key of substrings whose prefix was not a candidate
            numbers = np.where(rejected, -1, np.cumsum(~rejected) - 1)
            if levels:
                parents = distinct[~rejected] // len(self.characters)
                np.maximum.at(levels[-1]["longer"], parents, totals[~rejected])
            counts = totals[~rejected]
            level = {"counts": counts, "first": firsts[~rejected], "longer": np.zeros(len(counts))}
            before = np.split(numbers[inverse], np.cumsum([len(k) for k in keys])[:-1])
            levels.append({**level, "columns": before})
        self._select(levels, most_pieces)

    def _extend(self, before: list[Array], length: int) -> list[Array]:
        """Return keys of all substrings of `length`, by column, from the numbers `before` of those
        that are one character shorter; -1 if the shorter one is not a candidate."""
        keys = []
        for j in range(self.longest - length + 1):
            m = self.reach[j + length]
            prefixes = before[j][:m]
            key = prefixes * len(self.characters) + self._columns[j + length - 1][:m]
            keys.append(np.where(prefixes < 0, -1, key))
        return keys

    def _select(self, levels: list[dict[str, Any]], most_pieces: int) -> None:
        """Number the best candidates and store these numbers as `pieces[length][column]`."""
        covered = [
            np.where(level["longer"] < level["counts"], level["counts"] * length, 0.0)
            for length, level in enumerate(levels, 1)
        ]
        covered[0][:] = np.inf
        coverage = np.concatenate(covered)
        order = np.argsort(-coverage, kind="stable")[:most_pieces]
        chosen = np.sort(order[coverage[order] > 0])
        self.size = len(chosen)
        numbers = np.full(len(coverage) + 1, self.size, np.int32)
        numbers[chosen] = np.arange(self.size)
        self.lengths = np.concatenate(
            [np.full(len(c), length) for length, c in enumerate(covered, 1)]
        )[chosen]
        self.seed_counts = np.concatenate([level["counts"] for level in levels])[chosen]
        self._first = np.concatenate([level["first"] for level in levels])[chosen]
        self.pieces: list[list[Array]] = [[]]
        base = 0
        for level, c in zip(levels, covered, strict=True):
            shift = [np.where(col < 0, len(coverage), col + base) for col in level["columns"]]
            self.pieces.append([numbers[s] for s in shift])
            base += len(c)
        self._places = [
            np.concatenate([[0], np.cumsum([len(column) for column in level])])
            for level in self.pieces[1:]
        ]

    # -------------------------------------------------------------------------- places of pieces
    def place(self, pieces: Any, length: int) -> tuple[Any, Any]:
        """Return (row, column) of the first occurrence of one or more pieces of a length."""
        starts = self._places[length - 1]
        columns = np.searchsorted(starts, self._first[pieces], "right") - 1
        return self._first[pieces] - starts[columns], columns

    def strings(self) -> list[str]:
        """Return the pieces as text, by number."""
        texts = []
        for piece, length in enumerate(self.lengths):
            row, column = self.place(piece, length)
            texts.append(self._rows[row][column : column + length])
        return texts

    def keep(self, chosen: Array) -> None:
        """Remove all pieces except `chosen` (ascending numbers), and renumber these."""
        numbers = np.full(self.size + 1, len(chosen), np.int32)
        numbers[chosen] = np.arange(len(chosen))
        self.pieces = [[numbers[column] for column in level] for level in self.pieces]
        self.size = len(chosen)
        self.lengths, self._first = self.lengths[chosen], self._first[chosen]
        self.seed_counts = self.seed_counts[chosen]

    # -------------------------------------------------------------------------- sums over all paths
    def expected(self, scores: Array) -> tuple[Array, float]:
        """Compute the expected count of each piece under `scores` (log-probabilities) by the
        forward-backward algorithm. All paths to a character are scaled equally (`LIFT`).

        Returns:
            (expected counts, log-likelihood of the text).
        """
        chance = np.append(np.ldexp(np.exp(scores), LIFT * self.lengths), 0.0)
        alpha = [np.ones(self.reach[0])]
        for j in range(1, self.longest + 1):
            total = np.zeros(self.reach[j])
            for length in range(1, min(j, self.most_length) + 1):
                piece = self.pieces[length][j - length]
                total += alpha[j - length][: len(piece)] * chance[piece]
            alpha.append(total)
        word_totals = np.concatenate(
            [alpha[j][self._next(j) : self.reach[j]] for j in range(self.longest, 0, -1)]
        )
        per_path = self.counts / word_totals
        beta: list[Array] = [np.zeros(0)] * (self.longest + 1)
        expected_counts = np.zeros(self.size + 1)
        for j in range(self.longest, -1, -1):
            total = np.zeros(self.reach[j])
            total[self._next(j) :] = 1.0
            for length in range(1, min(self.longest - j, self.most_length) + 1):
                piece = self.pieces[length][j]
                m = len(piece)
                tail = chance[piece] * beta[j + length][:m]
                total[:m] += tail
                share = alpha[j][:m] * tail * per_path[:m]
                used = np.flatnonzero(share)
                expected_counts += np.bincount(piece[used], share[used], self.size + 1)
            beta[j] = total
        log_likelihood = self.counts @ (np.log(word_totals) - LIFT * np.log(2) * self._sizes)
        return expected_counts[:-1], float(log_likelihood)

    def _next(self, j: int) -> int:
        """Return the number of words of more than `j` characters."""
        return self.reach[j + 1] if j < self.longest else 0

    # -------------------------------------------------------------------------- best paths
    def best(self, scores: Array) -> Array:
        """Count each piece in the best splits of all words (Viterbi)."""
        lengths = self._last_lengths(np.append(scores, -np.inf))
        piece_counts = np.zeros(self.size + 1)
        rows = len(self.counts)
        ends = np.zeros(rows, np.int64)
        for j in range(1, self.longest + 1):
            ends[: self.reach[j]] = j
        for j in range(self.longest, 0, -1):
            words_here = np.flatnonzero(ends[: self.reach[j]] == j)
            last = lengths[j][words_here]
            for length in np.unique(last):
                words = words_here[last == length]
                piece = self.pieces[length][j - length][words]
                piece_counts += np.bincount(piece, self.counts[words], self.size + 1)
                ends[words] = j - length
        return piece_counts[:-1]

    def _last_lengths(self, scores: Array) -> list[Array]:
        """Return for j = 0 … `longest` (reach[j],) the length of the last piece in the best split
        (Viterbi) of the first j characters of each word; `scores` (size + 1,) ends with -inf."""
        reach = self.reach
        best_scores = [np.zeros(reach[0])]
        lengths = [np.zeros(0, np.int8)]
        for j in range(1, self.longest + 1):
            top = np.full(reach[j], -np.inf)
            last = np.zeros(reach[j], np.int8)
            for length in range(1, min(j, self.most_length) + 1):
                piece = self.pieces[length][j - length][: reach[j]]
                new = best_scores[j - length][: reach[j]] + scores[piece]
                better = new > top
                top[better], last[better] = new[better], length
            best_scores.append(top)
            lengths.append(last)
        return lengths

    def without(self, scores: Array) -> Array:
        """Return the score of the best split of each piece into other pieces."""
        value = np.append(scores, -np.inf)
        flat = [np.concatenate(level) if level else np.zeros(0) for level in self.pieces]
        best_scores = np.full(self.size, -np.inf)
        for length in range(2, self.most_length + 1):
            chosen = np.flatnonzero(self.lengths == length)
            row, column = self.place(chosen, length)
            score = [np.zeros(len(chosen))]
            for j in range(1, length + 1):
                top = np.full(len(chosen), -np.inf)
                for width in range(1, j + 1 if j < length else length):
                    flat_index = self._places[width - 1][column + j - width] + row
                    top = np.maximum(top, score[j - width] + value[flat[width][flat_index]])
                score.append(top)
            best_scores[chosen] = score[length]
        return best_scores


ROUND = 0.75  # share of the pieces that a round keeps
SPARE = 1.1  # rounds stop at this multiple of the requested size
SEEDS = 16  # seed pieces per requested piece
RARE = 0.5  # pieces with a smaller expected count are dropped
MOST_WORDS = 300_000  # the most frequent words are enough, and bound the memory
MOST_CHARACTERS = 4_000_000  # of those words, which are long in texts without spaces
DIGITS = 6  # of a saved score


def train_unigram(words: Mapping[str, int], *, tokens: int) -> dict[str, float]:
    """Learn at most `tokens` pieces from distinct `words` and their counts.

    Every character of `words` is a piece, so every text of these characters can be split.

    Returns:
        piece -> log-probability, the most probable first.
    """
    lattice = Lattice(_short(words), max(SEEDS * tokens, 20_000))
    scores = np.log(lattice.seed_counts / lattice.seed_counts.sum())
    while True:
        for _ in range(2):
            scores = fit(lattice, scores)
        if lattice.size <= SPARE * tokens:
            break
        scores = prune(lattice, scores, int(max(SPARE * tokens, ROUND * lattice.size)))
    chosen = _top(lattice, scores, tokens)
    lattice.keep(chosen)
    rows = zip(lattice.strings(), scores[chosen], strict=True)
    ordered = sorted(((p, round(float(s), DIGITS)) for p, s in rows), key=lambda r: (-r[1], r[0]))
    return dict(ordered)


def _short(words: Mapping[str, int]) -> Counter[str]:
    """Return counts of the most frequent words, split to `LONGEST_WORD`, and of characters that
    occur in other words only. Among words with equal counts a hash decides, since by alphabet those
    kept from a text without spaces would all begin with the same letters."""
    ordered = sorted(words, key=lambda word: (-words[word], hash_of(word)))
    short: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    size = 0
    for number, word in enumerate(ordered):
        size += len(word)
        if number < MOST_WORDS and size <= MOST_CHARACTERS:
            for start in range(0, len(word), LONGEST_WORD):
                short[word[start : start + LONGEST_WORD]] += words[word]
        else:
            for character in word:
                left_out[character] += words[word]
    spelled = set().union(*short)
    short.update({c: count for c, count in left_out.items() if c not in spelled})
    return short


def fit(lattice: Lattice, scores: Array) -> Array:
    """Do a step of expectation maximisation and drop pieces with an expected count below `RARE`.

    The scores are digamma(expected) - digamma(total) (variational Bayes with a flat prior), which
    lowers those of rare pieces and makes the vocabulary sparser.

    Raises:
        TokenizerError: counts differ so much that a probability underflows.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # refused below
        expected, _ = lattice.expected(scores)
    remaining = np.flatnonzero((expected >= RARE) | (lattice.lengths == 1))
    lattice.keep(remaining)
    counts = np.maximum(expected[remaining], 0.1)
    fitted = scipy.special.digamma(counts) - scipy.special.digamma(counts.sum())
    if not np.isfinite(fitted).all():
        raise TokenizerError(
            "the counts of the words are too far apart to fit a unigram vocabulary",
            found=f"counts from {lattice.counts.min():g} to {lattice.counts.max():g}",
            wanted="a probability for every word that a float64 can hold",
            do="count less text, or leave out the rarest words",
        )
    return fitted


def prune(lattice: Lattice, scores: Array, size: int) -> Array:
    """Keep the `size` pieces whose removal would lower likelihood most; returns their scores."""
    # A character cannot be split, so its loss is infinite, used or not.
    loss = (lattice.best(scores) + 1e-9) * (scores - lattice.without(scores))
    remaining = _top(lattice, loss, size)
    lattice.keep(remaining)
    return scores[remaining]


def _top(lattice: Lattice, value: Array, size: int) -> Array:
    """Return the ascending numbers of all characters and the pieces with the largest `value`."""
    value = np.where(lattice.lengths == 1, np.inf, value)
    size = max(size, int((lattice.lengths == 1).sum()))
    return np.sort(np.argsort(-value, kind="stable")[:size])
