"""Sentences of a line, and repeated n-grams beside counting them."""

from __future__ import annotations

import random
import re
from collections import Counter

import numpy as np
import pytest

from curate.in_process import batch_of
from maskwright.text.curate.arrays.segmentation import sentences_of
from maskwright.text.curate.steps.gopher_repetition import repeated_ngrams


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("One. Two! Three?", 3),
        ('He said "Go." Then he left', 2),
        ("No end", 1),
        ("Version 3.14 is out.", 1),
        ("Wait... what?!", 2),
        ("好。很好！", 2),
        ("(It ended.)", 1),
        ("እሺ። ጥሩ። 𑂂𑃀 𑂂", 4),  # the last mark is beyond the first 65,536 characters
        ("a, b; c: d", 1),
    ],
)
def test_sentences_of_a_line(line: str, count: int) -> None:
    alone = batch_of([line]).lines
    assert sentences_of(alone).tolist() == [count]
    among = batch_of(["Before. It", line + "\nAfter", "x"]).lines
    assert sentences_of(among).tolist() == [2, count, 1, 1]


def plain_ngrams(text: str, n: int) -> tuple[float, float]:
    words = [m.span() for m in re.finditer(r"\w+", text)]
    names = [text[b:e].lower() for b, e in words]
    grams = [tuple(names[i : i + n]) for i in range(len(names) - n + 1)]
    whole = sum(map(len, names))
    counts = Counter(grams)
    most = max(counts.values(), default=0)
    top = 0
    if most > 1:
        top = max(most * sum(map(len, g)) for g, c in counts.items() if c == most)
    covered, seen = set(), set()
    for i, gram in enumerate(grams):
        covered |= set(range(i, i + n)) if gram in seen else set()
        seen.add(gram)
    return min(1.0, top / whole), sum(len(names[i]) for i in covered) / whole


def test_repeated_ngrams_equal_counting_them() -> None:
    draw, words = random.Random(3), ["a", "bb", "ccc", "dddd"]
    texts = [" ".join(draw.choices(words, k=draw.randint(1, 60))) for _ in range(60)]
    texts += [" ".join(draw.choices(["a", "bb"], k=40)) for _ in range(9)]
    texts += ["One two three four five six seven eight nine ten, eleven. " * 2]
    top, found = repeated_ngrams(batch_of(texts).words, (2, 3, 4), (5, 6, 10))
    for n, values in top.items():
        assert values == pytest.approx([plain_ngrams(t, n)[0] for t in texts])
    for n, values in found.items():
        assert values == pytest.approx([plain_ngrams(t, n)[1] for t in texts])
        assert 0 < np.count_nonzero(values) < len(texts)
    # The control: without the words' texts, what another text says would count.
    joined = repeated_ngrams(batch_of([" ".join(texts)]).words, (2,), (5,))[1][5]
    assert joined[0] > found[5].mean() + 0.2
