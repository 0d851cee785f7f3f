"""Multiple choice: pairs in order and back, ties, rows of different numbers of choices."""

from __future__ import annotations

import random

import numpy as np
import pytest

from maskwright.errors import ConfigError, DataError, IncompatibleError
from maskwright.tasks.choices import Choices, answers, best, by_row, encode, pairs
from tokenizer.toy_tokenizers import KINDS, trained

ROWS = [Choices("who", ("Ann", "Bob"), 1), Choices("why", ("lo", "mi", "po"), 0)]


# ------------------------------------------------------------------------------ by hand
def test_pairs_by_hand() -> None:
    flat, owners = pairs(ROWS)
    assert flat == [("who", "Ann"), ("who", "Bob"), ("why", "lo"), ("why", "mi"), ("why", "po")]
    assert owners.tolist() == [0, 0, 1, 1, 1]
    scores = np.array([0.1, 0.2, 3.0, -1.0, 3.0])
    assert by_row(scores, owners).tolist() == [[0.1, 0.2, -np.inf], [3.0, -1.0, 3.0]]
    assert best(scores, owners).tolist() == [1, 0] == answers(ROWS).tolist()
    assert pairs([])[0] == [] and best(np.zeros(0), np.zeros(0, np.int64)).size == 0


def test_a_row_whose_scores_are_all_low_still_has_a_best() -> None:
    """The control of the filling: with 0 in place of -inf a choice that is none would win."""
    scores = np.array([-5.0, -4.0, -9.0, -8.0, -7.0])
    owners = pairs(ROWS)[1]
    assert best(scores, owners).tolist() == [1, 2]
    filled = by_row(scores, owners)
    filled[np.isinf(filled)] = 0.0
    assert filled.argmax(axis=1).tolist() == [2, 2]


# ------------------------------------------------------------------------------ slow definition
def test_the_best_equals_a_loop() -> None:
    rng = random.Random(0)
    for _ in range(200):
        rows = [
            Choices("q", tuple(f"c{i}" for i in range(rng.randint(2, 5))))
            for _ in range(rng.randint(1, 8))
        ]
        flat, owners = pairs(rows)
        scores = np.array([float(rng.randint(0, 3)) for _ in flat])
        at, wanted = 0, []
        for row in rows:
            here = scores[at : at + len(row.choices)].tolist()
            wanted.append(here.index(max(here)))
            at += len(row.choices)
        assert best(scores, owners).tolist() == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_rows_hold_question_and_choice(kind: str) -> None:
    tokenizer = trained(kind)
    framed, owners, cuts = encode(tokenizer, ROWS, 40)
    assert len(framed) == 5 and (cuts.rows, cuts.tokens_cut) == (5, 0)
    for row, (question, choice) in zip(framed, pairs(ROWS)[0], strict=True):
        ids = tokenizer.frame(tokenizer.encode(question), tokenizer.encode(choice))[0]
        assert row.tokens.tolist() == ids
    long = [Choices("lo " * 30, ("Ann", "mi " * 40))]
    framed, _, cuts = encode(tokenizer, long, 20)
    assert all(len(row) == 20 for row in framed)
    assert cuts.rows_cut == 2 and cuts.tokens_cut == sum(row.cut for row in framed)
    assert owners.tolist() == [0, 0, 1, 1, 1]


# ------------------------------------------------------------------------------ refusals
def test_refusals() -> None:
    for choices, answer, message in (
        (("a",), None, "1 choices"),
        (("a", " "), None, "choice 1"),
        (("a", "b", "a"), None, "the same"),
        (("a", "b"), 2, "0 to 1"),
        (("a", "b"), -1, "0 to 1"),
        (("a", "b"), True, "0 to 1"),
        (("a", "b"), 0.0, "0 to 1"),
    ):
        with pytest.raises(DataError, match=message) as refused:
            Choices("q", choices, answer, "train.jsonl:5")  # type: ignore[arg-type]
        assert "train.jsonl:5" in str(refused.value)
    with pytest.raises(DataError, match="row 1"):
        answers([ROWS[0], Choices("q", ("a", "b"))])
    owners = pairs(ROWS)[1]
    with pytest.raises(IncompatibleError, match="each pair"):
        best(np.zeros(4), owners)
    with pytest.raises(DataError, match="pair 2"):
        best(np.array([0, 0, np.nan, 0, 0]), owners)
    with pytest.raises(ConfigError, match="no room"):
        encode(trained("wordpiece"), ROWS, 3)
