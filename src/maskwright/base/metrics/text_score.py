"""Scores of generated texts against references, from 0 to 1 (not percent).

    exact match             the whole text                           as in `squad_score.py`
    ROUGE-1, -2, -L         word n-grams, longest common sequence    Lin 2004
    BLEU                    word n-grams to 4, brevity penalty       Papineni et al. 2002; Post 2018
    chrF                    character n-grams to 6, recall twice     Popović 2015

ROUGE and exact match are means over texts; BLEU and chrF sum their counts over all texts first. Of
several references the best one counts; BLEU uses all of them. The words of ROUGE are runs of a … z
and 0 … 9 after lowercasing, without stemming, and ROUGE-L treats the text as one sentence.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.metrics import squad_score
from maskwright.base.metrics.row_metrics import RowMetric, SumMetric, means

BLEU_ORDER = 4
CHRF_ORDER = 6
CHRF_BETA = 2.0
References = Sequence[Sequence[str]]


# ------------------------------------------------------------------------------ ROUGE
def rouge_words(text: str) -> list[str]:
    """Return the words of ROUGE; letters beyond a … z separate them, as in the usual script."""
    return re.findall("[a-z0-9]+", text.lower())


def rouge_n(text: str, reference: str, order: int) -> float:
    """Return the F1 of the bags of word n-grams; 0 if a text has none."""
    ours, theirs = (ngrams(rouge_words(t), order) for t in (text, reference))
    return _f1((ours & theirs).total(), ours.total(), theirs.total())


def rouge_l(text: str, reference: str) -> float:
    """Return the F1 of the length of the longest common subsequence of words."""
    ours, theirs = rouge_words(text), rouge_words(reference)
    return _f1(longest_common(ours, theirs), len(ours), len(theirs))


def longest_common(words: Sequence[str], other_words: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    One pass over `words`; after it, `row[j]` is the length for `second[:j]`, so it never falls.
    """
    number = {word: i for i, word in enumerate(dict.fromkeys(other_words))}
    numbers = np.array([number[word] for word in other_words], np.int64)
    row = np.zeros(len(other_words) + 1, np.int64)
    for word in words:
        longer = row[:-1] + (numbers == number.get(word, -1))
        row[1:] = np.maximum.accumulate(np.maximum(longer, row[1:]))
    return int(row[-1])


def _f1(shared: int, ours: int, theirs: int) -> float:
    return 2 * shared / (ours + theirs) if shared else 0.0


def ngrams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    """Count the n-grams of `order` words."""
    return Counter(zip(*(words[i:] for i in range(order)), strict=False))


# ------------------------------------------------------------------------------ BLEU
def _bleu_counts(texts: Sequence[str], references: References) -> NDArray[np.int64]:
    """Return (N, 10): matches and totals of 1 to 4 words as `mteval-v13a` splits them, length and
    reference length."""
    counts = np.zeros((len(texts), 2 * BLEU_ORDER + 2), np.int64)
    for row, text, text_references in zip(counts, texts, references, strict=True):
        words, golds = words_13a(text), [words_13a(reference) for reference in text_references]
        # The reference that is closest in length, of two the shorter.
        row[-2:] = len(words), min((abs(len(g) - len(words)), len(g)) for g in golds)[1]
        for n in range(BLEU_ORDER):
            ours, reference_ngrams = ngrams(words, n + 1), Counter[tuple[str, ...]]()
            for gold in golds:
                reference_ngrams |= ngrams(gold, n + 1)
            row[n], row[BLEU_ORDER + n] = (ours & reference_ngrams).total(), ours.total()
    return counts


def _bleu_of(counts: NDArray[np.int64]) -> float:
    """Return the BLEU of the sums (10,) of `_bleu_counts`. As in `sacrebleu`, the first precision
    of 0 counts as half of one match, the next as a quarter and so on."""
    *ngram_counts, length, reference_length = counts.tolist()
    matches, totals = ngram_counts[:BLEU_ORDER], ngram_counts[BLEU_ORDER:]
    precisions = _precisions(matches, totals)
    brevity = 1.0 if length > reference_length else 0.0
    if 0 < length <= reference_length:
        brevity = math.exp(1 - reference_length / length)
    if not any(matches) or min(precisions) == 0:
        return 0.0
    return brevity * math.exp(sum(map(math.log, precisions)) / BLEU_ORDER)


def _precisions(matches: Sequence[int], totals: Sequence[int]) -> tuple[float, ...]:
    precisions, share = [], 1.0
    for match, total in zip(matches, totals, strict=True):
        if match == 0 and total:
            share /= 2
            precisions.append(share / total)
        else:
            precisions.append(match / total if total else 0.0)
    return tuple(precisions)


