"""Labels written as one flag for each class, and lists in the cells of a csv: read or refused."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import loaded, refusal, sentence, table_of, understood, write
from maskwright.base.errors import DataError, MaskwrightError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.cell_values import list_of
from maskwright.text.tables.files import load
from maskwright.text.tables.infer import infer
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.prepare import build
from maskwright.text.tables.reading_options import TableReadingOptions, how_read
from maskwright.text.tables.rows import Table

SETS = ((0,), (1, 3), (), (2,), (0, 1, 2, 3))
SKIP = ReadingOptions(on_bad="skip", max_bad_fraction=0.2)
WORDS = ["0 1", "0.0 1.0", "no yes", "No Yes", "false true", "F T", "n y", "nein ja", "non oui"]
WORDS += ["нет да"]


def hot(n: int, one: Any = 1, zero: Any = 0) -> list[Any]:
    """The four flags of row `n`."""
    return [one if place in SETS[n % 5] else zero for place in range(4)]


def column(make: Callable[[int], Any], name: str = "labels", rows: int = 40) -> Table:
    return table_of(*({"text": sentence(n), name: make(n)} for n in range(rows)))


def labels(examples: Dataset, part: str = "all") -> list[tuple[int, ...]]:
    return [e.label for e in examples.parts[part]]


WANTED = [SETS[n % 5] for n in range(40)]


def refused(table: Table, **choices: Any) -> MaskwrightError:
    """Why a table, of which the task is known, cannot be read."""
    task = infer(table, **choices)
    return refusal(DataError, lambda: build(table, task))


def in_csv(path: Path, cell: Callable[[int], str]) -> Path:
    lines = "".join(f'{sentence(n)},"{cell(n)}"\n' for n in range(40))
    return write(path, "text,labels\n" + lines)


# ------------------------------------------------------------------------------ lists
@pytest.mark.parametrize(
    ("one", "zero"), [(1, 0), (1.0, 0.0), (True, False), ("1", "0"), ("1.0", "0.0"), ("yes", "no")]
)
def test_lists_of_flags_are_a_flag_for_each_class(one: Any, zero: Any) -> None:
    task, examples = understood(column(lambda n: hot(n, one, zero)))
    assert task.name == "multi-label" and examples.labels.names == ("0", "1", "2", "3")
    assert labels(examples) == WANTED
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
    assert labels(loaded(in_csv(tmp_path / "in.csv", cell))) == WANTED


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
    names = [{examples.labels.names[place] for place in some} for some in labels(examples)]
    assert names == [set(map(str, lists[n % len(lists)])) for n in range(40)]


def test_names_beside_the_data_name_the_places(tmp_path: Path) -> None:
    file = in_csv(tmp_path / "in.csv", lambda n: str(hot(n)))
    write(tmp_path / "labels.json", '["sport", "sea", "law", "art"]')
    for path in (tmp_path, file):
        examples = loaded(path)
        assert examples.labels.names == ("sport", "sea", "law", "art")
        assert labels(examples) == WANTED
    write(tmp_path / "labels.json", '["sport", "sea"]')
    assert "labels.json" in str(refusal(DataError, lambda: loaded(tmp_path)).where)


def test_codes_of_0_and_1_are_asked_about() -> None:
    table = column(lambda n: "".join(map(str, hot(n))))
    error = refusal(DataError, lambda: infer(table))
    assert "--task multi-label" in str(error.do) and "--task classification" in str(error.do)
    assert labels(build(table, infer(table, task="multi-label"))) == WANTED
    names = build(table, infer(table, task="classification")).labels.names
    assert names == ("0000", "0010", "0101", "1000", "1111")
    # The control: numbers that happen to have these digits.
    assert infer(column(lambda n: ["10", "11", "100"][n % 3])).name == "classification"


@pytest.mark.parametrize("odd", [[0, 0, 2, 1], [0, -1, 0, 0], [1, 0, 0], None, [1, None, 0, 0]])
def test_one_list_that_is_none_of_flags_is_a_bad_row(odd: Any) -> None:
    table = column(lambda n: odd if n == 7 else hot(n))
    task = infer(table)
    assert task.flags == 4 and refused(table).where == "all.jsonl, line 8, column 'labels'"
    left = build(table, task, read=TableReadingOptions(SKIP))
    assert len(left.parts["all"]) == 39 and len(left.labels) == 4


@pytest.mark.parametrize(
    "cell",
    [
        lambda n: hot(n)[: 3 + n % 2],
        lambda n: [n % 3, 0, 1, 0, 2],
        lambda n: [0.7, 0.2, 0.1, 0.0],
        lambda n: "[sport, sea]" if n % 2 else "[a]",
    ],
)
def test_lists_that_are_neither_flags_nor_classes_are_refused(cell: Callable[[int], Any]) -> None:
    refusal(DataError, lambda: infer(column(cell)))


def test_mappings_of_classes_to_flags() -> None:
    task, examples = understood(column(lambda n: dict(zip("dbca", hot(n), strict=True))))
    assert task.name == "multi-label" and examples.labels.names == ("a", "b", "c", "d")
    assert labels(examples)[:3] == [(3,), (0, 1), ()]
    error = refused(column(lambda n: {"a": 1} if n == 3 else {"a": n % 2, "b": 0}))
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


@pytest.mark.parametrize("values", [(0, 1), (0.0, 1.0), (False, True), *map(str.split, WORDS)])
def test_columns_of_flags_are_labels(values: tuple[Any, Any]) -> None:
    task, examples = understood(columns(*values))
    assert task.columns.roles["label"] == ("rude", "loud", "false")
    assert labels(examples)[:4] == [(), (0,), (1,), (0, 1)]


@pytest.mark.parametrize("values", [(0, 1), (0.0, 1.0)])
@pytest.mark.parametrize("odd", [-1, None, "nan", "?", 2])
def test_one_cell_that_is_no_flag_makes_no_other_task(odd: Any, values: Any) -> None:
    table = columns(*values, loud=odd)
    task = infer(table)
    assert task.columns.roles["label"] == ("rude", "loud", "false")
    error = refused(table)
    assert error.where == "all.jsonl, line 8, column 'loud'"
    left = build(table, task, read=TableReadingOptions(SKIP))
    assert len(left.parts["all"]) == 39 and left.task.name == "multi-label"
    if odd == -1:
        assert "--read no_label=-1" in str(error.do)
        made = build(table, infer(table, no_label="-1"), read=how_read("no_label=-1"))
        assert made.unlabelled == 1 and len(made.parts["all"]) == 39


def advised(error: Any) -> list[list[str]]:
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
    several, one = advised(error)
    assert several == names.split() and one == ["rude"] and "label=id" not in str(error.do)
    examples = build(table, infer(table, {"label": several}))
    assert labels(examples)[:4] == [(), (0,), (1,), (0, 1)]
    assert infer(table, {"label": one}).name == "classification"


def test_an_aspect_among_flags_is_no_label_by_its_name() -> None:
    error = refusal(DataError, lambda: infer(columns(0, 1, names="price quality service")))
    assert set(advised(error)[0]) == {"price", "quality", "service"}
    # The controls: a name that means nothing else, and one whose neighbours are no flags.
    assert infer(columns(0, 1, names="price label service")).columns["label"] == "label"
    assert infer(columns(0, 1, names="quality other")).columns["label"] == "quality"


# ------------------------------------------------------------------------------ numbers and words
@pytest.mark.parametrize("odd", ["n/a", "NaN", "-", "?", "", "nan"])
@pytest.mark.parametrize("every", [2, 13])
@pytest.mark.parametrize(
    ("name", "cell", "kind"),
    [
        ("label", lambda n: f"{n % 3}.0", "classification"),
        ("label", lambda n: str(n % 3), "classification"),
        ("score", lambda n: f"{n / 7:.2f}", "regression"),
    ],
    ids=["floats", "whole numbers", "scores"],
)
def test_words_for_nothing_switch_no_task(
    name: str, cell: Callable[[int], str], kind: str, odd: str, every: int
) -> None:
    table = column(lambda n: odd if n % every == 1 else cell(n), name, rows=60)
    task = infer(table)
    assert task.name == kind and refused(table)
    left = build(table, task, read=TableReadingOptions(replace(SKIP, max_bad_fraction=0.9)))
    assert left.task.name == kind and len(left.dropped) == len(range(1, 60, every))
    assert kind == "regression" or left.labels.names == ("0", "1", "2")


def test_floats_that_are_no_numbers_switch_no_task() -> None:
    nothing = [float("nan"), float("inf"), float("nan")]
    table = column(lambda n: nothing[n % 3] * 1 if n % 4 == 0 else float(n % 3), "label")
    assert infer(table).name == "classification"


@pytest.mark.parametrize("odd", ["3,5", "high"])
def test_other_words_among_numbers_are_asked_about(odd: str) -> None:
    table = column(lambda n: odd if n % 8 == 0 else f"{n / 7:.2f}", "score")
    refusal(DataError, lambda: infer(table))
    assert infer(table, no_label=odd).name == "regression"
    assert infer(table, task="classification").name == "classification"


def test_a_fraction_among_classes_is_asked_about() -> None:
    table = column(lambda n: 0.5 if n == 3 else n % 2, "label")
    assert "line 4" in str(refusal(DataError, lambda: infer(table)).where)
    task = infer(table, task="classification")
    assert len(build(table, task, read=TableReadingOptions(SKIP)).labels) == 2
    # The controls: fractions that come often, and a column that is called a score.
    assert infer(column(lambda n: n % 5 / 2, "label")).name == "regression"
    assert infer(column(lambda n: 0.5 if n == 3 else n % 5, "score")).name == "regression"


LABELS = (["a"], ["a", "it's, c"], [], ["c"])
WAYS = pytest.mark.parametrize("spell", [str, json.dumps], ids=["Python", "JSON"])


def write_csv(path: Path, names: str, *columns: Callable[[int], Any], rows: int = 40) -> Path:
    """A table whose cells are made from the numbers of their rows."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(names.split())
        table.writerows([column(n) for column in columns] for n in range(rows))
    return path


