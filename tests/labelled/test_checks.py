"""Every check of the data with every task type: what is refused or said of one holds for all.

A case makes rows of one task with three different answers (`answer` 0, 1 and 2), and knows how a
raw value is written in the place of an answer. Where a check means something else for a task, the
case says so; nothing is left out without a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from labelled.tables import refusal, sentence, table_of
from maskwright.base.errors import DataError
from maskwright.text.tables.infer import infer
from maskwright.text.tables.labels import learn
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.prepare import build
from maskwright.text.tables.survey import survey

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Rows of one task.

    Attributes:
        row: of a number, by which texts differ, and an answer.
        raw: how a value stands in the place of an answer.
        texts: the columns that must not be empty.
        hidden: values in the place of answers that are hidden.
        unknown: an answer that means that nobody knows; None where a row with it is refused.
        free: whether answers are texts, of which several may be right.
        task: what `--task` says; None: inferred.
        differs: whether one text may have several answers.
        has_classes: whether there are classes, of which one may be rare.
    """

    row: Callable[[int, int], Row]
    raw: Callable[[Any], Row]
    texts: tuple[str, ...]
    hidden: tuple[Any, ...]
    unknown: Any
    free: bool = False
    task: str | None = None
    differs: bool = False
    has_classes: bool = False

    def rows(self, count: int, start: int = 0, answer: int | None = None) -> list[Row]:
        return [
            self.row(n, n % 3 if answer is None else answer) for n in range(start, start + count)
        ]


def text(n: int) -> Row:
    return {"text": sentence(n)}


def pair(n: int) -> Row:
    return {"sentence1": sentence(n), "sentence2": sentence(9000 + n)}


NAMES, NUMBERS, SETS = ("a", "b", "c"), (0.5, 1.25, 2.75), (["a"], ["b"], ["a", "b"])
FLAGS = (
    {"rude": 1, "loud": 0, "late": 0},
    {"rude": 0, "loud": 1, "late": 0},
    {"rude": 0, "loud": 1, "late": 1},
)
TAGS = (["B-PER", "O"], ["O", "B-LOC"], ["B-PER", "B-LOC"])
MARKS = ([[0, 3, "PER"]], [[4, 7, "LOC"]], [[0, 3, "PER"], [4, 7, "LOC"]])
ANSWERS = ("the", "and", "near")
NO_NAMES = ("", None, "?", "unlabeled", -1, "-100", 999, "n/a")
NO_NUMBERS = (None, "", -1, -1.0, "nan", -100, 0.0, 999)

