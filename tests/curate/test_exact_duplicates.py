"""Exact duplicates: what counts as the same, which is kept, and that arrival decides nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from curate.in_process import batch_of, removed, survivors
from maskwright.text.curate.step import CurationBatch
from maskwright.text.curate.steps import exact_duplicates
from maskwright.text.curate.steps.exact_duplicates import Settings


@pytest.mark.parametrize(
    "first, second, same, settings",
    [
        ("The  cat\n", "the cat", True, {}),
        (" The\x1fcat\u00a0", "the cat", True, {}),
        ("The cat.", "The cat", False, {}),
        ("The cat.", "The cat", True, {"ignore_punctuation": True}),
        ("well-known", "wellknown", False, {"ignore_punctuation": True}),
        ("???", "!!!", False, {"ignore_punctuation": True}),
        ("The cat", "the cat", False, {"ignore_case": False}),
        ("the  cat", "the cat", False, {"ignore_spaces": False}),
        ("the cat", "the dog", False, {}),
    ],
)
def test_what_is_the_same(first: str, second: str, same: bool, settings: dict[str, bool]) -> None:
    found = removed(Settings(**settings), [batch_of([first, second])])
    assert list(found.values()) == ["exact-duplicate"] * same


def survivors_of_copies(order: int, shards: int) -> set[str]:
    """Of copies that differ in one part of the order each."""
    rows = [
        *(("a0", "x y", "web", None), ("a1", "X y", "book", None)),  # source
        *(("b0", "p q", "web", "0.2"), ("b1", "P q", "web", "0.9"), ("b2", "p Q", "web", None)),
        *(("c0", "l m", "web", None), ("c1", "l m.", "web", None)),  # length
        *(("d0", "s t", "web", None), ("d1", "S t", "web", None)),  # hash
        *(("e0", "u v", "web", None), ("e1", "u v", "web", None)),  # id
    ]
    batches = []
    for part in np.array_split(np.arange(len(rows))[::order], shards):
        columns = zip(*(rows[n] for n in part), strict=True)
        ids, texts, sources, qualities = (list(column) for column in columns)
        notes = {"source": sources, "quality": qualities}
        batches.append(CurationBatch(np.arange(len(part)), ids, texts, notes))
    return set(survivors(Settings(priority=("book",), ignore_punctuation=True), batches))


def test_arrival_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    left = survivors_of_copies(1, 1)
    assert {"a1", "b1", "c1"} < left and len(left) == 5
    for order, shards in itertools.product((1, -1), (1, 2, 5)):
        assert survivors_of_copies(order, shards) == left

    def first_of_each(table: object, groups: np.ndarray) -> np.ndarray:
        return np.array([np.flatnonzero(groups == g)[0] for g in groups])

    monkeypatch.setattr(exact_duplicates, "rows_to_keep", first_of_each)  # the control
    assert survivors_of_copies(1, 1) != survivors_of_copies(-1, 1)
