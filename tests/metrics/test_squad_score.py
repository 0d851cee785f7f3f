"""SQuAD's exact match and F1: by hand, against slow definitions, and with faults put in."""

from __future__ import annotations

import math
import random
import string

import numpy as np
import pytest

from maskwright.base.errors import DataError
from maskwright.base.metrics.squad_score import (
    best,
    best_threshold,
    exact,
    f1,
    normalise,
    words_f1,
)

PLAIN = "the a an The An theory Anne cat Cat cats sat 1,961 1961 co-op coop U.S. us"
ODD = "naïve|—|…|\t|\n||'t|isn't|'|?|!|\u00a0|İ|ß"
WORDS = [*PLAIN.split(), *ODD.split("|")]


def random_text(rng: random.Random) -> str:
    parts = rng.choices(WORDS, k=rng.randint(0, 6))
    return rng.choice([" ", "", "-", ", "]).join(parts)


def test_scores_by_hand() -> None:
    assert normalise("The  Cat’s, the-hat! “A”") == "cat’s thehat “ ”"  # only ASCII marks go
    assert normalise("An a.m.") == "am"  # marks first, then articles
    assert exact("the Cat.", "cat") == 1.0 and exact("cats", "cat") == 0.0
    assert f1("the cat sat", "cat sat down") == pytest.approx(0.8)  # 2 of 2 and 2 of 3 words
    assert f1("cat sat", "cat sat on mat") == pytest.approx(2 * 1 * 0.5 / 1.5)
    assert f1("cat cat", "cat") == pytest.approx(2 / 3)  # a bag, not a set
    assert best("cat", ["dog", "the cat", "cats"]) == (1.0, 1.0)
    assert words_f1(["a", "a", "b"], ["a", "b", "b"]) == pytest.approx(2 / 3)
    # No answer.
    assert best("", []) == (1.0, 1.0) and best("cat", []) == (0.0, 0.0)
    assert best("", ["cat"]) == (0.0, 0.0)
    assert best("", ["the"]) == (1.0, 1.0)  # a gold of which nothing is left is none
    assert best("the", ["a", "cat"]) == (0.0, 0.0)


def slow_words(text: str) -> list[str]:
    letters = [c for c in text.lower() if c not in string.punctuation]
    words, word = "", ""
    for c in [*letters, " "]:
        if c.isalnum() or c == "_":
            word += c
        else:
            words += (" " if word in ("a", "an", "the") else word) + c
            word = ""
    return words.split()


def slow_f1(prediction: list[str], gold: list[str]) -> float:
    rest, shared = list(gold), 0
    for word in prediction:
        if word in rest:
            rest.remove(word)
            shared += 1
    if not prediction or not gold:
        return 1.0 if prediction == gold else 0.0
    if not shared:
        return 0.0
    precision, recall = shared / len(prediction), shared / len(gold)
    return 2 * precision * recall / (precision + recall)


def test_random_texts_equal_the_slow_definition() -> None:
    rng, seen = random.Random(0), set()
    for _ in range(2000):
        a, b = random_text(rng), random_text(rng)
        assert normalise(a).split() == slow_words(a), a
        assert exact(a, b) == float(slow_words(a) == slow_words(b))
        value = f1(a, b)
        assert value == pytest.approx(slow_f1(slow_words(a), slow_words(b)))
        assert value == f1(b, a) and f1(a, a) == exact(a, a) == 1.0
        seen.add(round(value, 3))
    assert len(seen) > 10


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a, b: exact(a.lower(), b.lower()) * (a.lower() == b.lower()),  # marks kept
        lambda a, b: float(set(normalise(a).split()) == set(normalise(b).split())),
        lambda a, b: float(a.casefold().split() == b.casefold().split()),
    ],
)
def test_wrong_rules_are_noticed(wrong) -> None:  # type: ignore[no-untyped-def]
    rng = random.Random(1)
    pairs = [(random_text(rng), random_text(rng)) for _ in range(5000)]
    assert any(wrong(a, b) != exact(a, b) for a, b in pairs)


def test_the_best_of_several_answers_equals_the_slow_definition() -> None:
    rng = random.Random(2)
    for _ in range(200):
        golds = [random_text(rng) for _ in range(rng.randint(0, 3))]
        answer = random_text(rng) if rng.random() < 0.5 else "".join(golds[:1])
        real = [slow_words(gold) for gold in golds if slow_words(gold)] or [[]]
        slow = max(slow_f1(slow_words(answer), words) for words in real)
        assert best(answer, golds)[1] == pytest.approx(slow)


@pytest.mark.parametrize("balanced", [False, True])
def test_thresholds_equal_trying_all(balanced: bool) -> None:
    """Balanced: neither sort of questions is given up for the other."""
    draw = np.random.default_rng(3)
    for _ in range(250):
        count = int(draw.integers(2, 14))
        differences = draw.integers(-3, 4, count).astype(float)
        has = draw.random(count) < 0.3
        has[:2] = True, False
        answered = draw.integers(0, 3, count) / 2 * (has if balanced else 1.0)
        none = (~has).astype(float) if balanced else draw.integers(0, 2, count).astype(float)
        values = {}
        for t in [-math.inf, *sorted(set(differences))]:
            scores = np.where(differences > t, none, answered)
            one, two = scores[has].mean(), scores[~has].mean()
            harmonic = float(2 * one * two / (one + two)) if one + two else 0.0
            values[t] = harmonic if balanced else float(scores.mean())
        threshold, value = best_threshold(differences, answered, none, has if balanced else None)
        assert value == pytest.approx(max(values.values()))
        assert threshold == next(t for t, v in values.items() if v == pytest.approx(value))


def test_few_answers_are_not_given_up_for_the_others() -> None:
    """And the control: the mean over all questions gives them up."""
    differences, has = np.array([-2.0, -1.0, 0, 1, 2, 3]), np.array([0, 1, 0, 0, 0, 0], bool)
    answered, none = has.astype(float) / 2, (~has).astype(float)
    assert best_threshold(differences, answered, none, has)[0] == -1.0
    assert best_threshold(differences, answered, none)[0] == -math.inf
    # Two questions that no threshold can tell apart.
    ends = best_threshold(np.zeros(2), np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    assert ends == (-math.inf, 0.5)


def test_refusals() -> None:
    with pytest.raises(DataError, match="null score"):
        best_threshold(np.array([math.nan]), np.zeros(1), np.zeros(1))
    with pytest.raises(DataError, match="0 questions"):
        best_threshold(np.zeros(0), np.zeros(0), np.zeros(0))
