"""What a check found is a value: one sentence, one line of a terminal, one form in JSON."""

from __future__ import annotations

import json

import pytest

from maskwright.base.errors import Finding

WHOLE = Finding("rare-classes", "train has few rows of 'a'", "the first: a.csv", "add some")


def test_a_sentence_has_what_was_found_first_then_what_shows_it_and_what_to_do() -> None:
    assert str(WHOLE) == "train has few rows of 'a'; the first: a.csv; add some"
    assert str(Finding("empty-files", "no rows", remedy="add some")) == "no rows; add some"


def test_a_line_begins_with_how_serious_it_is() -> None:
    assert WHOLE.line() == f"note: {WHOLE}"
    lost = Finding("lost", "lost", severity="warning")
    assert lost.line() == "warning: lost" and Finding.of_line("lost", lost.line()) == lost
    assert Finding.of_line("rows", "using: a").line() == "note: using: a"


def test_what_it_is_about_stands_first() -> None:
    assert str(Finding("empty-files", "empty: a").of("train")) == "train: empty: a"


@pytest.mark.parametrize("found", [WHOLE, Finding("lost", "lost", severity="warning")])
def test_plain_values_give_it_back(found: Finding) -> None:
    assert Finding.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_what_is_empty_is_not_written() -> None:
    assert Finding("lost", "lost").to_json() == {"name": "lost", "what": "lost"}


@pytest.mark.parametrize("name, what", [("Rare classes", "a"), ("rare_classes", "a"), ("rare", "")])
def test_names_are_for_programs_and_something_is_found(name: str, what: str) -> None:
    with pytest.raises(ValueError):
        Finding(name, what)