# All ASCII marks but . , - (which depend on their neighbours) and '.
_ALONE = re.compile(r"([!-&(-+/:-@\[-`{-~])")
_AFTER_NO_DIGIT = re.compile(r"([^0-9])([.,])")
_BEFORE_NO_DIGIT = re.compile(r"([.,])([^0-9])")
_DASH_AFTER_DIGIT = re.compile(r"([0-9])(-)")
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))


def words_13a(text: str) -> list[str]:
    """Split words as `mteval-v13a` does: marks are separate, but full stops and commas not between
    digits, dashes only after a digit, and apostrophes never."""
    text = text.replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for name, mark in _ENTITIES:
        text = text.replace(name, mark)
    text = _ALONE.sub(r" \1 ", f" {text} ")
    text = _AFTER_NO_DIGIT.sub(r"\1 \2 ", text)
    text = _BEFORE_NO_DIGIT.sub(r" \1 \2", text)
    return _DASH_AFTER_DIGIT.sub(r"\1 \2 ", text).split()


# ------------------------------------------------------------------------------ chrF
def chrf(texts: Sequence[str], references: References) -> float:
    """Return the chrF2 of a corpus: characters without white space; precision and recall are means
    over the orders that both sides have. The best of several references counts."""
    return _chrf(_chrf_counts(texts, references).sum(0))


def _chrf_counts(texts: Sequence[str], references: References) -> NDArray[np.float64]:
    """Return (N, orders, 3): the counts of each text and its best reference."""
    return np.array(
        [
            max((_character_counts(text, reference) for reference in text_references), key=_chrf)
            for text, text_references in zip(texts, references, strict=True)
        ]
    )


def _character_counts(text: str, reference: str) -> NDArray[np.float64]:
    """Return (orders, 3): n-grams of the text, of the reference, and of both. Orders for which the
    reference is too short do not count for the text either, as in Popović's script."""
    ours, theirs = ("".join(t.split()) for t in (text, reference))
    rows = []
    for order in range(1, CHRF_ORDER + 1):
        a, b = ngrams(ours, order), ngrams(theirs, order)
        rows.append((a.total() if b else 0, b.total(), (a & b).total()))
    return np.array(rows, np.float64)


def _chrf(counts: NDArray[np.float64]) -> float:
    """Return the chrF of counts (orders, 3), which may be flat."""
    counts = counts.reshape(CHRF_ORDER, 3)
    present = (counts[:, 0] > 0) & (counts[:, 1] > 0)
    if not present.any():
        return 0.0
    ours, theirs, shared = counts[present].T
    precision, recall = float((shared / ours).mean()), float((shared / theirs).mean())
    weight = CHRF_BETA**2
    below = weight * precision + recall
    return (1 + weight) * precision * recall / below if below else 0.0


# ------------------------------------------------------------------------------ all of them
# Scores of one text and one reference, whose means over texts are reported.
MEASURES: dict[str, Callable[[str, str], float]] = {
    "rouge_1": lambda text, reference: rouge_n(text, reference, 1),
    "rouge_2": lambda text, reference: rouge_n(text, reference, 2),
    "rouge_l": rouge_l,
    "exact_match": squad_score.exact,
}
# The first is the default for model selection: it needs no words and is always defined.
NAMES = ("chrf", "bleu", *MEASURES)


def row_metrics(texts: Sequence[str], references: References) -> dict[str, RowMetric]:
    """Return the scores of `NAMES` of one or more texts, each with one reference or more, with the
    rows that they are computed from."""
    best_scores = _best_scores(texts, references)
    characters = _chrf_counts(texts, references).reshape(len(texts), -1)
    return {
        "chrf": SumMetric(partial(_by_row, _chrf), characters),
        "bleu": SumMetric(partial(_by_row, _bleu_of), _bleu_counts(texts, references)),
        **means(tuple(MEASURES), best_scores),
    }


def _by_row(score: Callable[[NDArray[Any]], float], sums: NDArray[Any]) -> NDArray[np.float64]:
    return np.array([score(counts) for counts in sums])


def _best_scores(texts: Sequence[str], references: References) -> NDArray[np.float64]:
    """Return (N, measures): each of `MEASURES` for the best reference."""
    scores = np.zeros((len(texts), len(MEASURES)))
    for row, text, golds in zip(scores, texts, references, strict=True):
        row[:] = [max(score(text, gold) for gold in golds) for score in MEASURES.values()]
    return scores