CASES = {
    "classification": Case(
        row=lambda n, k: {**text(n), "label": NAMES[k]},
        raw=lambda value: {"label": value},
        texts=("text",),
        hidden=NO_NAMES,
        unknown="999",
        has_classes=True,
    ),
    "regression": Case(
        row=lambda n, k: {**text(n), "score": NUMBERS[k]},
        raw=lambda value: {"score": value},
        texts=("text",),
        hidden=NO_NUMBERS,
        unknown=999.0,
        task="regression",
    ),
    "multi-label": Case(
        row=lambda n, k: {**text(n), "labels": SETS[k]},
        raw=lambda value: {"labels": [] if value is None else [value]},
        texts=("text",),
        hidden=(None, "?", "-1", "unlabeled"),
        unknown="999",
        has_classes=True,
    ),
    "flags": Case(
        row=lambda n, k: {**text(n), **FLAGS[k]},
        raw=lambda value: dict.fromkeys(FLAGS[0], value),
        texts=("text",),
        hidden=(-1, None, "", "?", 0),
        unknown=None,
        has_classes=True,
    ),
    "pair-classification": Case(
        row=lambda n, k: {**pair(n), "label": NAMES[k]},
        raw=lambda value: {"label": value},
        texts=("sentence1", "sentence2"),
        hidden=NO_NAMES,
        unknown="unknown",
        has_classes=True,
    ),
    "similarity": Case(
        row=lambda n, k: {**pair(n), "score": NUMBERS[k]},
        raw=lambda value: {"score": value},
        texts=("sentence1", "sentence2"),
        hidden=NO_NUMBERS,
        unknown=-1.0,
    ),
    "embedding": Case(
        row=lambda n, k: {**pair(n), "score": NUMBERS[k]},
        raw=lambda value: {"score": value},
        texts=("sentence1", "sentence2"),
        hidden=NO_NUMBERS,
        unknown=999.0,
        task="embedding",
    ),
    "tagging": Case(
        row=lambda n, k: {"tokens": [f"Anna{n}", f"Rome{n}"], "tags": TAGS[k]},
        raw=lambda value: {"tags": [value, value]},
        texts=("tokens",),
        hidden=("O", "-100", -100, "?", "unlabeled"),
        unknown="?",
        has_classes=True,
    ),
    "spans": Case(
        row=lambda n, k: {"text": f"the cat of {n} met the dog", "entities": MARKS[k]},
        raw=lambda value: {"entities": [] if value is None else value},
        texts=("text",),
        hidden=(None,),
        unknown=None,
        has_classes=True,
    ),
    "question-answering": Case(
        row=lambda n, k: {
            "question": f"What is number {n}?",
            "context": sentence(n),
            "answers": {"text": [ANSWERS[k]], "answer_start": [sentence(n).index(ANSWERS[k])]},
        },
        raw=lambda value: {
            "answers": {
                "text": [] if value is None else [value],
                "answer_start": [] if value is None else [0],
            }
        },
        texts=("question", "context"),
        hidden=(None, "", "?", "-1"),
        unknown=None,
        free=True,
    ),
    "multiple-choice": Case(
        row=lambda n, k: {
            "question": f"What is number {n}?",
            "choices": [f"{n} a", f"{n} b", f"{n} c"],
            "label": k,
        },
        raw=lambda value: {"label": value},
        texts=("question", "choices"),
        hidden=(-1, None, "", 0, "?", 999, "A"),
        unknown=None,
    ),
    "matching": Case(
        row=lambda n, k: {"anchor": sentence(n), "positive": f"the answer {k} of {n}"},
        raw=lambda value: {"positive": value},
        texts=("anchor", "positive"),
        hidden=("", None, "n/a", "unknown"),
        unknown="n/a",
        free=True,
        differs=True,
    ),
    "sequence-to-sequence": Case(
        row=lambda n, k: {"source": sentence(n), "target": f"the answer {k} of {n}"},
        raw=lambda value: {"target": value},
        texts=("source", "target"),
        hidden=("", None, "n/a", "-", "TBD"),
        unknown="n/a",
        free=True,
        task="sequence-to-sequence",
        differs=True,
    ),
}
every = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def made(case: Case, no_label: str | None = None, /, **parts: list[Row]) -> Dataset:
    table = table_of(**parts)
    task = infer(table, None, case.task, no_label)
    return build(table, task, no_label=no_label)


def names(examples: Dataset) -> set[str]:
    return {finding.name for finding in survey(examples).findings}


@every
def test_clean_rows_are_the_control(case: Case) -> None:
    examples = made(
        case, train=case.rows(60), validation=case.rows(30, 100), test=case.rows(30, 200)
    )
    assert list(examples.parts) == ["train", "validation", "test"]
    assert names(examples) <= {"uneven-classes"}


@every
def test_one_answer_in_all_training_rows_is_refused(case: Case) -> None:
    same = case.rows(60, answer=0)
    if case.free:  # the same words may be the right answer to all
        same = [{**row, **case.raw("the")} for row in same]
        assert "same-answer" in names(made(case, train=same))
    elif "choices" in same[0]:  # a model does not see at which place a choice stands
        assert "same-answer" not in names(made(case, train=same))
        same = [{**row, "choices": ["yes", "no"]} for row in same]
        assert "same-answer" in names(made(case, train=same))
    else:
        if {"tags", "entities"} & same[0].keys():  # of which each sentence may have the same two
            same = [{**row, **case.raw("O" if "tags" in row else None)} for row in same]
        error = refusal(DataError, lambda: made(case, train=same))
        assert "train.jsonl" in str(error.where)


@every
def test_a_test_part_with_hidden_answers_has_no_figures(case: Case) -> None:
    train = case.rows(60)
    for value in case.hidden:
        test = [{**row, **case.raw(value)} for row in case.rows(30, 200)]
        examples = made(case, train=train, test=test)
        assert list(examples.parts) == ["train"], value
        assert "part-not-used" in names(examples), value
    answer_columns = [name for name in case.raw(None)]
    test = [{k: v for k, v in row.items() if k not in answer_columns} for row in case.rows(9, 200)]
    examples = made(case, train=train, test=test)
    assert list(examples.parts) == ["train"] and "part-not-used" in names(examples)


