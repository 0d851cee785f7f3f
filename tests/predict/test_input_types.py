"""Whatever a program gives to `predict`: each example is answered once, and names of columns never.

Tables of pandas and polars are stand-ins, as neither is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pytest

from corpus.test_in_memory import Frame
from maskwright.ask.predict.inputs import examples
from maskwright.base.errors import DataError, UsageError

TEXTS = ["a dull film", "a bright film", "no film"]
ROLES = {"text": ("review",)}


class Polars(Frame):
    """Iterating gives the columns."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self._columns.values())


class Series:
    """A row of a pandas table."""

    def __init__(self, **values: Any) -> None:
        self._values, self.index = values, list(values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values.values())

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def to_dict(self) -> dict[str, Any]:
        return dict(self._values)


class Named(NamedTuple):
    Index: int
    review: str


def read(given: Any, roles: Any = ROLES) -> list[Any]:
    return [each["review"] if isinstance(each, dict) else each for each in examples(given, roles)]


@pytest.mark.parametrize(
    "given",
    [
        TEXTS,
        tuple(TEXTS),
        (text for text in TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, object)[:, None],
        pyarrow.array(TEXTS),
        {"review": TEXTS, "stars": [1, 2, 3]},
        {"review": np.array(TEXTS)},
        [{"review": text} for text in TEXTS],
        Frame(stars=[1, 2, 3], review=TEXTS),
        Polars(stars=[1, 2, 3], review=TEXTS),
        pyarrow.table({"stars": [1, 2, 3], "review": TEXTS}),
        [Series(review=text, stars=1) for text in TEXTS],
        [Named(n, text) for n, text in enumerate(TEXTS)],
        np.array([(n, text) for n, text in enumerate(TEXTS)], [("n", int), ("review", "U20")]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_each_example_is_read_once_and_by_the_name_of_its_column(given: Any) -> None:
    assert read(given) == TEXTS


@pytest.mark.parametrize(
    "given", ["a dull film", {"review": "a dull film"}, Series(review="a dull film", stars=1)]
)
def test_one_example_by_itself_is_one(given: Any) -> None:
    assert read(given) == ["a dull film"]


def test_a_role_is_a_name_as_well_and_an_empty_table_has_no_answers() -> None:
    assert list(examples(Frame(text=TEXTS), ROLES)) == [{"text": text} for text in TEXTS]
    assert read(Frame(review=[])) == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (Frame(words=TEXTS), "is missing"),
        ({"words": TEXTS}, "is missing"),
        (Frame(), "is missing"),
        ({"review": TEXTS, "text": TEXTS[:1]}, "different lengths"),
        ({"train": pyarrow.table({"review": TEXTS})}, "tables by name"),
        (np.array("a dull film"), "no examples"),
        (3, "no examples"),
        (None, "no examples"),
    ],
)
def test_a_table_without_what_is_read_is_refused(given: Any, told: str) -> None:
    with pytest.raises(DataError, match=told):
        list(examples(given, ROLES))


def test_a_table_with_one_of_two_columns_of_a_text_is_refused() -> None:
    both = {"text": ("title", "body")}
    with pytest.raises(DataError, match="'body'"):
        list(examples(Frame(title=TEXTS), both))
    assert len(list(examples(Frame(title=TEXTS, body=TEXTS), both))) == 3


def test_a_set_and_the_path_of_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no order"):
        read(set(TEXTS))
    (file := tmp_path / "new.csv").write_text("review\na film\n")
    with pytest.raises(UsageError, match="predict"):
        read(str(file))
    assert read([str(file)]) == [str(file)]
    assert read("no-such-file.csv") == ["no-such-file.csv"]


def test_words_of_one_text_are_one_example_and_lists_of_words_several() -> None:
    roles = {"tokens": ("text",)}
    words = ["Anna", "sleeps"]
    assert list(examples({"tokens": words}, roles)) == [{"tokens": words}]
    assert list(examples({"tokens": [words, words]}, roles)) == [{"tokens": words}] * 2
    assert list(examples(Frame(text=TEXTS), roles)) == [{"text": text} for text in TEXTS]
    with pytest.raises(DataError, match="predict, 'text'"):
        list(examples({"text": TEXTS}, roles))


def test_choices_are_a_list_in_one_example() -> None:
    roles = {"question": ("question",), "choices": ("choices",)}
    one = {"question": "What is red?", "choices": ["a rose", "the sea"]}
    several = {name: [value, value] for name, value in one.items()}
    assert list(examples(one, roles)) == [one]
    assert list(examples(several, roles)) == [one, one]
