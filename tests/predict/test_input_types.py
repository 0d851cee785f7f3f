"""Whatever a program gives to `predict`: each example is answered once, and names of columns never.

The tables are stand-ins with the manners of pandas, polars and pyarrow, none of which is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from maskwright.ask.predict.inputs import examples
from maskwright.base.errors import DataError, UsageError

TEXTS = ["a dull film", "a bright film", "no film"]
ROLES = {"text": ("review",)}


class Pandas:
    """Iterating gives the names of the columns."""

    def __init__(self, **columns: Any) -> None:
        self._values = columns
        self.columns = np.array(list(columns), object)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __getitem__(self, name: str) -> Any:
        return np.array(self._values[name], object)


class Polars(Pandas):
    """Iterating gives the columns."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values.values())


class Arrow:
    """Iterating is not possible, and `columns` are no names."""

    def __init__(self, **columns: Any) -> None:
        self._values, self.column_names = columns, list(columns)
        self.columns = list(columns.values())

    def __getitem__(self, name: str) -> Any:
        return Cells(self._values[name])


class Cells:
    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        return iter(map(Cell, self._values))

    def to_pylist(self) -> list[Any]:
        return list(self._values)


class Cell:
    def __init__(self, value: Any) -> None:
        self._value = value

    def as_py(self) -> Any:
        return self._value


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
        Cells(TEXTS),
        {"review": TEXTS, "stars": [1, 2, 3]},
        {"review": np.array(TEXTS)},
        [{"review": text} for text in TEXTS],
        Pandas(stars=[1, 2, 3], review=TEXTS),
        Polars(stars=[1, 2, 3], review=TEXTS),
        Arrow(stars=[1, 2, 3], review=TEXTS),
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
    assert list(examples(Pandas(text=TEXTS), ROLES)) == [{"text": text} for text in TEXTS]
    assert read(Pandas(review=[])) == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (Pandas(words=TEXTS), "is missing"),
        ({"words": TEXTS}, "is missing"),
        (Pandas(), "is missing"),
        ({"review": TEXTS, "text": TEXTS[:1]}, "different lengths"),
        ({"train": Arrow(review=TEXTS)}, "tables by name"),
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
        list(examples(Pandas(title=TEXTS), both))
    assert len(list(examples(Pandas(title=TEXTS, body=TEXTS), both))) == 3


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
    assert list(examples(Pandas(text=TEXTS), roles)) == [{"text": text} for text in TEXTS]
    with pytest.raises(DataError, match="predict, 'text'"):
        list(examples({"text": TEXTS}, roles))


def test_choices_are_a_list_in_one_example() -> None:
    roles = {"question": ("question",), "choices": ("choices",)}
    one = {"question": "What is red?", "choices": ["a rose", "the sea"]}
    several = {name: [value, value] for name, value in one.items()}
    assert list(examples(one, roles)) == [one]
    assert list(examples(several, roles)) == [one, one]
