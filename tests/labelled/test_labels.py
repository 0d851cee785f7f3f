"""Fault catalogue E, labels and rows: file, line, value, what is allowed, and the remedy."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelled.tables import (
    finding_names,
    findings,
    loaded,
    refusal,
    sentence,
    sizes,
    table_of,
    understood,
    write,
    write_rows,
)
from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.cell_values import group_name, is_empty
from maskwright.text.tables.files import load
from maskwright.text.tables.infer import infer
from maskwright.text.tables.prepare import build, prepare
from maskwright.text.tables.reading_options import TableReadingOptions, how_read
from maskwright.text.tables.rows import Table

SKIP = ReadingOptions(on_bad="skip", max_bad_fraction=0.5)


def texts(*labels: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"text": sentence(n), "label": label, **more} for n, label in enumerate(labels)]


# ------------------------------------------------------------------------------ order and names
@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ((10, 9, 2, 2), ("2", "9", "10")),
        ((1, -1, 0, 0), ("-1", "0", "1")),
        (("b", "a", "C", "b"), ("a", "b", "C")),
        ((True, False, True), ("false", "true")),
        (("5", "10", "5"), ("5", "10")),
        ((2.0, 1.0, 2.0), ("1", "2")),
    ],
)
def test_the_order_of_classes_is_that_of_their_names(labels: Any, names: tuple[str, ...]) -> None:
    for seed in range(5):
        shuffled = random.Random(seed).sample(labels, len(labels))
        assert understood(table_of(*texts(*shuffled)))[1].labels.names == names


# ------------------------------------------------------------------------------ F71 to F73
def folder(tmp_path: Path, train: list[dict[str, Any]], dev: list[dict[str, Any]]) -> Path:
    write_rows(tmp_path / "train.jsonl", train)
    write_rows(tmp_path / "dev.jsonl", dev)
    return tmp_path


def test_F71_an_unknown_label_in_validation(tmp_path: Path) -> None:
    path = folder(tmp_path, texts("positive", "negative"), texts("positive", "postive"))
    error = refusal(DataError, lambda: loaded(path))
    assert error.where == f"{path}/dev.jsonl, line 2, column 'label'" and error.found == "'postive'"
    assert error.wanted == "'negative', 'positive'" and "'positive'" in str(error.do)


@pytest.mark.parametrize("value", [3, -1, "3", 3.0])
def test_F73_a_label_out_of_range(tmp_path: Path, value: Any) -> None:
    path = folder(tmp_path, texts(0, 1, 2), texts(0, value))
    error = refusal(DataError, lambda: loaded(path))
    assert error.where == f"{path}/dev.jsonl, line 2, column 'label'"
    assert error.found == str(int(value))


@pytest.mark.parametrize("odd", [" pos", "Pos", "pos ", "POS"])
def test_F73_labels_that_differ_by_case_or_blanks(odd: str) -> None:
    table = table_of(*texts("pos", "neg", "pos", odd, "neg"))
    error = refusal(DataError, lambda: understood(table))
    assert error.where == "all.jsonl, line 4, column 'label'"
    assert error.found == f"'pos' (2 rows), {odd!r} (1 row)"
    made = understood(table, fold_labels=True)[1]
    assert made.labels.names == ("neg", "pos")
    assert [e.label for e in made.parts["all"]] == [1, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (None, "the label is empty"),
        ("  ", "the label is empty"),
        (0.5, "no label"),
        ("often", "the label is no whole number"),
        ([1], "no label"),
    ],
)
def test_F73_what_is_no_label(value: Any, what: str) -> None:
    labels = [n % 2 for n in range(40)]
    # One row of 81 must not make the column one of fractions or of lists: the user said classes.
    task = infer(table_of(*texts(*labels)))
    error = refusal(DataError, lambda: build(table_of(*texts(*labels, value, *labels)), task))
    assert error.what == what and error.where == "all.jsonl, line 41, column 'label'"


@pytest.mark.parametrize("value", [-1, "-1", "?", None, ""])
def test_F74_a_part_without_labels(value: Any) -> None:
    parts = {"train": texts(0, 1, 0, 1), "validation": texts(value, value, value)}
    for options in ({}, {"no_label": str(value)}):
        error = refusal(DataError, lambda options=options: understood(table_of(**parts), **options))
        assert error.where == "validation.jsonl, column 'label'"


@pytest.mark.parametrize("value", [None, "", []])
def test_a_part_without_several_labels(value: Any) -> None:
    """Blank cells in all rows are no answers; a list of no labels is one."""
    several = texts("a|b", "a", "b", "b|a")
    task, examples = understood(table_of(train=several, test=texts(value, value)))
    assert task.name == "multi-label"
    assert list(examples.parts) == (["train", "test"] if value == [] else ["train"])


@pytest.mark.parametrize(
    ("names", "found"),
    [("abc", "0 is 'c' here and 'a' in all.jsonl, line 1"), ("aaa", "both 'a'")],
)
def test_names_that_disagree(names: str, found: str) -> None:
    rows = [{**row, "label_name": name} for row, name in zip(texts(0, 1, 0), names, strict=True)]
    assert found in str(refusal(DataError, lambda: understood(table_of(*rows))).found)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "high", None, "", "1,5"])
def test_F78_targets_of_regression(value: Any) -> None:
    rows = [{"text": sentence(n), "score": f"{n / 7:.2f}"} for n in range(40)]
    rows[11]["score"] = value
    error = refusal(DataError, lambda: understood(table_of(*rows)))
    assert error.where == "all.jsonl, line 12, column 'score'"
    assert error.wanted == "a number, such as 3.5"


def test_F59_an_empty_text_is_refused_or_skipped() -> None:
    rows = texts(0, 1, 0, 1)
    rows[2]["text"] = " \n"
    where = "all.jsonl, line 3, column 'text'"
    assert refusal(DataError, lambda: understood(table_of(*rows))).where == where
    made = understood(table_of(*rows), reading=SKIP)[1]
    assert sizes(made) == {"all": 3} and made.dropped == [(where, "the text is empty")]
    few = ReadingOptions(on_bad="skip")
    error = refusal(DataError, lambda: understood(table_of(*rows), reading=few))
    assert "1 of 4 rows" in str(error.found) and "max_bad_fraction=0.25)" in str(error.do)
    assert understood(table_of(*rows), reading=replace(few, max_bad_fraction=0.25))


def test_a_part_of_which_no_row_is_left_says_why(tmp_path: Path) -> None:
    write_rows(tmp_path / "train.jsonl", texts(*[n % 2 for n in range(8)]))
    write_rows(tmp_path / "test.jsonl", [{"text": " ", "label": 1}] * 3)
    every = ReadingOptions(on_bad="skip", max_bad_fraction=1.0)
    refusal(DataError, lambda: loaded(tmp_path, reading=every))


def test_rows_left_out_are_listed_beside_those_of_the_file(tmp_path: Path) -> None:
    rows = "".join(json.dumps(row) + "\n" for row in texts(0, 1, None, 1))
    path, rejects = write(tmp_path / "a.jsonl", rows + "nonsense\n" + rows), tmp_path / "rejects"
    table = load(path, reading=SKIP, rejects=rejects)
    assert sizes(build(table, infer(table), read=TableReadingOptions(SKIP))) == {"all": 6}
    listed = [json.loads(line) for line in rejects.read_text().splitlines()]
    empty = "the label is empty"
    assert [(entry["line"], entry["reason"]) for entry in listed] == [
        (5, "not JSON"),
        (3, empty),
        (8, empty),
    ]


def test_labels_that_are_none_can_be_skipped(tmp_path: Path) -> None:
    made = understood(table_of(*texts(0, 1, 0, 1, "often", 1)), reading=SKIP)[1]
    assert made.labels.names == ("0", "1", "often")
    # Among many numbers a word is a slip, and no class of its own.
    labels = [n % 2 for n in range(40)]
    made = understood(table_of(*texts(*labels, "often")), reading=SKIP)[1]
    assert made.labels.names == ("0", "1")
    assert [reason for _, reason in made.dropped] == ["the label is not in the label set"]
    path = write_rows(tmp_path / "train.jsonl", texts(*labels, 7))
    write(tmp_path / "labels.json", '["bad", "good"]')
    where = f"{path}, line 41, column 'label'"
    assert loaded(tmp_path, reading=SKIP).dropped == [(where, "the label is out of range")]


# ------------------------------------------------------------------------------ F77 taggings
def tagged(*rows: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"tokens": tokens.split(), "tags": tags.split()} for tokens, tags in rows]


@pytest.mark.parametrize(
    ("row", "what", "token"),
    [
        (("one two", "O"), "tokens and tags differ in number", ""),
        (("one two", "O I-per"), "a span begins with I-", ", token 2"),
        (("one two", "B-per I-org"), "a span begins with I-", ", token 2"),
    ],
)
def test_F77_bad_taggings(row: tuple[str, str], what: str, token: str) -> None:
    table = table_of(*tagged(("Ada L. x", "B-per I-per B-org"), row, ("a b", "B-org I-org")))
    error = refusal(DataError, lambda: understood(table))
    assert error.what == what and error.where == f"all.jsonl, line 2, column 'tags'{token}"


def test_F77_spans_are_repaired_where_that_is_asked_for(tmp_path: Path) -> None:
    """CoNLL-2003 comes in IOB1: B- stands only where two spans of a kind touch."""
    text = "".join(f"Ada{n} I-PER\nL. I-PER\nsaw O\nRome I-LOC\nOslo B-LOC\n\n" for n in range(40))
    path = write(tmp_path / "eng.conll", text)
    assert "repair_tags=true" in str(refusal(DataError, lambda: prepare(path)).do)
    made = prepare(path, read=how_read("repair_tags=true"))
    (row,) = {e.tags for e in made.parts["train"]}
    assert [made.labels.names[n] for n in row] == ["B-PER", "I-PER", "O", "B-LOC", "B-LOC"]
    assert made.repaired == 2 * 40
    write(path, text.replace("I-", "B-").replace("L. B", "L. I"))
    assert prepare(path, read=how_read("repair_tags=true")).repaired == 0, "nothing to repair"
    plain = write_rows(tmp_path / "a.jsonl", texts(0, 1, 0, 1))
    with pytest.raises(UsageError):
        prepare(plain, read=how_read("repair_tags=true"))


def test_rows_without_a_label_are_left_out_where_that_is_said(tmp_path: Path) -> None:
    """SNLI writes -1 where its annotators did not agree."""
    rows = [{"premise": f"a {n}", "hypothesis": f"b {n}", "label": n % 4 - 1} for n in range(80)]
    path = write_rows(tmp_path / "snli.jsonl", rows)
    plain = prepare(path)
    assert "-1" in plain.labels.names
    (advice,) = (line for line in findings(plain) if "-1" in line)
    assert "--read no_label=-1" in advice
    assert "rows-without-label" in finding_names(prepare(path, read=how_read("no_label=-1")))
    # The control: where numbers below zero are usual, -1 is one of them.
    usual = [{**row, "label": n % 4 - 2} for n, row in enumerate(rows)]
    assert not any("no_label" in line for line in findings(understood(table_of(*usual))[1]))


# ------------------------------------------------------------------------------ F75 answers
def asked(context: str, answer: str, start: Any) -> Table:
    answers = {"text": [answer], "answer_start": [start]}
    return table_of({"question": "Who?", "context": context, "answers": answers})


@given(st.text(min_size=1), st.text(min_size=1).filter(str.strip), st.text())
def test_F75_an_answer_stays_where_it_is(before: str, answer: str, after: str) -> None:
    table = asked(before + answer + after, answer, len(before))
    (example,) = understood(table)[1].parts["all"]
    ((text, start),) = example.answers
    assert example.context[start : start + len(text)] == text == answer


def test_F75_an_answer_that_is_elsewhere() -> None:
    # Two code units of UTF-16 for one character: the commonest way to be wrong by one.
    table = asked("\U0001f600 Ada came.", "Ada", 3)
    error = refusal(DataError, lambda: understood(table))
    assert error.where == "all.jsonl, line 1, column 'answers'"
    assert error.found == "'Ada', at character 3: 'da '"
    assert "at 2" in str(error.do)
    error = refusal(DataError, lambda: understood(asked("a b a b", "b", 0)))
    assert "at 2, 6" in str(error.do)
    refusal(DataError, lambda: understood(asked("a b", "Zoe", 0)))


# ------------------------------------------------------------------------------ choices
def choice(label: Any, choices: Sequence[str] = ("red", "blue", "green")) -> str:
    """The words that a label means."""
    row = {"question": "Which?", "choices": list(choices), "label": label}
    (example,) = understood(table_of(row))[1].parts["all"]
    return example.choices[example.label]


@pytest.mark.parametrize("label", [1, "1", "B", "b", "blue"])
def test_the_right_choice_by_number_letter_or_words(label: Any) -> None:
    assert choice(label) == "blue"


def test_a_label_that_is_a_choice_and_the_place_of_another() -> None:
    assert "letters" in str(refusal(DataError, lambda: choice("2", "123")).do)
    assert choice("B", "123") == choice(1, "123") == "2"
    assert choice("5", "45") == "5"


def test_commas_between_thousands_are_not_turned_into_points() -> None:
    rows = [{"text": f"text {n}", "label": f"{n},{n}66"} for n in range(1, 9)]
    refusal(DataError, lambda: understood(table_of(*rows)))
    several = [{"text": f"text {n}", "label": ("1,2,3", "2,3", "1")[n % 3]} for n in range(9)]
    assert understood(table_of(*several))[0].name == "multi-label"


def test_a_place_without_an_answer_may_be_an_empty_cell() -> None:
    row = {"question": "Where?", "context": "the cat sat", "answers": "", "answer_start": ""}
    other = {**row, "answers": "cat", "answer_start": "4"}
    one, two = understood(table_of(row, other))[1].parts["all"]
    assert one.answers == () and two.answers == (("cat", 4),)


def test_more_than_ten_choices_stand_in_their_order() -> None:
    row = {"question": "Which?", "label": "10", **{f"choice{n}": f"word {n}" for n in range(12)}}
    (example,) = understood(table_of(row))[1].parts["all"]
    assert example.choices[example.label] == "word 10"


@pytest.mark.parametrize("label", [3, -1, "D", "purple", None])
def test_a_label_that_is_no_choice(label: Any) -> None:
    error = refusal(DataError, lambda: choice(label))
    assert error.where == "all.jsonl, line 1, column 'label'"


def test_choices_that_are_counted_from_1_are_refused() -> None:
    row = {"question": "Which?", "choices": ["a b", "c d", "e f"]}
    from_1 = [{**row, "label": 1 + n % 3} for n in range(9)]
    error = refusal(DataError, lambda: understood(table_of(*from_1)))
    assert "counted from 1" in error.what and error.where == "all.jsonl, line 3, column 'label'"
    below_3 = [{**row, "label": 1 + n % 2} for n in range(9)]  # the control
    assert understood(table_of(*below_3))[1].parts["all"][0].label == 1


def test_choices_by_what_each_row_calls_them() -> None:
    """As ARC has them: letters in some rows, numbers in others."""
    rows = [
        {"question": "Which?", "choices": {"text": [*"abc"], "label": [*keys]}, "answerKey": key}
        for keys, key in (("ABC", "A"), ("123", "2"), ("123", "3"))
    ]
    assert [e.label for e in understood(table_of(*rows))[1].parts["all"]] == [0, 1, 2]


def test_a_question_with_choices_may_be_about_a_text() -> None:
    """As RACE has it, which is no answer within a text."""
    row = {"article": "The cat sat. The dog ran.", "question": "Who ran?", "answer": "B"}
    row |= {"options": ["the cat", "the dog"]}
    task, made = understood(table_of(*[row] * 3))
    assert task.name == "multiple-choice" and task.columns["context"] == "article"
    assert made.parts["all"][0].question == "The cat sat. The dog ran. Who ran?"
    assert made.parts["all"][0].label == 1


@pytest.mark.parametrize("text", ["", " \t\n", "\u00a0", "\u200b", "\ufeff \u200d", "\u00ad"])
def test_what_nobody_sees_is_no_text(text: str) -> None:
    assert is_empty(text) and not is_empty(text + ".") and not is_empty("a" + text)
    assert [group_name(value) for value in (text, None, math.nan, 1.0)] == ["", "", "", "1.0"]


def test_lists_of_whole_numbers_have_the_names_beside_them() -> None:
    rows = [{"tokens": ["Kalomi", f"sat{n}"], "ner_tags": [n % 2, 0]} for n in range(30)]
    table = replace(table_of(*rows), names={"ner_tags": {0: "O", 1: "B-PER", 2: "B-LOC"}})
    task, examples = understood(table)
    assert task.columns.column("tags").kind == "wholes"
    assert examples.labels.names == ("O", "B-PER", "B-LOC")
    assert examples.parts["all"][1].tags == (1, 0)


def test_several_labels_are_in_the_order_of_their_numbers() -> None:
    rows = [{"text": f"text {n} of words", "labels": [n % 12, 11]} for n in range(48)]
    assert understood(table_of(*rows))[1].labels.names == tuple(map(str, range(12)))


# ------------------------------------------------------------------------------ places as given
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("before", ["\x1b\x07\x7f ", "a\r\nb\r\n", "\U0001f600 ", "e\u0301 "])
def test_answers_stand_at_their_places_in_the_text_as_given(
    before: str, nested: bool, tmp_path: Path
) -> None:
    # A part of them counts what is left of the text when it is read, and no other place fits.
    left = before.replace("\r\n", "\n").translate(dict.fromkeys((0x1B, 0x07, 0x7F)))
    rows = []
    for n in range(12):
        question = {"id": str(n), "question": f"who is in {n}?"}
        context = f"{before}report {n} of Ann Lee"
        start = context.index("Ann") - (len(before) - len(left) if n == 3 else 0)
        if nested:
            question["answers"] = [{"text": "Ann Lee", "answer_start": start}]
            rows.append({"context": context, "qas": [question]})
        else:
            answers = {"text": ["Ann Lee"], "answer_start": [start]}
            rows.append({**question, "context": context, "answers": answers})
    articles = {"data": [{"title": "t", "paragraphs": rows}]}
    path = write(tmp_path / "a.json", json.dumps(articles if nested else rows))
    for row in prepare(path).parts["train"]:
        ((text, start),) = row.answers
        assert text == row.context[start : start + 7] == "Ann Lee" and row.context[:1] == before[:1]