def several(path: Path, spell: Callable[[Any], str], cells: dict[int, str] = {}) -> Path:  # noqa: B006
    """A table of texts with several labels each; `cells` stand in the rows of their numbers."""
    return write_csv(path, "text labels", sentence, lambda n: cells.get(n, spell(LABELS[n % 4])))


@WAYS
def test_labels(spell: Callable[[Any], str], tmp_path: Path) -> None:
    table = load(several(tmp_path / "in.csv", spell))
    task = infer(table)
    assert task.name == "multi-label"
    assert "'labels' as label (by its name; its cells hold lists)" in "\n".join(task.lines())
    examples = build(table, task)
    assert examples.labels.names == ("a", "c", "it's, c")
    assert [e.label for e in examples.parts["all"][:4]] == [(0,), (0, 2), (), (1,)]


@WAYS
def test_every_task_that_has_lists(spell: Callable[[Any], str], tmp_path: Path) -> None:
    tables: dict[str, tuple[str, list[Callable[[int], Any]]]] = {
        "tagging": (
            "tokens tags",
            [lambda n: spell(sentence(n).split()), lambda n: spell(["B-x"] + ["O"] * 9)],
        ),
        "multiple-choice": (
            "question choices answer",
            [sentence, lambda n: spell(["one", "two"]), lambda n: "AB"[n % 2]],
        ),
        "question-answering": (
            "question context answers",
            [lambda n: "?", sentence, lambda n: spell({"text": ["the"], "answer_start": [0]})],
        ),
    }
    rows = {}
    for task, (names, columns) in tables.items():
        examples = loaded(write_csv(tmp_path / "a.csv", names, *columns))
        assert examples.task.name == task
        rows[task] = examples.parts["all"][0]
    assert rows["tagging"].tokens == tuple(sentence(0).split())
    assert rows["multiple-choice"].choices == ("one", "two")
    assert rows["question-answering"].answers == (("the", 0),)


