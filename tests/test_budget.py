"""One budget serves all that train: parsed in one place, and used up by one rule."""

from __future__ import annotations

import math

import pytest

from maskwright.base.budget import Budget, equal_budget
from maskwright.base.errors import ConfigError
from maskwright.learn.recipes.base.find import find, override


def test_a_budget_is_exactly_one_of_four() -> None:
    assert Budget(steps=5).used(steps=3, tokens=9, seconds=60) == 3
    assert Budget(tokens=5).used(steps=3, tokens=9, seconds=60) == 9
    assert Budget(minutes=5.0).used(steps=3, tokens=9, seconds=60) == 1
    for wrong in ({}, {"steps": 1, "tokens": 1}, {"minutes": math.nan}, {"flops": -1.0}):
        with pytest.raises(ConfigError, match="exactly one"):
            Budget(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("steps=1000", Budget(steps=1000)),
        ("5e6 tokens", Budget(tokens=5_000_000)),
        ("10min", Budget(minutes=10.0)),
        ("2h", Budget(minutes=120.0)),
        ("1 minute", Budget(minutes=1.0)),
        ("1e15flops", Budget(flops=1e15)),
    ],
)
def test_every_spelling_is_read_and_what_is_shown_is_one(text: str, wanted: Budget) -> None:
    assert Budget.parse(text) == wanted == Budget.parse(str(wanted))
    assert wanted.total != 1 or str(wanted) == text


@pytest.mark.parametrize(
    "text", ["", "tokens", "10", "tokens=-1", "tokens=many", "flops=inf", "minutes=nan", "5 hats"]
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Budget.parse(text)
    assert caught.value.where == "--budget" and "minutes=10" in str(caught.value.wanted)


def test_steps_are_no_equal_budget() -> None:
    assert equal_budget("tokens=5e6") == Budget(tokens=5_000_000)
    with pytest.raises(ConfigError) as caught:
        equal_budget("steps=5")
    assert "steps" not in str(caught.value.wanted)


def test_one_rule_says_when_it_is_used_up() -> None:
    budget = Budget(tokens=10)
    assert not budget.spent(steps=99, tokens=9, seconds=1e9)
    assert budget.spent(steps=0, tokens=10, seconds=0)
    assert budget.share(steps=0, tokens=5, seconds=0) == 0.5
    assert budget.share(steps=0, tokens=50, seconds=0) == 1.0
    assert budget.share(steps=0, tokens=math.nan, seconds=0) == 0.0


def test_operations_are_counted_in_tokens() -> None:
    assert Budget(flops=1e9).in_tokens(1e4) == Budget(tokens=100_000)
    for other in (Budget(steps=3), Budget(tokens=5), Budget(minutes=0.5)):
        assert other.in_tokens(1e4) is other
    with pytest.raises(ValueError, match="in_tokens"):
        Budget(flops=1e9).spent(steps=1, tokens=1, seconds=1)


def test_a_recipe_takes_it_whole_in_every_unit() -> None:
    made = override(find("tiny"), ["training.budget=10min"])
    assert made.training.budget == Budget(minutes=10.0)
    with pytest.raises(ConfigError):
        override(find("tiny"), ["training.budget=soon"])
