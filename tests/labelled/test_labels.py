"""Fault catalogue E, labels and rows: file, line, value, what is allowed, and the remedy."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelled.tables import loaded, refusal, sentence, table_of, understood, write, write_rows
from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.cell_values import group_name, is_empty
from maskwright.text.tables.files import load
from maskwright.text.tables.infer import infer
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.prepare import build, prepare
from maskwright.text.tables.rows import ChoiceExample, QuestionExample
from maskwright.text.tables.survey import survey

SKIP = ReadingOptions(on_bad="skip", max_bad_fraction=0.5)


def texts(*labels: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"text": sentence(n), "label": label, **more} for n, label in enumerate(labels)]


def names_of(*labels: Any) -> tuple[str, ...]:
    made = understood(table_of(*texts(*labels)))[1]
    assert made.labels is not None
    return made.labels.names


# ------------------------------------------------------------------------------ order and names
@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ((1, 0, 1, 0), ("0", "1")),
        ((10, 9, 2, 2), ("2", "9", "10")),
        ((1, -1, 0, 0), ("-1", "0", "1")),
        (("b", "a", "C", "b"), ("a", "b", "C")),
        ((True, False, True), ("false", "true")),
        (("5", "10", "5"), ("5", "10")),
        ((2.0, 1.0, 2.0), ("1", "2")),
    ],
)
def test_the_order_of_classes_is_that_of_their_names(
    labels: tuple[Any, ...], names: tuple[str, ...]
) -> None:
    assert names_of(*labels) == names
    shuffled = list(labels)
    for seed in range(5):
        random.Random(seed).shuffle(shuffled)
        assert names_of(*shuffled) == names


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
    assert "fold_labels" in str(error.do)
    made = understood(table, fold_labels=True)[1]
    assert made.labels is not None and made.labels.names == ("neg", "pos")
    assert [e.label for e in made.parts["all"]] == [1, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (None, "the label is empty"),
        ("", "the label is empty"),
        ("  ", "the label is empty"),
        (0.5, "no label"),
        ("often", "the label is no whole number"),
        ([1], "no label"),
    ],
)
def test_F73_what_is_no_label(value: Any, what: str) -> None:
    labels = [n % 2 for n in range(40)]
    table = table_of(*texts(*labels, value, *labels))
    # One row of 81 must not make the column one of fractions or of lists: the user said classes.
    task = infer(table_of(*texts(*labels)))
    error = refusal(DataError, lambda: build(table, task))
    assert error.what == what and error.where == "all.jsonl, line 41, column 'label'"


@pytest.mark.parametrize("value", [-1, "-1", "?", None, ""])
def test_F74_a_part_without_labels(value: Any) -> None:
    parts = {"train": texts(0, 1, 0, 1), "validation": texts(value, value, value)}
    error = refusal(DataError, lambda: understood(table_of(**parts)))
    assert error.where == "validation.jsonl, column 'label'"


@pytest.mark.parametrize("value", [None, "", []])
def test_a_part_without_several_labels(value: Any) -> None:
    """Blank cells in all rows are no answers; a list of no labels is one."""
    several = texts("a|b", "a", "b", "b|a")
    task, examples = understood(table_of(train=several, test=texts(value, value)))
    assert task.name == "multi-label"
    assert list(examples.parts) == (["train", "test"] if value == [] else ["train"])


@pytest.mark.parametrize("value", [None, []])
def test_a_part_without_tags(value: Any) -> None:
    tagged = [{"tokens": ["Ann", "ran"], "tags": tags} for tags in (["B-P", "O"], ["O", "O"]) * 4]
    bare = [{**row, "tags": value} for row in tagged]
    made = understood(table_of(train=tagged, test=bare))[1]
    assert list(made.parts) == ["train"]
    refusal(DataError, lambda: understood(table_of(train=tagged, validation=bare)))


def test_names_that_disagree() -> None:
    rows = [{**r, "label_name": n} for r, n in zip(texts(0, 1, 0), ["a", "b", "c"], strict=True)]
    error = refusal(DataError, lambda: understood(table_of(*rows)))
    assert error.found == "0 is 'c' here and 'a' in all.jsonl, line 1"
    rows = [{**r, "label_name": n} for r, n in zip(texts(0, 1, 0), ["a", "a", "a"], strict=True)]
    assert "both 'a'" in str(refusal(DataError, lambda: understood(table_of(*rows))).found)


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
    error = refusal(DataError, lambda: understood(table_of(*rows)))
    assert error.where == "all.jsonl, line 3, column 'text'"
    made = understood(table_of(*rows), reading=SKIP)[1]
    assert len(made.parts["all"]) == 3
    assert made.dropped == [("all.jsonl, line 3, column 'text'", "the text is empty")]
    error = refusal(
        DataError, lambda: understood(table_of(*rows), reading=ReadingOptions(on_bad="skip"))
    )
    assert "1 of 4 rows" in str(error.found)
    enough = ReadingOptions(on_bad="skip", max_bad_fraction=0.25)
    assert "max_bad_fraction=0.25)" in str(error.do) and understood(table_of(*rows), reading=enough)


def test_a_part_of_which_no_row_is_left_says_why(tmp_path: Path) -> None:
    write_rows(tmp_path / "train.jsonl", texts(*[n % 2 for n in range(8)]))
    write_rows(tmp_path / "test.jsonl", [{"text": " ", "label": 1}] * 3)
    every = ReadingOptions(on_bad="skip", max_bad_fraction=1.0)
    refusal(DataError, lambda: loaded(tmp_path, reading=every))


def test_rows_left_out_are_listed_beside_those_of_the_file(tmp_path: Path) -> None:
    rows = "".join(json.dumps(row) + "\n" for row in texts(0, 1, None, 1))
    path = write(tmp_path / "a.jsonl", rows + "nonsense\n" + rows)
    table = load(path, reading=SKIP, rejects=tmp_path / "rejects.jsonl")
    made = build(table, infer(table), reading=SKIP)
    assert len(made.parts["all"]) == 6
    listed = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().splitlines()]
    assert [(entry["line"], entry["reason"]) for entry in listed] == [
        (5, "not JSON"),
        (3, "the label is empty"),
        (8, "the label is empty"),
    ]


def test_labels_that_are_none_can_be_skipped(tmp_path: Path) -> None:
    made = understood(table_of(*texts(0, 1, 0, 1, "often", 1)), reading=SKIP)[1]
    assert made.labels is not None and made.labels.names == ("0", "1", "often")
    # Among many numbers a word is a slip, and no class of its own.
    labels = [n % 2 for n in range(40)]
    made = understood(table_of(*texts(*labels, "often")), reading=SKIP)[1]
    assert made.labels is not None and made.labels.names == ("0", "1")
    assert [reason for _, reason in made.dropped] == ["the label is not in the label set"]
    write_rows(tmp_path / "train.jsonl", texts(*labels, 7))
    write(tmp_path / "labels.json", '["bad", "good"]')
    made = loaded(tmp_path, reading=SKIP)
    assert made.dropped == [
        (f"{tmp_path}/train.jsonl, line 41, column 'label'", "the label is out of range")
    ]


# ------------------------------------------------------------------------------ several labels
# ------------------------------------------------------------------------------ F77 taggings
def tagged(*rows: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"tokens": tokens.split(), "tags": tags.split()} for tokens, tags in rows]


@pytest.mark.parametrize(
    ("row", "what", "where"),
    [
        (("one two", "O"), "tokens and tags differ in number", "line 2, column 'tags'"),
        (("one two", "O I-per"), "a span begins with I-", "line 2, column 'tags', token 2"),
        (("one two", "B-per I-org"), "a span begins with I-", "line 2, column 'tags', token 2"),
    ],
)
def test_F77_bad_taggings(row: tuple[str, str], what: str, where: str) -> None:
    table = table_of(*tagged(("Ada L. x", "B-per I-per B-org"), row, ("a b", "B-org I-org")))
    error = refusal(DataError, lambda: understood(table))
    assert error.what == what and error.where == f"all.jsonl, {where}"


def test_F77_spans_are_repaired_where_that_is_asked_for(tmp_path: Path) -> None:
    """CoNLL-2003 comes in IOB1: B- stands only where two spans of a kind touch."""
    text = "".join(f"Ada{n} I-PER\nL. I-PER\nsaw O\nRome I-LOC\nOslo B-LOC\n\n" for n in range(40))
    path = tmp_path / "eng.conll"
    path.write_text(text, encoding="utf-8")
    error = refusal(DataError, lambda: prepare(path))
    assert "repair_tags=true" in str(error.do)
    made = prepare(path, repair_tags=True)
    assert made.labels is not None and made.repaired == 2 * 40
    (row,) = {e.tags for e in made.parts["train"]}
    assert [made.labels.names[n] for n in row] == ["B-PER", "I-PER", "O", "B-LOC", "B-LOC"]
    path.write_text(text.replace("I-", "B-").replace("L. B", "L. I"))
    assert prepare(path, repair_tags=True).repaired == 0, "the control: nothing to repair"
    table = tmp_path / "a.csv"
    table.write_text(
        "text,label\n" + "".join(f"a {n},{n % 2}\n" for n in range(40)), encoding="utf-8"
    )
    with pytest.raises(UsageError):
        prepare(table, repair_tags=True)


def test_rows_without_a_label_are_left_out_where_that_is_said(tmp_path: Path) -> None:
    """SNLI writes -1 where its annotators did not agree."""
    rows = [
        {"premise": f"a {n}", "hypothesis": f"b {n}", "label": (0, 1, 2, -1)[n % 4]}
        for n in range(80)
    ]
    path = write_rows(tmp_path / "snli.jsonl", rows)
    plain = prepare(path)
    assert plain.labels is not None and "-1" in plain.labels.names
    (said,) = (line for line in list(map(str, survey(plain).findings)) if "-1" in line)
    assert "--read no_label=-1" in said
    made = prepare(path, no_label="-1")
    assert made.labels is not None and set(made.labels.names) == {"0", "1", "2"}
    assert made.unlabelled == 20 and sum(map(len, made.parts.values())) == 60
    assert "rows-without-label" in {finding.name for finding in survey(made).findings}
    folder = tmp_path / "parts"
    folder.mkdir()
    write_rows(folder / "train.jsonl", rows)
    write_rows(folder / "test.jsonl", [{**row, "label": -1} for row in rows[:8]])
    drawn = prepare(folder, no_label="-1")
    assert any("test: not used" in line for line in list(map(str, survey(drawn).findings)))
    assert set(drawn.parts) == {"train", "validation"}
    write_rows(folder / "dev.jsonl", [{**row, "label": -1} for row in rows[:8]])
    error = refusal(DataError, lambda: prepare(folder, no_label="-1"))
    assert error.where == f"{folder / 'dev.jsonl'}, column 'label'"
    numbers = [{"text": f"a {n}", "score": n / 7 if n % 4 else -1} for n in range(80)]
    scored = prepare(
        write_rows(tmp_path / "scores.jsonl", numbers), task="regression", no_label="-1"
    )
    assert scored.unlabelled == 20
    # The control: where numbers below zero are usual, -1 is one of them.
    spread = [{**row, "label": row["label"] - 1} for row in rows]
    usual = prepare(write_rows(tmp_path / "spread.jsonl", spread))
    assert not any("no_label" in line for line in list(map(str, survey(usual).findings)))
    words = [("one two", "O B-x"), ("three four five", "B-x ? O"), ("six", "?")]
    made = understood(table_of(*tagged(*words * 9)), no_label="?")[1]
    assert made.labels is not None and made.labels.names == ("O", "B-x") and made.unlabelled == 9
    assert {row.tags for part in made.parts.values() for row in part} == {(0, 1), (1, -1, 0)}


# ------------------------------------------------------------------------------ F75 answers
def asked(context: str, answer: str, start: Any) -> list[dict[str, Any]]:
    return [
        {
            "question": "Who?",
            "context": context,
            "answers": {"text": [answer], "answer_start": [start]},
        }
    ]


@given(st.text(min_size=1), st.text(min_size=1).filter(str.strip), st.text())
def test_F75_an_answer_stays_where_it_is(before: str, answer: str, after: str) -> None:
    context = before + answer + after
    (example,) = understood(table_of(*asked(context, answer, len(before))))[1].parts["all"]
    assert isinstance(example, QuestionExample)
    ((text, start),) = example.answers
    assert example.context[start : start + len(text)] == text == answer


def test_F75_an_answer_that_is_elsewhere() -> None:
    # Two code units of UTF-16 for one character: the commonest way to be wrong by one.
    context = "\U0001f600 Ada came."
    error = refusal(DataError, lambda: understood(table_of(*asked(context, "Ada", 3))))
    assert error.where == "all.jsonl, line 1, column 'answers'"
    assert error.found == "'Ada', at character 3: 'da '"
    assert "at 2: correct answer_start" in str(error.do)
    error = refusal(DataError, lambda: understood(table_of(*asked("a b a b", "b", 0))))
    assert "at 2, 6: correct" in str(error.do)
    refusal(DataError, lambda: understood(table_of(*asked("a b", "Zoe", 0))))


# ------------------------------------------------------------------------------ choices
def choice(label: Any) -> Dataset:
    row = {"question": "Which?", "choices": ["red", "blue", "green"], "label": label}
    return understood(table_of(row))[1]


@pytest.mark.parametrize("label", [1, "1", "B", "b", "blue"])
def test_the_right_choice_by_number_letter_or_words(label: Any) -> None:
    (example,) = choice(label).parts["all"]
    assert isinstance(example, ChoiceExample) and example.label == 1


def test_a_label_that_is_a_choice_and_the_place_of_another() -> None:
    row = {"question": "1 + 1?", "choices": ["1", "2", "3"]}
    error = refusal(DataError, lambda: understood(table_of({**row, "label": "2"})))
    assert "letters" in str(error.do)
    for label in ("B", 1):
        (example,) = understood(table_of({**row, "label": label}))[1].parts["all"]
        assert isinstance(example, ChoiceExample) and example.label == 1
    (example,) = understood(table_of({**row, "choices": ["4", "5"], "label": "5"}))[1].parts["all"]
    assert isinstance(example, ChoiceExample) and example.label == 1


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
    assert isinstance(example, ChoiceExample) and example.choices[example.label] == "word 10"


@pytest.mark.parametrize("label", [3, -1, "D", "purple", None])
def test_a_label_that_is_no_choice(label: Any) -> None:
    error = refusal(DataError, lambda: choice(label))
    assert error.where == "all.jsonl, line 1, column 'label'"


def test_choices_that_are_counted_from_1_are_refused() -> None:
    row = {"question": "Which?", "choices": ["a b", "c d", "e f"]}
    from_1 = [{**row, "label": 1 + n % 3} for n in range(9)]
    error = refusal(DataError, lambda: understood(table_of(*from_1)))
    assert "counted from 1" in error.what and error.where == "all.jsonl, line 3, column 'label'"
    some = [{**row, "label": 1 + n % 2} for n in range(9)]  # the control: 3 would be one too many
    assert understood(table_of(*some))[1].parts["all"][0].label == 1


def test_choices_by_what_each_row_calls_them() -> None:
    """As ARC has them: letters in some rows, numbers in others."""
    texts = ["a b", "c d", "e f"]
    keys = (["A", "B", "C"], ["1", "2", "3"], ["1", "2", "3"])
    rows = [
        {"question": "Which?", "choices": {"text": texts, "label": each}, "answerKey": each[n]}
        for n, each in enumerate(keys)
    ]
    made = understood(table_of(*rows))[1].parts["all"]
    assert [example.label for example in made] == [0, 1, 2]


def test_a_question_with_choices_may_be_about_a_text() -> None:
    """As RACE has it, which is no answer within a text."""
    row = {
        "article": "The cat sat. The dog ran.",
        "question": "Who ran?",
        "answer": "B",
        "options": ["the cat", "the dog"],
    }
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
    assert examples.labels is not None and examples.labels.names == ("O", "B-PER", "B-LOC")
    assert examples.parts["all"][1].tags == (1, 0)
    # Several labels of a text, in the order of their numbers.
    rows = [{"text": f"text {n} of words", "labels": [n % 12, 11]} for n in range(48)]
    _, examples = understood(table_of(*rows))
    assert examples.labels is not None and examples.labels.names == tuple(map(str, range(12)))


# ------------------------------------------------------------------------------ places as given
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("before", ["\x1b\x07\x7f ", "a\r\nb\r\n", "\U0001f600 ", "e\u0301 "])
def test_answers_stand_at_their_places_in_the_text_as_given(
    before: str, nested: bool, tmp_path: Path
) -> None:
    rows = []
    for n in range(12):
        context = f"{before}report {n} of Ann Lee"
        start = context.index("Ann")
        answers = {"text": ["Ann Lee"], "answer_start": [start]}
        question = {"id": str(n), "question": f"who is in {n}?", "context": context}
        rows.append({**question, "answers": answers})
    # A part of them counts what is left of the text when it is read, and no other place fits.
    read = before.replace("\r\n", "\n").translate(dict.fromkeys((0x1B, 0x07, 0x7F)))
    rows[3]["answers"]["answer_start"][0] -= len(before) - len(read)
    path = tmp_path / "a.json"
    if nested:
        for row in rows:
            gold = row.pop("answers")
            answers = [{"text": "Ann Lee", "answer_start": gold["answer_start"][0]}]
            row["qas"] = [{"id": row["id"], "question": row["question"], "answers": answers}]
    articles = {"data": [{"title": "t", "paragraphs": rows}]}
    path.write_text(json.dumps(articles if nested else rows))
    for row in prepare(path).parts["train"]:
        ((text, start),) = row.answers
        assert text == row.context[start : start + 7] == "Ann Lee" and row.context[:1] == before[:1]
