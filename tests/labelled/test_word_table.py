"""Tables of a word a row become sentences; other tables stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from labelled.tables import loaded, refusal, write
from maskwright.base.errors import DataError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.files import load
from maskwright.text.tables.formats.conll import columns_of

HEAD = "Sentence #,Word,POS,Tag\n"
TWO = "Sentence: 1,Kalomi,NNP,B-PER\n,sat,VBD,O\nSentence: 2,Tion,NNP,B-LOC\n"


def test_sentences_are_put_together(tmp_path: Path) -> None:
    one, two = load(write(tmp_path / "a.csv", HEAD + TWO)).parts["all"]
    assert one.values == {
        "Sentence #": "Sentence: 1",
        "Word": ["Kalomi", "sat"],
        "POS": ["NNP", "VBD"],
        "Tag": ["B-PER", "O"],
    }
    assert two.values["Word"] == ["Tion"]
    assert [row.where.rpartition(" ")[2] for row in (one, two)] == ["2", "4"]
    # The number in every row, as pandas writes it after a gap.
    numbered = "sentence_id,token,ner\n1.0,Kalomi,B-PER\n1.0,sat,O\n2.0,Tion,B-LOC\n"
    found = load(write(tmp_path / "b.csv", numbered)).parts["all"]
    assert [row.values["token"] for row in found] == [["Kalomi", "sat"], ["Tion"]]


def test_they_are_tagging_by_the_column_of_tags(tmp_path: Path) -> None:
    some = "".join(TWO.replace("1,", f"{n}1,").replace("2,", f"{n}2,") for n in range(1, 12))
    examples = loaded(write(tmp_path / "a.csv", HEAD + some))
    assert examples.task.name == "tagging"
    assert examples.task.columns.roles == {"tokens": ("Word",), "tags": ("Tag",)}
    assert len(examples.parts["all"]) == 22


def test_a_row_without_a_word_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", HEAD + TWO.replace("sat", " "))
    error = refusal(DataError, lambda: load(path))
    assert error.where == f"{path}, line 3"
    skipping = ReadingOptions(on_bad="skip", max_bad_fraction=1)
    one, _ = load(path, reading=skipping).parts["all"]
    assert one.values["Word"] == ["Kalomi"]


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (("sentence", "word", "label"), ("He sat on the bank", "bank", "1")),  # a word in a text
        (("id", "word", "label"), ("1", "sat", "O")),  # nothing says what a sentence is
        (("sentence_id", "tokens", "tags"), ("1", "['He', 'sat']", "['O', 'O']")),
        (("sentence_id", "words", "tags"), ("1", "He sat", "O O")),
        (("sentence", "label"), ("1", "O")),
    ],
)
def test_other_tables_are_none(names: tuple[str, ...], first: tuple[str, ...]) -> None:
    assert columns_of(names, first) is None
    assert columns_of(("sentence_id", "word", "tag"), ("1", "He", "O")) == ("sentence_id", "word")
