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


# ------------------------------------------------------------------------------ by hand
def test_normalisation_by_hand() -> None:
    assert normalise("The  Cat, the-hat!") == "cat thehat"
    assert normalise("An apple a day") == "apple day"
    assert normalise("Anne's theory") == "annes theory"
    assert normalise("the") == normalise(" A. ") == ""
    assert normalise("“Quoted” – dash") == "“quoted” – dash"  # only ASCII marks are taken away
    assert normalise("a.m.") == "am"  # marks first, then articles


def test_scores_by_hand() -> None:
    assert exact("the Cat.", "cat") == 1.0 and exact("cats", "cat") == 0.0
    assert f1("the cat sat", "cat sat down") == pytest.approx(0.8)  # 2 of 2 and 2 of 3 words
    assert f1("cat sat", "cat sat on mat") == pytest.approx(2 * 1 * 0.5 / 1.5)
    assert f1("cat cat", "cat") == pytest.approx(2 / 3)  # a bag, not a set
    assert f1("dog", "cat") == 0.0
    assert best("cat", ["dog", "the cat", "cats"]) == (1.0, 1.0)


def test_no_answer_by_hand() -> None:
    assert best("", []) == (1.0, 1.0) and best("cat", []) == (0.0, 0.0)
    assert best("", ["cat"]) == (0.0, 0.0)
    assert best("", ["the"]) == (1.0, 1.0)  # a gold of which nothing is left is none
    assert best("the", ["a", "cat"]) == (0.0, 0.0)


# ------------------------------------------------------------------------------ slow definitions
def slow_words(text: str) -> list[str]:
    letters = [c for c in text.lower() if c not in string.punctuation]
    found, word = "", ""
    for c in [*letters, " "]:
        if c.isalnum() or c == "_":
            word += c
        else:
            found += (" " if word in ("a", "an", "the") else word) + c
            word = ""
    return found.split()


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
    for _ in range(5000):
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
        told = random_text(rng) if rng.random() < 0.5 else "".join(golds[:1])
        real = [gold for gold in golds if slow_words(gold)] or [""]
        slow = max(slow_f1(slow_words(told), slow_words(gold)) for gold in real)
        assert best(told, golds)[1] == pytest.approx(slow)


def test_bags_of_words() -> None:
    assert words_f1([], []) == 1.0 and words_f1(["a"], []) == words_f1([], ["a"]) == 0.0
    assert words_f1(["a", "a", "b"], ["a", "b", "b"]) == pytest.approx(2 / 3)


# ------------------------------------------------------------------------------ no answer
def test_thresholds_equal_trying_all() -> None:
    draw = np.random.default_rng(3)
    for _ in range(300):
        count = int(draw.integers(1, 12))
        differences = draw.integers(-3, 4, count).astype(float)
        answered, none = draw.integers(0, 3, count) / 2, draw.integers(0, 2, count).astype(float)
        tried = {
            t: float(np.where(differences > t, none, answered).mean())
            for t in [-math.inf, *sorted(set(differences))]
        }
        threshold, value = best_threshold(differences, answered, none)
        assert value == pytest.approx(max(tried.values()))
        assert threshold == next(t for t, v in tried.items() if v == pytest.approx(value))


def test_balanced_thresholds_equal_trying_all() -> None:
    """Neither sort of questions is given up for the other, unless one cannot be had."""
    draw = np.random.default_rng(4)
    for _ in range(200):
        count = int(draw.integers(2, 14))
        differences = draw.integers(-3, 4, count).astype(float)
        has = draw.random(count) < 0.3
        has[:2] = True, False
        answered = np.where(has, draw.integers(0, 3, count) / 2, 0.0)
        none = (~has).astype(float)

        tried = {}
        for t in [-math.inf, *sorted(set(differences))]:
            told = np.where(differences > t, none, answered)
            one, two = told[has].mean(), told[~has].mean()
            tried[t] = float(2 * one * two / (one + two)) if one + two else 0.0
        threshold, value = best_threshold(differences, answered, none, has)
        assert value == pytest.approx(max(tried.values()))
        assert threshold == next(t for t, v in tried.items() if v == pytest.approx(value))


def test_few_answers_are_not_given_up_for_the_others() -> None:
    """And the control: the mean over all questions gives them up."""
    differences, has = np.array([-2.0, -1.0, 0, 1, 2, 3]), np.array([0, 1, 0, 0, 0, 0], bool)
    answered, none = has.astype(float) / 2, (~has).astype(float)
    assert best_threshold(differences, answered, none, has)[0] == -1.0
    assert best_threshold(differences, answered, none)[0] == -math.inf


def test_parting_equal_differences_is_noticed() -> None:
    """The control: two questions that no threshold can tell apart."""
    threshold, value = best_threshold(np.zeros(2), np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    assert value == 0.5 and threshold == -math.inf


# ------------------------------------------------------------------------------ refusals
def test_refusals() -> None:
    with pytest.raises(DataError, match="null score"):
        best_threshold(np.array([math.nan]), np.zeros(1), np.zeros(1))
    with pytest.raises(DataError, match="0 questions"):
        best_threshold(np.zeros(0), np.zeros(0), np.zeros(0))
