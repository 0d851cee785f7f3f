"""Lines, sentences, repeated n-grams and groups equal those of plain loops over each text."""

from __future__ import annotations

import random
import re
from collections import Counter

import numpy as np
import pytest

from curate.in_process import batch_of
from maskwright.text.curate.arrays.hashes import group_equal
from maskwright.text.curate.arrays.segmentation import find_repeats, sentences_of
from maskwright.text.curate.step import CurationBatch
from maskwright.text.curate.steps.gopher_repetition import repeated_ngrams

TEXTS = [
    "one line",
    "\n\n  first \nsecond\n\n\tthird\t\n",
    "same\nsame\nother\nsame ",
    "wörld 一二\r\nx\u2028y",
    "a",
]


def plain_lines(text: str) -> list[tuple[int, str]]:
    return [(n, line.strip()) for n, line in enumerate(text.split("\n")) if line.strip()]


def lines(batch: CurationBatch) -> list[list[tuple[int, str]]]:
    table = batch.lines
    of_texts: list[list[tuple[int, str]]] = [[] for _ in range(len(batch))]
    offsets = batch.characters.offsets[table.texts]
    columns = (table.texts, table.begins - offsets, table.ends - offsets, table.numbers)
    for text, begin, end, number in zip(*columns, strict=True):
        of_texts[text].append((int(number), batch.texts[text][begin:end]))
    return of_texts


def test_lines_are_those_of_a_loop_and_a_blank_one_is_none() -> None:
    assert lines(batch_of(TEXTS)) == [plain_lines(text) for text in TEXTS]
    assert lines(batch_of([])) == []


def test_equal_lines_have_equal_hashes_and_others_do_not() -> None:
    table = batch_of(TEXTS).lines
    texts = [line for text in TEXTS for _, line in plain_lines(text)]
    assert len(set(table.hashes.tolist())) == len(set(texts)) < len(texts)
    again = find_repeats(table.hashes, table.texts)
    assert [texts[n] for n in np.flatnonzero(again)] == ["same", "same"]


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


def test_words_are_taken_with_their_texts() -> None:
    batch = batch_of(["One two, it's three.", "", "日本 語 four", "five", "six seven one"])
    whole = batch.words
    chosen = np.array([True, False, True, False, True])
    fewer = batch.take(chosen)
    assert "words" in vars(fewer)
    for name, values in vars(batch_of(fewer.texts).words).items():
        assert getattr(fewer.words, name).tolist() == values.tolist()
    assert len(whole.hashes) > len(fewer.words.hashes)  # the control


@pytest.mark.parametrize("size", [0, 1, 2, 3, 100, 1000])
@pytest.mark.parametrize("low", [False, True])
def test_groups_are_those_of_a_stable_sort(size: int, low: bool) -> None:
    random = np.random.default_rng(size)
    chosen = random.integers(0, 1 << 63, max(1, size // 3), dtype=np.uint64)
    values = chosen[random.integers(0, len(chosen), size)]
    if low:
        values = values + random.integers(0, 2, size).astype(np.uint64)
    order, opening = group_equal(values)
    assert (order == np.argsort(values, kind="stable")).all()
    ordered = values[order]
    assert opening.tolist() == [n == 0 or ordered[n] != ordered[n - 1] for n in range(size)]
