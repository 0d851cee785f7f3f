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

from labelled.tables import finding_names, refusal, sentence, table_of
from maskwright.base.errors import DataError
from maskwright.text.tables.infer import infer
from maskwright.text.tables.labels import learn
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.prepare import build
from maskwright.text.tables.reading_options import TableReadingOptions
from maskwright.text.tables.rows import Table

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Rows of one task.

    Attributes:
        row: of a number, by which texts differ, and an answer.
        answer: the column of the answers, or a value in the place of an answer.
        hidden: values in the place of answers that are hidden.
        unknown: an answer that means that nobody knows; None where a row with it is refused.
        free: whether answers are texts, of which several may be right.
        task: what `--task` says; None: inferred.
        differs: whether one text may have several answers.
        has_classes: whether there are classes, of which one may be rare.
    """

    row: Callable[[int, int], Row]
    answer: str | Callable[[Any], Row]
    hidden: tuple[Any, ...]
    unknown: Any
    free: bool = False
    task: str | None = None
    differs: bool = False
    has_classes: bool = False

    def raw(self, value: Any) -> Row:
        return {self.answer: value} if isinstance(self.answer, str) else self.answer(value)

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


def scored_pair(n: int, k: int) -> Row:
    return {**pair(n), "score": NUMBERS[k]}


def question(n: int, k: int) -> Row:
    answers = {"text": [ANSWERS[k]], "answer_start": [sentence(n).index(ANSWERS[k])]}
    return {"question": f"What is number {n}?", "context": sentence(n), "answers": answers}


def answers(value: Any) -> Row:
    texts = [] if value is None else [value]
    return {"answers": {"text": texts, "answer_start": [0] * len(texts)}}


def choice(n: int, k: int) -> Row:
    choices = [f"{n} a", f"{n} b", f"{n} c"]
    return {"question": f"What is number {n}?", "choices": choices, "label": k}


CASES = {
    "classification": Case(
        lambda n, k: {**text(n), "label": NAMES[k]}, "label", NO_NAMES, "999", has_classes=True
    ),
    "regression": Case(
        lambda n, k: {**text(n), "score": NUMBERS[k]},
        "score",
        NO_NUMBERS,
        999.0,
        task="regression",
    ),
    "multi-label": Case(
        lambda n, k: {**text(n), "labels": SETS[k]},
        lambda value: {"labels": [] if value is None else [value]},
        (None, "?", "-1", "unlabeled"),
        "999",
        has_classes=True,
    ),
    "flags": Case(
        lambda n, k: {**text(n), **FLAGS[k]},
        lambda value: dict.fromkeys(FLAGS[0], value),
        (-1, None, "", "?", 0),
        None,
        has_classes=True,
    ),
    "pair-classification": Case(
        lambda n, k: {**pair(n), "label": NAMES[k]}, "label", NO_NAMES, "unknown", has_classes=True
    ),
    "similarity": Case(scored_pair, "score", NO_NUMBERS, -1.0),
    "embedding": Case(scored_pair, "score", NO_NUMBERS, 999.0, task="embedding"),
    "tagging": Case(
        lambda n, k: {"tokens": [f"Anna{n}", f"Rome{n}"], "tags": TAGS[k]},
        lambda value: {"tags": [value, value]},
        ("O", "-100", -100, "?", "unlabeled"),
        "?",
        has_classes=True,
    ),
    "spans": Case(
        lambda n, k: {"text": f"the cat of {n} met the dog", "entities": MARKS[k]},
        lambda value: {"entities": [] if value is None else value},
        (None,),
        None,
        has_classes=True,
    ),
    "question-answering": Case(question, answers, (None, "", "?", "-1"), None, free=True),
    "multiple-choice": Case(choice, "label", (-1, None, "", 0, "?", 999, "A"), None),
    "matching": Case(
        lambda n, k: {"anchor": sentence(n), "positive": f"the answer {k} of {n}"},
        "positive",
        ("", None, "n/a", "unknown"),
        "n/a",
        free=True,
        differs=True,
    ),
    "sequence-to-sequence": Case(
        lambda n, k: {"source": sentence(n), "target": f"the answer {k} of {n}"},
        "target",
        ("", None, "n/a", "-", "TBD"),
        "n/a",
        free=True,
        task="sequence-to-sequence",
        differs=True,
    ),
}
every = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def made(case: Case, no_label: str | None = None, /, **parts: list[Row]) -> Dataset:
    table, read = table_of(**parts), TableReadingOptions(no_label=no_label)
    return build(table, infer(table, None, case.task, no_label), read=read)


def names(case: Case, no_label: str | None = None, /, **parts: list[Row]) -> set[str]:
    return finding_names(made(case, no_label, **parts))


@every
def test_clean_rows_are_the_control(case: Case) -> None:
    parts = {"train": case.rows(60), "validation": case.rows(30, 100), "test": case.rows(30, 200)}
    assert list(made(case, **parts).parts) == ["train", "validation", "test"]
    assert names(case, **parts) <= {"uneven-classes"}


@every
def test_one_answer_in_all_training_rows_is_refused(case: Case) -> None:
    same = case.rows(60, answer=0)
    if case.free:  # the same words may be the right answer to all
        same = [{**row, **case.raw("the")} for row in same]
        assert "same-answer" in names(case, train=same)
    elif "choices" in same[0]:  # a model does not see at which place a choice stands
        assert "same-answer" not in names(case, train=same)
        same = [{**row, "choices": ["yes", "no"]} for row in same]
        assert "same-answer" in names(case, train=same)
    else:
        if {"tags", "entities"} & same[0].keys():  # of which each sentence may have the same two
            same = [{**row, **case.raw("O" if "tags" in row else None)} for row in same]
        error = refusal(DataError, lambda: made(case, train=same))
        assert "train.jsonl" in str(error.where)


@every
def test_a_test_part_with_hidden_answers_has_no_figures(case: Case) -> None:
    train = case.rows(60)
    hidden = [[{**row, **case.raw(value)} for row in case.rows(30, 200)] for value in case.hidden]
    columns = case.raw(None)
    absent = [{k: v for k, v in row.items() if k not in columns} for row in case.rows(9, 200)]
    for test in (*hidden, absent):
        examples = made(case, train=train, test=test)
        assert list(examples.parts) == ["train"], test[0]
        assert "part-not-used" in finding_names(examples), test[0]


@every
def test_a_test_part_with_one_answer_is_not_used_where_that_is_no_chance(case: Case) -> None:
    if case.free:
        return  # each row has an answer of its own
    train = case.rows(60)
    examples = made(case, train=train, test=case.rows(30, 200, answer=1))
    assert list(examples.parts) == ["train"] and "part-not-used" in finding_names(examples)
    # The controls: few rows, or an answer that nearly all rows have.
    common = [*case.rows(300, answer=1), *case.rows(6, 400)]
    for some, count in ((train, 2), (common, 9)):
        examples = made(case, train=some, test=case.rows(count, 600, answer=1))
        assert list(examples.parts) == ["train", "test"]


@every
def test_one_text_with_two_answers_is_said(case: Case) -> None:
    rows, other = case.rows(60), case.row(0, 1)
    again = {**rows[0], **{name: other[name] for name in case.raw(None)}}
    assert ("contradicting-labels" in names(case, train=[*rows, again])) is not case.differs


@every
def test_an_answer_that_means_unknown_is_said(case: Case) -> None:
    rows = case.rows(60)
    if case.unknown is None:  # no row can have it: it is refused with its line
        rows.append({**case.row(100, 1), **case.raw(999)})
        error = refusal(DataError, lambda: made(case, train=rows))
        assert "train.jsonl, line 61" in str(error.where)
        return
    rows += [{**row, **case.raw(case.unknown)} for row in case.rows(6, 100)]
    assert "label-like-missing-value" in names(case, train=rows)
    known = made(case, str(case.unknown), train=rows)
    assert "label-like-missing-value" not in finding_names(known) and known.unlabelled == 6
    assert len(known.parts["train"]) == 60


@every
def test_rows_in_two_parts_are_said(case: Case) -> None:
    train, test = case.rows(60), case.rows(29, 200)
    assert "rows-in-two-parts" in names(case, train=train, test=[*test, train[4]])
    assert "rows-in-two-parts" not in names(case, train=train, test=test)


@every
def test_an_empty_text_is_refused(case: Case) -> None:
    rows = case.rows(60)
    for column in rows[7].keys() - (set() if case.differs else case.raw(None).keys()):
        blank = {list: [" "] * 3, str: " \u200b"}[type(rows[7][column])]
        bad = [*rows[:7], {**rows[7], column: blank}, *rows[8:]]
        error = refusal(DataError, lambda bad=bad: made(case, train=bad))
        assert "train.jsonl, line 8" in str(error.where)


@every
def test_a_class_of_one_row_is_said(case: Case) -> None:
    rows = case.rows(60)
    rare = {"label": "rare", "labels": ["a", "rare"]}
    rare |= {"tags": ["B-RARE", "O"], "entities": [[0, 3, "RARE"]]}
    column = next((name for name in rare if name in rows[0]), "")
    if case.has_classes and column:
        assert "rare-classes" not in names(case, train=rows)
        rows.append({**case.row(100, 0), column: rare[column]})
        assert "rare-classes" in names(case, train=rows)


@pytest.mark.parametrize(
    "roles", [("anchor", "positive"), ("source", "target"), ("anchor", "positive", "negative")]
)
def test_one_text_in_two_roles_of_most_rows_is_said(roles: tuple[str, ...]) -> None:
    def built(*rows: dict[str, str]) -> Dataset:
        table = table_of(*rows)
        return build(table, infer(table))

    rows = [{role: f"{sentence(n)} {role}" for role in roles} for n in range(40)]
    assert "equal-texts" not in finding_names(built(*rows)), "the control"
    for row in rows[:21]:
        row[roles[-1]] = row[roles[-2]]
    assert "equal-texts" in finding_names(built(*rows))


def test_words_of_minus_100_are_of_no_class() -> None:
    words, tags = ["[CLS]", "Anna", "##s"], [-100, 1, -100]
    rows = [{"tokens": [*words, f"x{n}"], "tags": [*tags, n % 2]} for n in range(40)]
    examples = made(CASES["tagging"], train=rows)
    assert examples.labels.names == ("0", "1")
    assert examples.parts["train"][0].tags == (-1, 1, -1, 0)
    assert "words-without-tag" in finding_names(examples)


# ------------------------------------------------------------------------------ two spellings
def of_labels(labels: list[Any]) -> Table:
    return table_of(train=[{**text(n), "label": labels[n % len(labels)]} for n in range(60)])


@pytest.mark.parametrize(
    ("labels", "joined"),
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
    labels: list[Any], joined: tuple[str, ...]
) -> None:
    table = of_labels(labels)
    error = refusal(DataError, lambda: build(table, infer(table)))
    assert "column 'label'" in str(error.where) and "fold_labels=true" in str(error.do)
    examples = build(table, infer(table), read=TableReadingOptions(fold_labels=True))
    assert examples.labels.names == joined and "labels-joined" in finding_names(examples)


@pytest.mark.parametrize(
    "labels",
    [
        ["01", "02", "03"],
        ["-1", "1", "0"],
        ["C-", "C", "C+"],
        ["1-2", "12", "3"],
        ["no", "ja", "si", "nb", "y"],
        list("abcdefjnsty"),
        ["S", "Si", "N", "No"],
        ["sentiment -1", "sentiment 1"],
        ["v_-2", "v_2"],
        ["1.1", "1.10", *"uvwx"],
    ],
)
def test_values_that_are_several_are_the_control(labels: list[Any]) -> None:
    table = of_labels(labels)
    assert sorted(build(table, infer(table)).labels.names) == sorted(labels)


def test_numbers_are_one_value_however_they_are_stored() -> None:
    table = of_labels([1, 1.0, "1", 2])
    assert build(table, infer(table)).labels.names == ("1", "2")
    assert infer(table).columns.column("label").distinct == 2


def test_classes_that_are_listed_are_several() -> None:
    rows = [(label, of_labels(["a"]).first[0]) for label in ("Yes", "yes", "YES")]
    vocabulary = learn(rows[:2], "label", names={0: "Yes", 1: "yes"})
    assert vocabulary.names == ("Yes", "yes") and not vocabulary.folded
    refusal(DataError, lambda: learn(rows, "label", names={0: "Yes", 1: "yes"}))


BIO = ["B-PER", "I-PER", "I-PER", "O"]


def of_tags(*tags: list[str]) -> Table:
    rows = [{"tokens": [f"w{n}", *"xyz"], "tags": tags[n % len(tags)]} for n in range(20)]
    return table_of(train=rows)


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
    table = of_tags(BIO, other)
    error = refusal(DataError, lambda: build(table, infer(table)))
    assert "column 'tags'" in str(error.where) and "repair_tags=true" in str(error.do)
    repaired = build(table, infer(table), read=TableReadingOptions(repair_tags=True))
    assert repaired.labels.names == ("O", "B-PER", "I-PER")
    assert {row.tags for row in repaired.parts["train"]} == {(1, 2, 2, 0)}
    assert "tags-changed" in finding_names(repaired)


def test_one_scheme_of_tags_is_the_control() -> None:
    for tags in (BIO, ["B-PER", "I-PER", "L-PER", "O"], ["S-PER", "B-PER", "E-PER", "O"]):
        table = of_tags(tags)
        assert not finding_names(build(table, infer(table))) & {
            "tags-changed",
            "tags-without-scheme",
        }
