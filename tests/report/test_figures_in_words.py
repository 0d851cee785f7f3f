"""Numbers in words, and where a loss stands."""

from __future__ import annotations

import math

import pytest

from maskwright.base.report.document import (
    count,
    duration,
    figure,
    number,
    percent,
    size,
    standing,
    token_loss,
)
from report.runs import RUN

LINES = {"uniform_loss": 7.6, "unigram_loss": 6.1}


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (12.0, "above the uniform line by 4.4 nats"),
        (7.7, "at the uniform line, as before training"),
        (7.0, "0.9 nats above the unigram line"),
        (6.24, "on the unigram plateau, normal until it breaks"),
        (5.96, "on the unigram plateau, normal until it breaks"),
        (5.3, "below the unigram line by 0.8 nats"),
        (math.nan, "not a number"),
        (math.inf, "not a number"),
    ],
)
def test_a_loss_is_placed_between_the_lines(loss: float, words: str) -> None:
    assert standing(loss, LINES) == words


def test_a_plateau_late_in_the_run_is_not_called_normal() -> None:
    assert "normal" in standing(6.1, LINES, share=0.4)
    assert "normal" not in standing(6.1, LINES, share=0.6)


def test_missing_lines_give_no_words() -> None:
    assert standing(5.0, {}) == ""
    assert standing(5.0, {"unigram_loss": None}) == ""
    assert standing(8.0, {"uniform_loss": 7.6}) == "at the uniform line, as before training"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (999.7, "1 k"),
        (12_345, "12.3 k"),
        (999_999, "1 M"),
        (3.1e6, "3.1 M"),
        (2e9, "2 G"),
        (0.5, "0.5"),
        (math.nan, "–"),
        (-1500, "-1.5 k"),
    ],
)
def test_counts(value: float, words: str) -> None:
    assert count(value) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
        (math.nan, "–"),
        (-3, "0 s"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_small_numbers() -> None:
    assert percent(0.3124) == "31.2 %"
    assert percent(0.000488) == "0.049 %"
    assert percent(math.nan) == "–"
    assert figure(4.0801) == "4.080"
    assert figure(1e6) == "1 M"
    assert figure(math.inf) == "–"
    assert size(18_100_000) == "18.1 MB"
    assert size(12) == "12 bytes"


def test_the_part_that_predicts_tokens_is_compared() -> None:
    assert token_loss({"loss": 7.0, "parts": {"masked": 6.3, "pair": 0.7}}, RUN) == 6.3
    assert token_loss({"loss": 3.0, "parts": {"something": 1.0}}, RUN) == 3.0
    assert token_loss({"loss": 3.0}, RUN) == 3.0
    assert math.isnan(token_loss({"loss": "3.0", "parts": []}, RUN))


def test_what_is_no_number_is_nan() -> None:
    for value in (None, "1", True, [1]):
        assert math.isnan(number({"x": value}, "x"))
    assert number({"x": 2}, "x") == 2.0
