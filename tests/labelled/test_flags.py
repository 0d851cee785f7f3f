"""Labels written as one flag for each class: in lists, mappings and columns, or refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import loaded, refusal, sentence, table_of, understood, write
from maskwright.base.errors import DataError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.cell_values import flag
from maskwright.text.tables.infer import infer
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.prepare import build
from maskwright.text.tables.rows import Table

SETS = ((0,), (1, 3), (), (2,), (0, 1, 2, 3))
SKIP = ReadingOptions(on_bad="skip", max_bad_fraction=0.2)


def hot(n: int, one: Any = 1, zero: Any = 0) -> list[Any]:
    """The four flags of row `n`."""
    return [one if place in SETS[n % 5] else zero for place in range(4)]


def column(make: Callable[[int], Any], name: str = "labels", rows: int = 40) -> Table:
    return table_of(*({"text": sentence(n), name: make(n)} for n in range(rows)))


def labels(examples: Dataset, part: str = "all") -> list[tuple[int, ...]]:
    return [e.label for e in examples.parts[part]]


def in_csv(path: Path, cell: Callable[[int], str]) -> Path:
    lines = "".join(f'{sentence(n)},"{cell(n)}"\n' for n in range(40))
    return write(path, "text,labels\n" + lines)


# ------------------------------------------------------------------------------ lists
@pytest.mark.parametrize(
    ("one", "zero"), [(1, 0), (1.0, 0.0), (True, False), ("1", "0"), ("1.0", "0.0"), ("yes", "no")]
)
def test_lists_of_flags_are_a_flag_for_each_class(one: Any, zero: Any) -> None:
    task, examples = understood(column(lambda n: hot(n, one, zero)))
    assert task.name == "multi-label"
    assert examples.labels is not None and examples.labels.names == ("0", "1", "2", "3")
    assert labels(examples) == [SETS[n % 5] for n in range(40)]
    assert "names-of-classes" in {note.name for note in examples.counts["all"].notes}


@pytest.mark.parametrize(
    "cell",
    [
        lambda n: str(hot(n)),
        lambda n: str(tuple(hot(n))),
        lambda n: str(hot(n)).replace(",", ""),
        lambda n: str(hot(n, "1.", "0.")).replace(",", "").replace("'", ""),
        lambda n: str(hot(n, True, False)).replace(",", " "),
        lambda n: f"tensor({hot(n)})",
        lambda n: "|".join(map(str, hot(n))),
        lambda n: ",".join(map(str, hot(n, 1.0, 0.0))),
        lambda n: " ".join(map(str, hot(n))),
        lambda n: ";".join(map(str, hot(n, True, False))),
    ],
)
def test_flags_in_the_cells_of_a_csv(cell: Callable[[int], str], tmp_path: Path) -> None:
    examples = loaded(in_csv(tmp_path / "in.csv", cell))
    assert labels(examples) == [SETS[n % 5] for n in range(40)]


@pytest.mark.parametrize(
    "lists",
    [
        [[0], [1], [2], [0, 3]],
        [[0], [1], [0, 1]],
        [[0, 1], [1, 2], [2, 3]],
        [["a"], ["a", "b"]],
        [[], [1], [0]],
    ],
)
def test_lists_of_classes_stay_lists_of_classes(lists: Sequence[list[Any]]) -> None:
    task, examples = understood(column(lambda n: lists[n % len(lists)]))
    assert task.flags == 0 and task.name == "multi-label"
    assert examples.labels is not None
    named = [{examples.labels.names[place] for place in some} for some in labels(examples)]
    assert named == [set(map(str, lists[n % len(lists)])) for n in range(40)]


def test_names_beside_the_data_name_the_places(tmp_path: Path) -> None:
    file = in_csv(tmp_path / "in.csv", lambda n: str(hot(n)))
    write(tmp_path / "labels.json", '["sport", "sea", "law", "art"]')
    for path in (tmp_path, file):
        examples = loaded(path)
        assert examples.labels is not None
        assert examples.labels.names == ("sport", "sea", "law", "art")
        assert labels(examples)[1] == (1, 3)
    write(tmp_path / "labels.json", '["sport", "sea"]')
    error = refusal(DataError, lambda: loaded(tmp_path))
    assert "labels.json" in str(error.where)


def test_codes_of_0_and_1_are_asked_about() -> None:
    table = column(lambda n: "".join(map(str, hot(n))))
    error = refusal(DataError, lambda: infer(table))
    assert "--task multi-label" in str(error.do) and "--task classification" in str(error.do)
    task = infer(table, task="multi-label")
    assert labels(build(table, task)) == [SETS[n % 5] for n in range(40)]
    names = build(table, infer(table, task="classification")).labels
    assert names is not None and names.names == ("0000", "0010", "0101", "1000", "1111")
    # The control: numbers that happen to have these digits.
    assert infer(column(lambda n: ["10", "11", "100"][n % 3])).name == "classification"


def test_what_is_no_flag_among_them() -> None:
    for odd in ([0, 0, 2, 1], [0, -1, 0, 0], [1, 0, 0], None):
        table = column(lambda n, odd=odd: odd if n == 7 else hot(n))
        task = infer(table)
        error = refusal(DataError, lambda table=table, task=task: build(table, task))
        assert error.where == "all.jsonl, line 8, column 'labels'"
        left = build(table, task, reading=SKIP)
        assert len(left.parts["all"]) == 39 and len(left.labels or ()) == 4
    error = refusal(DataError, lambda: infer(column(lambda n: hot(n)[: 3 + n % 2])))
    error = refusal(DataError, lambda: infer(column(lambda n: [n % 3, 0, 1, 0, 2])))
    task = infer(column(lambda n: [1, None, 0, 0] if n == 7 else hot(n)))
    assert task.flags == 4, "one list with a hole is a bad row"
    error = refusal(DataError, lambda: infer(column(lambda n: [0.7, 0.2, 0.1, 0.0])))
    error = refusal(DataError, lambda: infer(column(lambda n: "[sport, sea]" if n % 2 else "[a]")))


def test_mappings_of_classes_to_flags() -> None:
    table = column(lambda n: dict(zip("dbca", hot(n), strict=True)))
    task, examples = understood(table)
    assert task.name == "multi-label" and examples.labels is not None
    assert examples.labels.names == ("a", "b", "c", "d")
    assert labels(examples)[:3] == [(3,), (0, 1), ()]
    table = column(lambda n: {"a": 1} if n == 3 else {"a": n % 2, "b": 0})
    error = refusal(DataError, lambda: understood(table))
    assert error.wanted == "also b" and "line 4" in str(error.where)


def test_flags_of_other_rows_have_the_classes_of_the_model() -> None:
    table = column(lambda n: hot(n), rows=3)
    task = infer(table, task="multi-label")
    made = build(table, task, classes=["a", "b", "c", "d"], values=[0, 1, 2, 3])
    assert labels(made) == [(0,), (1, 3), ()]
    refusal(DataError, lambda: build(table, task, classes=["a", "b"], values=[0, 1]))


# ------------------------------------------------------------------------------ columns
def columns(*values: Any, names: str = "rude loud false", **odd: Any) -> Table:
    """Rows with an id, a text, and a column for each name; `odd` is what stands in row 7."""
    rows = []
    for n in range(40):
        flags = {name: values[(n // 2**place) % 2] for place, name in enumerate(names.split())}
        rows.append({"id": n, "comment": sentence(n), **flags, **(odd if n == 7 else {})})
    return table_of(*rows)


@pytest.mark.parametrize(
    "values",
    [
        (0, 1),
        (0.0, 1.0),
        ("0", "1"),
        ("0.0", "1.0"),
        (False, True),
        ("no", "yes"),
        ("No", "Yes"),
        ("false", "true"),
        ("F", "T"),
        ("n", "y"),
        ("nein", "ja"),
        ("non", "oui"),
        ("нет", "да"),
    ],
)
def test_columns_of_flags_are_labels(values: tuple[Any, Any]) -> None:
    task, examples = understood(columns(*values))
    assert task.columns.roles["label"] == ("rude", "loud", "false")
    assert labels(examples)[:4] == [(), (0,), (1,), (0, 1)]


@pytest.mark.parametrize("odd", [-1, None, "nan", "?", 2])
def test_one_cell_that_is_no_flag_makes_no_other_task(odd: Any) -> None:
    for values in ((0, 1), (0.0, 1.0)):
        table = columns(*values, loud=odd)
        task = infer(table)
        assert task.columns.roles["label"] == ("rude", "loud", "false")
        error = refusal(DataError, lambda table=table, task=task: build(table, task))
        assert error.where == "all.jsonl, line 8, column 'loud'"
        left = build(table, task, reading=SKIP)
        assert len(left.parts["all"]) == 39 and left.task.name == "multi-label"
    if odd == -1:
        assert "--read no_label=-1" in str(error.do)
        made = build(table, infer(table, no_label="-1"), no_label="-1")
        assert made.unlabelled == 1 and len(made.parts["all"]) == 39


def given(error: Any) -> list[list[str]]:
    """The columns that each piece of advice names."""
    return [re.findall(r"label=(\S+)", part) for part in str(error.do).split(";")]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ((0, 1), "rude loud"),
        ((0.0, 1.0), "rude loud"),
        (("no", "yes"), "rude loud"),
        ((None, "x"), "rude loud false"),
        ((-1, 1), "rude loud false"),
        (("", "X"), "rude loud"),
    ],
)
def test_what_may_be_labels_is_asked_about(values: tuple[Any, Any], names: str) -> None:
    table = columns(*values, names=names)
    error = refusal(DataError, lambda: infer(table))
    several, one = given(error)
    assert several == names.split() and one == ["rude"] and "label=id" not in str(error.do)
    examples = build(table, infer(table, {"label": several}))
    assert labels(examples)[:4] == [(), (0,), (1,), (0, 1)]
    assert infer(table, {"label": one}).name == "classification"


def test_one_flag_beside_numbers_is_the_label() -> None:
    rows = [
        {"id": n, "comment": sentence(n), "loud": float(n % 2), "length": n * 3} for n in range(40)
    ]
    task = infer(table_of(*rows))
    assert task.name == "classification" and task.columns.roles["label"] == ("loud",)


def test_an_aspect_among_flags_is_no_label_by_its_name() -> None:
    error = refusal(DataError, lambda: infer(columns(0, 1, names="price quality service")))
    assert set(given(error)[0]) == {"price", "quality", "service"}
    # The controls: a name that means nothing else, and one whose neighbours are no flags.
    assert infer(columns(0, 1, names="price label service")).columns["label"] == "label"
    assert infer(columns(0, 1, names="quality other")).columns["label"] == "quality"


# ------------------------------------------------------------------------------ numbers and words
@pytest.mark.parametrize("odd", ["n/a", "NaN", "-", "?", "", "nan"])
@pytest.mark.parametrize("every", [2, 13])
def test_words_for_nothing_switch_no_task(odd: str, every: int) -> None:
    def made(name: str, cell: Callable[[int], str]) -> Table:
        return column(lambda n: odd if n % every == 1 else cell(n), name, rows=60)

    for table, kind in (
        (made("label", lambda n: f"{n % 3}.0"), "classification"),
        (made("label", lambda n: str(n % 3)), "classification"),
        (made("score", lambda n: f"{n / 7:.2f}"), "regression"),
    ):
        task = infer(table)
        assert task.name == kind
        refusal(DataError, lambda table=table, task=task: build(table, task))
        most = ReadingOptions(on_bad="skip", max_bad_fraction=0.9)
        left = build(table, task, reading=most)
        assert left.task.name == kind and len(left.dropped) == len(range(1, 60, every))
        if kind == "classification":
            assert left.labels is not None and left.labels.names == ("0", "1", "2")


def test_floats_that_are_no_numbers_switch_no_task() -> None:
    nothing = [float("nan"), float("inf"), float("nan")]
    table = column(lambda n: nothing[n % 3] * 1 if n % 4 == 0 else float(n % 3), "label")
    assert infer(table).name == "classification"


def test_other_words_among_numbers_are_asked_about() -> None:
    for odd in ("3,5", "high"):
        table = column(lambda n, odd=odd: odd if n % 8 == 0 else f"{n / 7:.2f}", "score")
        error = refusal(DataError, lambda table=table: infer(table))
        assert infer(table, no_label=odd).name == "regression"
        assert infer(table, task="classification").name == "classification"
    table = column(lambda n: 0.5 if n == 3 else n % 2, "label")
    error = refusal(DataError, lambda: infer(table))
    assert "line 4" in str(error.where)
    task = infer(table, task="classification")
    assert len(build(table, task, reading=SKIP).labels or ()) == 2
    # The controls: fractions that come often, and a column that is called a score.
    assert infer(column(lambda n: n % 5 / 2, "label")).name == "regression"
    assert infer(column(lambda n: 0.5 if n == 3 else n % 5, "score")).name == "regression"


def test_what_a_flag_is() -> None:
    assert [flag(v) for v in (1, 0.0, True, "No ", "oui")] == [True, False, True, False, True]
    assert [flag(v) for v in (2, -1, None, "maybe", "", [1])] == [None] * 6