def test_what_is_no_list_among_lists(tmp_path: Path) -> None:
    table = load(several(tmp_path / "in.csv", str, {7: "['a', 'b"}))
    task = infer(table)
    error = refusal(DataError, lambda: build(table, task))
    assert "in.csv, line 9, column 'labels'" in str(error.where)
    left = build(
        table, task, read=TableReadingOptions(ReadingOptions(on_bad="skip", max_bad_fraction=0.1))
    )
    assert len(left.parts["all"]) == 39 and left.labels.names == ("a", "c", "it's, c")


@pytest.mark.parametrize("plain", ["a", "c"])
def test_lists_among_names(plain: str, tmp_path: Path) -> None:
    table = load(several(tmp_path / "in.csv", str, dict.fromkeys(range(1, 40, 2), plain)))
    assert "line 2, column 'labels'" in str(refusal(DataError, lambda: infer(table)).where)


@pytest.mark.parametrize("cell", ["['a' 'c']", '["a" "c"]', "['a'\n 'c']"])
def test_lists_of_numpy(cell: str, tmp_path: Path) -> None:
    table = load(several(tmp_path / "in.csv", str, {1: cell}))
    error = refusal(DataError, lambda: infer(table))
    assert "without commas" in error.what and "line 3, column 'labels'" in str(error.where)
    half = dict.fromkeys(range(0, 40, 2), cell)
    table = load(several(tmp_path / "in.csv", lambda _: "a", half))
    assert "without commas" in refusal(DataError, lambda: infer(table)).what


@pytest.mark.parametrize(
    ("names", "role"),
    [("text label", "text"), ("source target", "source"), ("said label", "text")],
)
def test_texts_that_look_like_lists_are_texts(names: str, role: str, tmp_path: Path) -> None:
    other = sentence if role == "source" else lambda n: "ab"[n % 2]
    path = write_csv(tmp_path / "in.csv", names, lambda n: f'["{sentence(n)}"]', other)
    table = load(path)
    examples = build(table, infer(table, {role: names.split()[0]}))
    assert getattr(examples.parts["all"][0], role) == f'["{sentence(0)}"]'


@pytest.mark.parametrize(
    "cell",
    [
        "[__import__('os')]",
        "[1 + 1]",
        "['a' 'b', 'c']",
        "[('a', 'b')]",
        "[" * 5000 + "]" * 5000,
        "[b'a']",
        "a",
        "[laughs] yes [end]",
        "",
        "[" + "'a', " * 30_000 + "]",
    ],
)
def test_what_no_list_spells(cell: str) -> None:
    assert list_of(cell) is None


def test_what_a_list_spells() -> None:
    assert list_of(" ['a\\n', '', \"it's\"] ") == ["a\n", "", "it's"]
    assert list_of("[1, 2.5, null]") == [1, 2.5, None]
    assert list_of("{'text': ['a'], 'answer_start': [0]}") == {"text": ["a"], "answer_start": [0]}
