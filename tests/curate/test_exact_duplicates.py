"""Exact duplicates: what counts as the same, which is kept, and that arrival decides nothing."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from curate.dirty import dirty_texts
from curate.in_process import batch_of, removed, run, survivors
from maskwright.text.curate.step import CurationBatch
from maskwright.text.curate.steps.exact_duplicates import Settings


@pytest.mark.parametrize(
    "first, second, same, settings",
    [
        ("The  cat\n", "the cat", True, {}),
        ("The cat.", "The cat", False, {}),
        ("The cat.", "The cat", True, {"ignore_punctuation": True}),
        ("well-known", "wellknown", False, {"ignore_punctuation": True}),
        ("???", "!!!", False, {"ignore_punctuation": True}),
        ("The cat", "the cat", False, {"ignore_case": False}),
        ("the  cat", "the cat", False, {"ignore_spaces": False}),
        ("the cat", "the dog", False, {}),
    ],
)
def test_what_counts_as_the_same(
    first: str, second: str, same: bool, settings: dict[str, bool]
) -> None:
    found = removed(Settings(**settings), [batch_of([first, second])])
    assert list(found.values()) == ["exact-duplicate"] * same


def test_the_removal_names_the_document_that_is_kept() -> None:
    texts = ["other", "a b", "A  b."]
    (outcome,) = run(Settings(ignore_punctuation=True), [batch_of(texts)])
    (removal,) = outcome.removals
    assert (removal.index, removal.value) == (1, "d2")  # the longer one is kept


def _documents() -> list[tuple[str, str, str, str | None]]:
    """(id, text, source, quality): copies that differ in one part of the order each."""
    return [
        *(("a0", "x y", "web", None), ("a1", "X y", "book", None)),  # source
        *(("b0", "p q", "web", "0.2"), ("b1", "P q", "web", "0.9"), ("b2", "p Q", "web", None)),
        *(("c0", "l m", "web", None), ("c1", "l m.", "web", None)),  # length
        *(("d0", "s t", "web", None), ("d1", "S t", "web", None)),  # hash
        *(("e0", "u v", "web", None), ("e1", "u v", "web", None)),  # id
    ]


def _kept(order: list[int], shards: int) -> set[str]:
    rows = _documents()
    batches = []
    for part in np.array_split(np.array(order), shards):
        own = [rows[n] for n in part]
        ids, texts, sources, qualities = (list(c) for c in zip(*own, strict=True))
        notes = {"source": sources, "quality": qualities}
        batches.append(CurationBatch(np.arange(len(own)), ids, texts, notes))
    return set(survivors(Settings(priority=("book",), ignore_punctuation=True), batches))


def test_white_space_makes_no_text_longer() -> None:
    texts = [f"text number {n}" for n in range(20)]
    padded = [text.replace(" ", " " * 9) for text in texts]
    left = survivors(Settings(), [batch_of(texts + padded)])
    kept_padded = sum(int(name[1:]) >= 20 for name in left)
    assert len(left) == 20 and 0 < kept_padded < 20  # the hash decides, and not the padding


def test_arrival_decides_nothing() -> None:
    usual = list(range(len(_documents())))
    kept = _kept(usual, 1)
    assert {"a1", "b1", "c1"} < kept and len(kept) == 5
    for order, shards in itertools.product((usual, usual[::-1]), (1, 2, 5)):
        assert _kept(order, shards) == kept


def test_the_first_that_came_would_depend_on_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    from maskwright.text.curate.steps import exact_duplicates

    monkeypatch.setattr(  # the control
        exact_duplicates,
        "rows_to_keep",
        lambda table, groups: np.array([np.flatnonzero(groups == g)[0] for g in groups]),
    )
    usual = list(range(len(_documents())))
    assert _kept(usual, 1) != _kept(usual[::-1], 1)


def test_planted_copies_are_found_in_dirty_text(real_data: Path) -> None:
    batch, truth = dirty_texts(real_data)
    found = set(removed(Settings(), [batch]))
    groups: dict[str, set[str]] = {}
    for name, row in truth.items():
        if (row["dup_group"] or "").startswith("x"):
            groups.setdefault(row["dup_group"], set()).add(name)
    assert len(groups) > 50
    assert all(len(group - found) == 1 for group in groups.values())


@pytest.mark.parametrize("case", [True, False])
@pytest.mark.parametrize("blanks", [True, False])
def test_the_short_way_for_ascii_gives_the_same_text(case: bool, blanks: bool) -> None:
    step = Settings(ignore_case=case, ignore_spaces=blanks)
    for text in ("A  b\tC", " A b\x1fc\n", "a b c"):
        # `ß` and a blank behind it make the text go the other way.
        assert step.compared(text + " ß") == step.compared(text + " s")[:-1] + "ß".encode()
    texts = ["A  b\tC", " A b\x1fc\n", "a b c", "A\u00a0b c", "Ä b"]
    distinct = {(True, True): 2, (True, False): 5, (False, True): 4, (False, False): 5}
    assert len(set(map(step.compared, texts))) == distinct[case, blanks]
