"""Speed, remaining time, and the course of the loss in constant memory."""

from __future__ import annotations

import math

import pytest

from maskwright.base.budget import Budget
from maskwright.base.memory import resident
from maskwright.base.report.panel import BARS, History, Throughput, budget


def test_a_long_history_keeps_its_shape_in_few_cells() -> None:
    history = History(cells=8)
    for step in range(100_000):
        history.add(float(step))
    line = history.sparkline()
    assert 4 <= len(line) <= 8
    assert list(line) == sorted(line, key=BARS.index)
    assert (line[0], line[-1]) == (BARS[0], BARS[-1])
    assert len(vars(history)["_means"]) < 16


def test_a_history_ignores_what_is_no_number() -> None:
    history = History(cells=4)
    assert history.sparkline() == ""
    for value in (1.0, math.nan, 2.0):
        history.add(value)
    assert history.sparkline() == BARS[0] + BARS[-1]


def test_speed_and_remaining_time() -> None:
    pace = Throughput()
    assert pace.tokens_per_second == 0.0
    pace.mark(100.0, 1000.0, 0.10)
    assert math.isnan(pace.remaining(0.10))
    pace.mark(110.0, 6000.0, 0.35)
    assert pace.tokens_per_second == 500.0
    assert pace.remaining(0.35) == pytest.approx(0.65 * 10 / 0.25)


def test_a_resumed_run_is_judged_by_this_sitting() -> None:
    pace = Throughput()
    pace.mark(0.0, 9_000_000.0, 0.90)
    pace.mark(50.0, 9_500_000.0, 0.95)
    assert pace.remaining(0.95) == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("run", "wanted"),
    [
        ({"steps": 40}, Budget(steps=40)),
        ({"steps": None, "budget": {"steps": None, "minutes": 4.0}}, Budget(minutes=4.0)),
        ({"budget": {"tokens": 5000}}, Budget(tokens=5000)),
        ({}, None),
        ({"steps": 0, "budget": "long"}, None),
    ],
)
def test_the_end_of_a_run(run: dict[str, object], wanted: Budget | None) -> None:
    assert budget(run) == wanted


def test_memory_is_that_of_a_python() -> None:
    assert resident() == 0 or 1e6 < resident() < 1e12
