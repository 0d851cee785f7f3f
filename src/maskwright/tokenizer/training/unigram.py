"""Unigram vocabularies: begin with too many pieces, drop those that are missed least.

Kudo 2018 (https://arxiv.org/abs/1804.10959). Each round fits the pieces' probabilities by two
steps of expectation maximisation over all splits, then measures for every piece what the best
splits would lose without it, and keeps the best three quarters, until the wanted number is near.

Ours and not the `tokenizers` library's, because the latter sums in the order of a hash table that
is seeded anew each time: two runs on one text give two vocabularies. Here every order is fixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from maskwright.errors import TokenizerError
from maskwright.tokenizer.training.lattice import LONGEST_WORD, Array, Lattice
from maskwright.tokenizer.training.sample import hash_of

ROUND = 0.75  # share of the pieces that a round keeps
SPARE = 1.1  # rounds stop this near to the wanted number
SEEDS = 16  # seed pieces per wanted piece
RARE = 0.5  # pieces expected less often than this are dropped
MOST_WORDS = 300_000  # the most frequent words are enough, and bound the memory
MOST_CHARACTERS = 4_000_000  # of those words; they are long where a text knows no spaces
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
    """The most frequent words, cut to what a lattice can hold, and the characters of the others.

    Where most words are met once, as the clauses of a text without spaces are, those to be left out
    are chosen by a hash: by their letters, all would begin alike.
    """
    ordered = sorted(words, key=lambda word: (-words[word], hash_of(word)))
    short: Counter[str] = Counter()
    others: Counter[str] = Counter()
    size = 0
    for number, word in enumerate(ordered):
        size += len(word)
        if number < MOST_WORDS and size <= MOST_CHARACTERS:
            for start in range(0, len(word), LONGEST_WORD):
                short[word[start : start + LONGEST_WORD]] += words[word]
        else:
            for character in word:
                others[character] += words[word]
    known = set().union(*short)
    short.update({c: count for c, count in others.items() if c not in known})
    return short


def fit(lattice: Lattice, scores: Array) -> Array:
    """One step of expectation maximisation; drops pieces that are hardly expected at all.

    The scores are digamma(expected) - digamma(total) (variational Bayes with a flat prior), which
    makes rare pieces rarer and so the vocabulary sparser.

    Raises:
        TokenizerError: the counts are so large that a rare word's probability is no number.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # refused below
        expected, _ = lattice.expected(scores)
    kept = np.flatnonzero((expected >= RARE) | (lattice.lengths == 1))
    lattice.keep(kept)
    counts = np.maximum(expected[kept], 0.1)
    fitted = digamma(counts) - digamma(np.array([counts.sum()]))
    if not np.isfinite(fitted).all():
        raise TokenizerError(
            "the counts of the words are too far apart to fit a unigram vocabulary",
            found=f"counts from {lattice.counts.min():g} to {lattice.counts.max():g}",
            wanted="a probability for every word that a float64 can hold",
            do="count less text, or leave out the rarest words",
        )
    return fitted


def prune(lattice: Lattice, scores: Array, size: int) -> Array:
    """Keep the `size` pieces whose loss would cost the best splits most; returns their scores."""
    # A character has no other way to be written, so its loss is infinite, used or not.
    loss = (lattice.best(scores) + 1e-9) * (scores - lattice.without(scores))
    kept = _top(lattice, loss, size)
    lattice.keep(kept)
    return scores[kept]


def _top(lattice: Lattice, value: Array, size: int) -> Array:
    """Rising numbers of the `size` largest by `value`, all characters among them."""
    value = np.where(lattice.lengths == 1, np.inf, value)
    size = max(size, int((lattice.lengths == 1).sum()))
    return np.sort(np.argsort(-value, kind="stable")[:size])


def digamma(x: Array) -> Array:
    """The derivative of log-gamma for x > 0, to about 1e-10: recurrence, then Stirling's series."""
    x = x.astype(np.float64)
    found = np.zeros_like(x)
    for _ in range(8):
        small = x < 8
        found -= np.where(small, 1 / x, 0.0)
        x = np.where(small, x + 1, x)
    inverse = 1 / (x * x)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse / 240)))
    return found + np.log(x) - 0.5 / x - series