@every
def test_a_test_part_with_one_answer_is_not_used_where_that_is_no_chance(case: Case) -> None:
    if case.free:
        return  # each row has an answer of its own
    train = case.rows(60)
    examples = made(case, train=train, test=case.rows(30, 200, answer=1))
    assert list(examples.parts) == ["train"] and "part-not-used" in names(examples)
    # The controls: few rows, or an answer that nearly all rows have.
    examples = made(case, train=train, test=case.rows(2, 200, answer=1))
    assert list(examples.parts) == ["train", "test"]
    common = [*case.rows(300, answer=1), *case.rows(6, 400)]
    examples = made(case, train=common, test=case.rows(9, 600, answer=1))
    assert list(examples.parts) == ["train", "test"]


@every
def test_one_text_with_two_answers_is_said(case: Case) -> None:
    rows = case.rows(60)
    again = [*rows, {**rows[0], **_answer(case, 0, 1)}]
    assert ("contradicting-labels" in names(made(case, train=again))) is not case.differs


def _answer(case: Case, number: int, answer: int) -> Row:
    """The answer alone, in the row of that number."""
    row = case.row(number, answer)
    return {name: row[name] for name in case.raw(None)}


@every
def test_an_answer_that_means_unknown_is_said(case: Case) -> None:
    rows = case.rows(60)
    odd = [{**row, **case.raw(case.unknown)} for row in case.rows(6, 100)]
    if case.unknown is None:  # no row can have it: it is refused with its line
        odd = [{**row, **case.raw(999)} for row in case.rows(1, 100)]
        error = refusal(DataError, lambda: made(case, train=[*rows, *odd]))
        assert "train.jsonl, line 61" in str(error.where)
        return
    examples = made(case, train=[*rows, *odd])
    assert "label-like-missing-value" in names(examples)
    known = made(case, str(case.unknown), train=[*rows, *odd])
    assert "label-like-missing-value" not in names(known) and known.unlabelled == 6
    assert len(known.parts["train"]) == 60


@every
def test_rows_in_two_parts_are_said(case: Case) -> None:
    train = case.rows(60)
    examples = made(case, train=train, test=[*case.rows(29, 200), train[4]])
    assert "rows-in-two-parts" in names(examples)
    assert "rows-in-two-parts" not in names(made(case, train=train, test=case.rows(30, 200)))


@every
def test_an_empty_text_is_refused(case: Case) -> None:
    for column in case.texts:
        rows = case.rows(60)
        blank = {list: [" "] * 3, str: " \u200b"}[type(rows[7][column])]
        rows[7] = {**rows[7], column: blank}
        error = refusal(DataError, lambda rows=rows: made(case, train=rows))
        assert "train.jsonl, line 8" in str(error.where)


@every
def test_a_class_of_one_row_is_said(case: Case) -> None:
    rows = case.rows(60)
    rare = {
        "label": "rare",
        "labels": ["a", "rare"],
        "tags": ["B-RARE", "O"],
        "entities": [[0, 3, "RARE"]],
    }
    column = next((name for name in rare if name in rows[0]), "")
    if case.has_classes and column:
        assert "rare-classes" not in names(made(case, train=rows))
        examples = made(case, train=[*rows, {**case.row(100, 0), column: rare[column]}])
        assert "rare-classes" in names(examples)


def test_words_of_minus_100_are_of_no_class() -> None:
    rows = [
        {"tokens": ["[CLS]", "Anna", "##s", f"x{n}"], "tags": [-100, 1, -100, n % 2]}
        for n in range(40)
    ]
    examples = made(CASES["tagging"], train=rows)
    assert examples.labels is not None and examples.labels.names == ("0", "1")
    assert examples.parts["train"][0].tags == (-1, 1, -1, 0)
    assert "words-without-tag" in names(examples)


# ------------------------------------------------------------------------------ two spellings
def labelled(labels: list[Any]) -> list[Row]:
    return [{**text(n), "label": labels[n % len(labels)]} for n in range(60)]


