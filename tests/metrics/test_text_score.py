"""ROUGE, BLEU, chrF, F1, exact match: by hand, against slow definitions, with faults put in."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest

from maskwright.base.metrics import text_score
from maskwright.base.metrics.text_score import (
    chrf,
    rouge_l,
    rouge_n,
    rouge_words,
    row_metrics,
    words_13a,
)

TEXT = "the a cat dog sat on mat , . 3.5 don't co-op über 1,000"
VOCABULARY = TEXT.split()


def figures(texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    return {name: metric.value for name, metric in row_metrics(texts, references).items()}


def bleu(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    return figures(texts, references)["bleu"]


def precisions(text: str, references: Sequence[str]) -> tuple[float, ...]:
    (counts,) = text_score._bleu_counts([text], [references])
    return text_score._precisions(counts[:4].tolist(), counts[4:8].tolist())


def random_rows(rng: random.Random, count: int, most: int = 9) -> tuple[list[str], list[list[str]]]:
    """Texts and one to three references, which are often near the text."""
    texts, references = [], []
    for _ in range(count):
        words = rng.choices(VOCABULARY, k=rng.randint(0, most))
        some = []
        for _ in range(rng.randint(1, 3)):
            near = [w if rng.random() < 0.7 else rng.choice(VOCABULARY) for w in words]
            some.append(" ".join(near[: rng.randint(0, most)] + rng.choices(VOCABULARY, k=1)))
        texts.append(" ".join(words))
        references.append(some)
    return texts, references


# ------------------------------------------------------------------------------ by hand
def test_rouge_by_hand() -> None:
    gold = "police killed the gunman"  # Lin 2004, section 3
    assert rouge_l("police kill the gunman", gold) == pytest.approx(3 / 4)
    assert rouge_l("the gunman kill police", gold) == pytest.approx(2 / 4)
    # one pair of two of three: "the gunman"
    assert rouge_n("the gunman kill police", gold, 2) == pytest.approx(1 / 3)
    assert rouge_words("Don't—STOP, 3.5 über") == ["don", "t", "stop", "3", "5", "ber"]
    assert rouge_n("", "", 1) == 0.0 == rouge_l("", "cat")


def test_bleu_by_hand() -> None:
    """Papineni et al. 2002, example 2: clipped counts give 2/7 where plain ones give 7/7."""
    golds = ["the cat is on the mat", "there is a cat on the mat"]
    assert precisions("the the the the the the the", golds)[0] == pytest.approx(2 / 7)
    # 5 of 6 words, 3 of 5 pairs (the cat, cat sat, sat on), 2 of 4, 1 of 3
    fractions = precisions("the cat sat on the mat", ["the cat sat on a mat"])
    assert fractions == pytest.approx((5 / 6, 3 / 5, 2 / 4, 1 / 3))
    # Words 2 of 4, pairs 1 of 3, then nothing: half of one of 2, a quarter of one of 1.
    assert precisions("a b x y", ["a b c d"]) == pytest.approx((2 / 4, 1 / 3, 1 / 2 / 2, 1 / 4 / 1))
    # Brevity takes the nearest reference, and of two the shorter one.
    for text, size in (("a b c d e f", 5), ("a b c d e f g", 6)):
        references = [["a b c d e f g h", " ".join("abcdef"[:size])]]
        assert text_score._bleu_counts([text], references)[0, -1] == size
    # Nothing at all is right, no text of four words, no text.
    assert bleu(["x y"], [["a b"]]) == bleu(["a b"], [["a b"]]) == bleu([""], [["a b"]]) == 0.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, world!", "Hello , world !"),
        ("It's 3.5 or 1,000.", "It's 3.5 or 1,000 ."),
        ("1990-91, co-op (x/y)", "1990 - 91 , co-op ( x / y )"),
        ("a.b .5 5. U.S.", "a . b . 5 5 . U . S ."),
        ("&quot;a&quot; &amp; b", '" a " & b'),
        ("en-\ntire\nline <skipped>", "entire line"),
        ("„über“ – 5€", "„über“ – 5€"),
    ],
)
def test_words_as_13a_cuts_them(text: str, words: str) -> None:
    assert words_13a(text) == words.split()


def test_chrf_and_exact_match_by_hand() -> None:
    # a against ab: the order 1 has precision 1 and recall 1/2; the text has no pairs
    assert chrf(["a"], [["ab"]]) == pytest.approx(5 * 0.5 / (4 + 0.5))
    assert chrf(["abc"], [["abc"]]) == 1.0 == chrf(["a b c"], [["abc"]])  # blanks do not count
    # As sacrebleu 2.6.0: "yes" is too short to ask for runs of four and more.
    short = chrf(["the cat sat", "yesterday evening"], [["the cat sat"], ["yes"]])
    assert short == pytest.approx(0.9265, abs=1e-4)
    texts, golds = ["The cat.", "a dog"], [["cat"], ["cat", "big dog"]]
    assert figures(texts, golds)["exact_match"] == 0.5


# ------------------------------------------------------------------------------ slow definitions
def bag(items: Sequence[object]) -> list[object]:
    return sorted(set(items), key=repr)


def runs(words: Sequence[str], order: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + order]) for i in range(len(words) - order + 1)]


def slow_common(first: list[str], second: list[str]) -> int:
    """Try every choice of words of the first text."""
    for size in range(len(first), 0, -1):
        for chosen in itertools.combinations(first, size):
            rest = iter(second)
            if all(word in rest for word in chosen):
                return size
    return 0


def slow_f1(shared: float, ours: float, theirs: float) -> float:
    if not shared:
        return 0.0
    precision, recall = shared / ours, shared / theirs
    return 2 * precision * recall / (precision + recall)


def slow_shared(ours: list, theirs: list) -> int:
    return sum(min(ours.count(item), theirs.count(item)) for item in bag(ours))


def slow_bleu(texts: list[str], references: list[list[str]]) -> float:
    logs, halves = 0.0, 0
    for order in (1, 2, 3, 4):
        right = total = 0
        for text, some in zip(texts, references, strict=True):
            ours = runs(words_13a(text), order)
            total += len(ours)
            for item in bag(ours):
                most = max(runs(words_13a(r), order).count(item) for r in some)  # type: ignore[arg-type]
                right += min(ours.count(item), most)  # type: ignore[arg-type]
        if total == 0 or (order == 1 and right == 0):
            return 0.0
        if right == 0:
            halves += 1
        logs += math.log((right or 0.5**halves) / total) / 4
    length = sum(len(words_13a(text)) for text in texts)
    wanted = 0
    for text, some in zip(texts, references, strict=True):
        sizes = sorted(len(words_13a(r)) for r in some)
        wanted += min(sizes, key=lambda size: abs(size - len(words_13a(text))))
    return math.exp(logs) * (1.0 if length > wanted else math.exp(1 - wanted / length))


def slow_chrf(rows: list[tuple[str, str]]) -> float:
    precisions, recalls = [], []
    for order in range(1, 7):
        shared = ours = theirs = 0
        for text, gold in rows:
            a, b = (runs([c for c in t if not c.isspace()], order) for t in (text, gold))
            shared, theirs = shared + slow_shared(a, b), theirs + len(b)
            ours += len(a) if b else 0  # a reference that is too short asks for none of them
        if ours and theirs:
            precisions.append(shared / ours)
            recalls.append(shared / theirs)
    if not precisions or not sum(precisions):
        return 0.0
    p, r = np.mean(precisions), np.mean(recalls)
    return float(5 * p * r / (4 * p + r))


def test_random_texts_equal_the_slow_definitions() -> None:
    rng = random.Random(0)
    for _ in range(150):
        texts, references = random_rows(rng, rng.randint(1, 3))
        assert bleu(texts, references) == pytest.approx(slow_bleu(texts, references))
        rows = [
            (t, max(some, key=lambda r: slow_chrf([(t, r)])))
            for t, some in zip(texts, references, strict=True)
        ]
        assert chrf(texts, references) == pytest.approx(slow_chrf(rows))
        best = defaultdict[str, list[float]](list)
        for text, some in zip(texts, references, strict=True):
            ours, theirs = rouge_words(text), [rouge_words(reference) for reference in some]
            for n in (1, 2):
                a, options = runs(ours, n), [runs(words, n) for words in theirs]
                scores = (slow_f1(slow_shared(a, b), len(a), len(b)) for b in options)
                best[f"rouge_{n}"].append(max(scores))
            scores = (slow_f1(slow_common(ours, b), len(ours), len(b)) for b in theirs)
            best["rouge_l"].append(max(scores))
        values = figures(texts, references)
        for name, slow in best.items():
            assert values[name] == pytest.approx(np.mean(slow))
