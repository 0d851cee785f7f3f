"""Negative controls: divisions with one promise broken must fail the real tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from tests.labelled import test_splits

from maskwright.text.tables import splits


def by_shuffling(texts: Sequence[str], classes: Any, division: Any, groups: Any = None) -> Any:
    """What many scripts do: shuffle with a seed, cut. Places decide, texts do not."""
    order = list(range(len(texts)))
    random.Random(division.seed).shuffle(order)
    test, rest = int(division.test * len(order)), int(division.validation * len(order))
    return {
        "test": order[:test],
        "validation": order[test : test + rest],
        "train": order[test + rest :],
    }


def by_fresh_draws(texts: Sequence[str], classes: Any, count: int, seed: int = 0) -> list[int]:
    """A new draw for every size: the 50 are not among the 200."""
    return random.Random(1000 * seed + count).sample(range(len(texts)), count)


def test_a_division_by_place_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "split_rows", by_shuffling)
    with pytest.raises(AssertionError):
        test_splits.test_a_division_does_not_depend_on_the_order_of_rows()
    with pytest.raises(AssertionError):
        test_splits.test_rows_added_do_not_move_the_others()
    with pytest.raises(AssertionError):
        test_splits.test_duplicates_and_groups_stay_together()


def test_draws_that_do_not_nest_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "draw_rows", by_fresh_draws)
    with pytest.raises(AssertionError):
        test_splits.test_few_labels_are_nested()
