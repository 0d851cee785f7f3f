"""Sentences with tags: checks, and where their words stand. (Files: test_table.py.)"""

from __future__ import annotations

import pytest

from maskwright.errors import DataError
from maskwright.tasks.tag_file import Sentence


def test_words_are_found_in_their_text() -> None:
    found = Sentence(("do", "n't"), ("AUX", "PART"), "don't", "a.jsonl, line 1")
    assert found.spans == ((0, 2), (2, 5))
    given = Sentence(("Ann", "-", "Po", "met", "Bob"), text="Ann-Po met  Bob")
    assert [given.text[b:e] for b, e in given.spans] == list(given.words)
    assert Sentence(("Ann", "met")).text == "Ann met"


def test_a_sentence_out_of_place_is_noticed() -> None:
    """The control: the words are looked for in order, so a repeated word is found at its turn."""
    found = Sentence(("a", "b", "a"), text="a b a")
    assert found.spans == ((0, 1), (2, 3), (4, 5))
    with pytest.raises(DataError, match="'b', word 2"):
        Sentence(("a", "b"), text="b a")


def test_F77_unequal_words_and_tags_are_refused() -> None:
    with pytest.raises(DataError, match="not one tag for each word") as refused:
        Sentence(("a", "b"), ("O",), where="train.jsonl:12")
    assert "train.jsonl:12" in str(refused.value) and "1 tags" in str(refused.value)
    with pytest.raises(DataError, match=r"'c', word 2"):
        Sentence(("a", "c"), text="a b")