@pytest.mark.parametrize(
    ("labels", "names_"),
    [
        ([True, 1, False, 0], ("0", "1")),
        (["true", "1", "false", "0"], ("0", "1")),
        (["yes", "y", "no", "n"], ("n", "y")),
        (["t", "true", "f"], ("f", "t")),
        (["01", "1", "x"], ("01", "x")),
        (["1,000", "1000", "x"], ("1,000", "x")),
        (["1.0", "1", "x"], ("1", "x")),
        (["Yes", "yes", "no"], ("no", "Yes")),
        (["sci-fi", "sci fi", "drama"], ("drama", "sci fi")),
        (["50%", "50 %", "x"], ("50 %", "x")),
        (["\uff11", "1", "x"], ("1", "x")),
        (["S\u00ed", "si", "x"], ("S\u00ed", "x")),
        (["\u00e1", "a\u0301", "x"], ("a\u0301", "x")),
        (["ab", "a\u200bb", "x"], ("ab", "x")),
        ([["a", "01"], ["a", "1"], ["b"]], ("01", "a", "b")),
    ],
)
def test_one_value_in_two_spellings_is_refused_or_joined(
    labels: list[Any], names_: tuple[str, ...]
) -> None:
    table = table_of(train=labelled(labels))
    error = refusal(DataError, lambda: build(table, infer(table)))
    assert "column 'label'" in str(error.where) and "fold_labels=true" in str(error.do)
    joined = build(table, infer(table), fold_labels=True)
    assert joined.labels is not None and joined.labels.names == names_
    assert "labels-joined" in names(joined)


@pytest.mark.parametrize(
    "labels",
    [
        ["01", "02", "03"],
        ["-1", "1", "0"],
        ["C-", "C", "C+"],
        ["1-2", "12", "3"],
        ["no", "ja", "si", "nb", "y"],
        [1, 1.0, "1", 2],
        list("abcdefjnsty"),
        ["S", "Si", "N", "No"],
    ],
)
def test_values_that_are_several_are_the_control(labels: list[Any]) -> None:
    table = table_of(train=labelled(labels))
    made_ = build(table, infer(table))
    assert made_.labels is not None and len(made_.labels) == len(
        {str(v)[:2] for v in labels} - {"1."}
    )


@pytest.mark.parametrize(
    "labels", [["sentiment -1", "sentiment 1"], ["v_-2", "v_2"], ["1.1", "1.10", *"uvwx"]]
)
def test_a_minus_sign_and_a_version_are_no_other_spelling(labels: list[str]) -> None:
    table = table_of(train=labelled(labels))
    made_ = build(table, infer(table))
    assert made_.labels is not None and sorted(made_.labels.names) == sorted(labels)


def test_classes_that_are_listed_are_several() -> None:
    rows = [(label, table_of(train=labelled(["a"])).first[0]) for label in ("Yes", "yes", "YES")]
    made_ = learn(rows[:2], "label", names={0: "Yes", 1: "yes"})
    assert made_.names == ("Yes", "yes") and not made_.folded
    refusal(DataError, lambda: learn(rows, "label", names={0: "Yes", 1: "yes"}))


BIO = ["B-PER", "I-PER", "I-PER", "O"]


@pytest.mark.parametrize(
    "other",
    [
        ["I-PER", "I-PER", "I-PER", "O"],  # IOB1
        ["B-PER", "I-PER", "L-PER", "O"],  # BILOU
        ["B-PER", "I-PER", "E-PER", "O"],  # IOBES
        ["B-PER", "M-PER", "E-PER", "O"],  # BMES
        ["B_PER", "I_PER", "I_PER", "O"],
        ["PER-B", "PER-I", "PER-I", "O"],
        ["PER", "PER", "PER", "O"],
        ["B-PER", "I-PER", "I-PER", "_"],
    ],
)
def test_two_schemes_of_tags_in_one_file_are_refused_or_made_one(other: list[str]) -> None:
    rows = [{"tokens": [f"w{n}", "x", "y", "z"], "tags": (BIO, other)[n % 2]} for n in range(20)]
    table = table_of(train=rows)
    error = refusal(DataError, lambda: build(table, infer(table)))
    assert "column 'tags'" in str(error.where) and "repair_tags=true" in str(error.do)
    repaired = build(table, infer(table), repair_tags=True)
    assert repaired.labels is not None and repaired.labels.names == ("O", "B-PER", "I-PER")
    assert {row.tags for row in repaired.parts["train"]} == {(1, 2, 2, 0)}
    assert "tags-changed" in names(repaired)


def test_one_scheme_of_tags_is_the_control() -> None:
    for tags in (BIO, ["B-PER", "I-PER", "L-PER", "O"], ["S-PER", "B-PER", "E-PER", "O"]):
        table = table_of(
            train=[{"tokens": [f"w{n}", "x", "y", "z"], "tags": tags} for n in range(20)]
        )
        assert not names(build(table, infer(table))) & {"tags-changed", "tags-without-scheme"}
