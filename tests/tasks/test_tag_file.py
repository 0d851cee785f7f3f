"""Sentences with tags: checks, entities as slices of the text, rows and columns."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from maskwright.errors import DataError, IncompatibleError, UsageError
from maskwright.tasks.tag_file import Located, Sentence, from_rows, locate, read_columns

COLUMNS = """-DOCSTART- -X- O

Kalomi NNP B-PER
sat VBD O

	
Tion NNP B-LOC
"""


# ------------------------------------------------------------------------------ by hand
def test_entities_are_slices_of_the_text() -> None:
    given = Sentence(
        ("Ann", "-", "Po", "met", "Bob", "'s", "Tion", "."), text="Ann-Po met  Bob's Tion."
    )
    tags = ["B-PER", "I-PER", "I-PER", "O", "B-PER", "O", "B-LOC", "O"]
    assert locate(given, tags) == [
        Located("PER", "Ann-Po", 0, 6),
        Located("PER", "Bob", 12, 15),
        Located("LOC", "Tion", 18, 22),
    ]
    assert Sentence(("Ann", "met")).text == "Ann met"


def test_columns_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "train.conll.gz"
    file.write_bytes(gzip.compress(COLUMNS.encode()))
    one, two = read_columns(file)
    assert one.words == ("Kalomi", "sat") and one.tags == ("B-PER", "O")
    assert one.where.endswith("train.conll.gz, line 3")
    assert two.words == ("Tion",) and two.tags == ("B-LOC",) and two.where.endswith("line 7")
    assert read_columns(file, tag=1)[0].tags == ("NNP", "VBD")
    assert read_columns(file, tag=None)[1].tags is None
    (tmp_path / "tabs.tsv").write_text("New York\tB-LOC", encoding="utf-8")
    assert read_columns(tmp_path / "tabs.tsv", separator="\t")[0].words == ("New York",)


def test_rows_by_hand() -> None:
    row = {"tokens": ["do", "n't"], "tags": ["AUX", "PART"], "text": "don't"}
    (found,) = from_rows([(row, "a.jsonl, line 1")], text="text")
    assert found == Sentence(("do", "n't"), ("AUX", "PART"), "don't", "a.jsonl, line 1")
    assert found.spans == ((0, 2), (2, 5))
    assert from_rows([(row, "x")], tags=None)[0].tags is None
    assert from_rows([]) == []


def test_a_sentence_out_of_place_is_noticed() -> None:
    """The control: the words are looked for in order, so a repeated word is found at its turn."""
    found = Sentence(("a", "b", "a"), text="a b a")
    assert found.spans == ((0, 1), (2, 3), (4, 5))
    with pytest.raises(DataError, match="'b', word 2"):
        Sentence(("a", "b"), text="b a")


# ------------------------------------------------------------------------------ refusals
def test_F77_unequal_words_and_tags_are_refused() -> None:
    with pytest.raises(DataError, match="not one tag for each word") as refused:
        Sentence(("a", "b"), ("O",), where="train.jsonl:12")
    assert "train.jsonl:12" in str(refused.value) and "1 tags" in str(refused.value)
    with pytest.raises(DataError, match=r"'c', word 2"):
        Sentence(("a", "c"), text="a b")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"token": [], "tags": []}, "did you mean 'token'"),
        ({"tokens": "lo mi", "tags": ["O", "O"]}, "no list of texts"),
        ({"tokens": ["lo"], "tags": [1]}, "no list of texts"),
        ({"tokens": ["lo", "mi"], "tags": ["O"]}, "not one tag for each word"),
        ({"tokens": ["lo"], "tags": None}, "no list of texts"),
    ],
)
def test_F77_bad_rows_are_named(row: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as refused:
        from_rows([({"tokens": [], "tags": []}, "t.jsonl, line 1"), (row, "t.jsonl, line 2")])
    assert message in str(refused.value) and "t.jsonl, line 2" in str(refused.value)


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(IncompatibleError, match="each word"):
        locate(Sentence(("lo", "mi")), ["O"])
    with pytest.raises(DataError, match="no text"):
        from_rows([({"tokens": [], "tags": [], "text": 3}, "x")], text="text")
    file = tmp_path / "bad.txt"
    file.write_text("Kalomi B-PER\nsat\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"without a tag(?s:.*)line 2"):
        read_columns(file)
    with pytest.raises(DataError, match=r"columns(?s:.*)line 1"):
        read_columns(file, tag=3)
    with pytest.raises(UsageError):
        read_columns(tmp_path / "none.txt")
    (tmp_path / "odd.txt").write_bytes(b"lo O\n\xff O\n")
    with pytest.raises(DataError, match=r"UTF-8(?s:.*)byte 5"):
        read_columns(tmp_path / "odd.txt")
