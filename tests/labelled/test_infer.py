"""Columns by name and by content, the task they make, and how the user overrules both."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import refusal, sentence, table_of, write
from maskwright.base.errors import DataError, UsageError
from maskwright.text.tables.files import load
from maskwright.text.tables.infer import infer
from maskwright.text.tables.layout import Task
from maskwright.text.tables.prepare import build
from maskwright.text.tables.reading_options import how_read
from maskwright.text.tables.rows import Table

MANY = range(40)


def rows(**columns: Any) -> list[dict[str, Any]]:
    """Forty rows; a function makes the cell of a row from its number."""
    return [
        {name: make(n) if callable(make) else make for name, make in columns.items()} for n in MANY
    ]


def of(**columns: Any) -> Task:
    return infer(table_of(*rows(**columns)))


def some(n: int) -> str:
    return sentence(n)


def other(n: int) -> str:
    return sentence(n + 1000)


TOKENS = {"tokens": lambda n: some(n).split(), "tags": lambda n: ["O"] * len(some(n).split())}
CELLS: dict[str, Any] = {
    "text": some,
    "other": other,
    "name": lambda n: "ab"[n % 2],
    "true": lambda n: n % 3 == 0,
    "2 floats": lambda n: float(n % 2),
    "3 floats": lambda n: float(n % 3),
    "6 floats": lambda n: float(n % 6),
    "eighths": lambda n: n / 8,
    "count": lambda n: n * 3,
    "lists": lambda n: ["a", "b", "c"][: n % 4],
    "numbers": lambda n: [n % 3, 3],
    "pipes": lambda n: "|".join("abc"[: 1 + n % 3]),
    "flag": lambda n: int(n % 3 == 0),
    "choices": ["a", "b"],
    "river": "the river",
    "answer": {"text": ["river"], "answer_start": [4]},
    "sevenths": lambda n: n / 7,
    "signs": lambda n: n % 2 * 2 - 1,
    "digits": lambda n: str(3 * n),
    "number within": lambda n: f"It opened in {3 * n} and closed.",
    "bool": lambda n: bool(n % 2),
    "yes or no": lambda n: ("yes", "no")[n % 2],
    "letter": lambda n: "ABC"[n % 3],
    "url": lambda n: f"http://a.b/{n}",
    "title": "a title",
    "in": lambda n: f"in {n}",
    "on": lambda n: f"on {n}",
    "at": lambda n: f"at {n}",
    "choices by letter": {"text": ["a b", "c d", "e f"], "label": ["A", "B", "C"]},
    "choices or names": lambda n: {"choices": ["a"]} if n % 2 else "a",
    "texts": lambda n: {"text": [other(n)]},
    "words": TOKENS["tokens"],
    "tags": TOKENS["tags"],
    "tag numbers": lambda n: [0] * len(some(n).split()),
    "languages": lambda n: {"en": some(n), "de": other(n)},
    **{str(size): lambda n, size=size: n % size for size in (2, 3, 4, 5, 20, 30)},
}


def table_from(columns: str) -> Table:
    """The table with these columns, `name: kind of its cells, …`."""
    cells = dict(column.split(": ") for column in columns.split(", "))
    return table_of(*rows(**{name: CELLS[cell] for name, cell in cells.items()}))


# Columns (name: cells), the task, and some roles.
CASES = """
text: text, label: 2 -> classification, text=text
Review_Text: text, stars: 5 -> classification, label=stars
title: text, text: other, category: name -> classification, text=text
sentence: text, label: true -> classification
text: text, label: 2, label_name: name -> classification, label_name=label_name
text: text, score: eighths -> regression, label=score
text: text, score: count -> regression
text: text, label: 3 floats -> classification
question1: text, question2: other, is_duplicate: 3 floats -> pair-classification, label=is_duplicate
sentence1: text, sentence2: other, label: 6 floats -> similarity
premise: text, hypothesis: other, label: 3 -> pair-classification, first=premise second=hypothesis
question1: text, question2: other, is_duplicate: 2 -> pair-classification, label=is_duplicate
question: text, sentence: other, label: 2 -> pair-classification
question: text, passage: other, answer: true -> pair-classification, label=answer
sentence1: text, sentence2: other, score: eighths -> similarity
text: text, labels: lists -> multi-label
text: text, labels: numbers -> multi-label
text: text, genres: pipes -> multi-label
comment_text: text, toxic: 2, insult: flag, threat: flag -> multi-label, label=toxic|insult|threat
tokens: words, tags: tags -> tagging, tags=tags
words: words, ner_tags: tag numbers, text: text -> tagging, tokens=words tags=ner_tags
id: text, question: text, context: river, answers: answer -> question-answering, answers=answers
ctx: text, endings: choices, label: 2 -> multiple-choice, choices=endings
premise: text, choice1: other, choice2: text, label: 2 -> multiple-choice, choices=choice1|choice2
sent1: text, sent2: other, ending0: text, ending1: other, label: 2 -> multiple-choice, context=sent1
sent1: text, sent2: other, label: 2 -> pair-classification, first=sent1 second=sent2
src: text, tgt: other -> sequence-to-sequence, source=src
id: text, document: text, summary: other -> sequence-to-sequence
text: text, target: other -> sequence-to-sequence, target=target
translation: languages -> sequence-to-sequence, source=translation.en target=translation.de
genre: name, sent1: text, sent2: other, gold_label: 3 -> pair-classification, label=gold_label
genre: name, sentence1: text, sentence2: other, score: eighths -> similarity, label=score
review: text, genre: name, rating: 5 -> classification, label=rating
satz: text, klasse: name -> classification, text=satz label=klasse
satz: text, nummer: count, mass: eighths -> regression, label=mass
text: text, label: 20 -> classification
text: text, label: 30 -> regression
text: text, label: signs -> classification
text: digits, label: name -> classification, text=text
text: yes or no, label: 2 -> classification, text=text
question_stem: text, answerKey: letter, choices: choices by letter -> multiple-choice
question: text, A: in, B: on, C: at, answer: letter -> multiple-choice, choices=A|B|C label=answer
question: text, document_title: title, answer: other, label: 2 -> pair-classification, second=answer
question: text, passage: other, answer: yes or no -> pair-classification
question: text, context: other, answer: yes or no -> pair-classification, second=context
question: text, context: other, A: in, B: on, C: at, answer: letter -> multiple-choice
question: text, context: number within, answer: digits -> question-answering, answers=answer
question: text, context: number within, answer: count -> question-answering, answers=answer
document: text, answers: digits, question: other, label: name -> classification, text=document
question: other, article: text, answers: count, score: eighths -> regression, label=score
query: in, passage: at, answer: on, answer_start: 3, answer2: on, answer3: at -> question-answering
question: text, context: other, answer: in, answer2: on, answer3: at -> question-answering
question: text, context: other, answer: in, answer1: in, answer2: on -> multiple-choice
Text: text, Summary: other, Score: 5 -> classification
title: other, body: text, category: name -> classification
question: text, url: url, label: 2 -> classification
id: 30, comment: text, loud: 2 floats, length: count -> classification, label=loud
"""


@pytest.mark.parametrize("case", CASES.strip().split("\n"))
def test_what_a_table_is_for(case: str) -> None:
    columns, _, expected = case.partition(" -> ")
    kind, _, roles = expected.partition(", ")
    task = infer(table_from(columns))
    assert task.name == kind, task.why
    for role, _, names in (role.partition("=") for role in roles.split()):
        assert task.columns.roles[role] == tuple(names.split("|"))
    assert task.lines()[0] == f"task: {kind}, because {task.why}"
    used = {name for names in task.columns.roles.values() for name in names}
    assert all(any(repr(name) in line for line in task.lines()) for name in used)


def test_a_column_has_one_role() -> None:
    table, columns = table_from("text: text, label: 2"), {"text": "text", "label": "text"}
    assert refusal(UsageError, lambda: infer(table, columns)).where == "--column"


def test_a_word_in_each_row_is_no_table_of_texts() -> None:
    words = {"Word": lambda n: f"word{n % 19}", "Tag": lambda n: ("O", "B-PER")[n % 2], "POS": "NN"}
    table = table_of(*rows(**{"Sentence #": lambda n: "" if n % 4 else f"Sentence: {n}"}, **words))
    assert ".conll" in str(refusal(DataError, lambda: infer(table)))


def test_one_mistake_makes_no_other_task() -> None:
    task = of(text=some, score=lambda n: "n/a" if n == 7 else f"{n / 7:.2f}")
    assert task.name == "regression"
    task = of(text=some, label=lambda n: "postive" if n == 7 else str(n % 2))
    assert task.columns.column("label").kind == "whole"


@pytest.mark.parametrize("cell", ["{}%", "{},5 %", "$ {}.50", "€{}", "-{} £"])
def test_numbers_with_a_unit_are_no_names(cell: str) -> None:
    error = refusal(DataError, lambda: of(text=some, label=lambda n: cell.format(n)))
    assert "--task classification" in str(error.do)
    # The controls: a few of them may be names, and so may what is said to be some.
    assert of(text=some, label=lambda n: cell.format(n % 3)).name == "classification"
    table = table_of(*rows(text=some, label=lambda n: cell.format(n % 25)))
    assert infer(table, task="classification").name == "classification"


def test_many_classes_without_gaps_are_classes() -> None:
    made = [{"text": sentence(n), "label": n % 150} for n in range(1500)]
    task = infer(table_of(*made))
    assert task.name == "classification" and "0 to 149 without gaps" in task.why


# ------------------------------------------------------------------------------ overruling
def test_the_user_overrules_columns_and_task() -> None:
    table = table_from("text: text, title: other, label: 2, stars: 5")
    task = infer(table, {"text": "title", "label": "stars"})
    assert task.columns.roles == {"text": ("title",), "label": ("stars",)}
    assert task.columns.why == {"text": "as given", "label": "as given"}
    assert task.columns.left_out == ["text", "label"]
    assert infer(table, {"label": "stars"}, "regression").name == "regression"
    assert infer(table, {"label": ("label", "stars")}).name == "multi-label"
    pair = infer(table, {"first": "title", "second": "text"})
    assert pair.name == "pair-classification" and pair.columns["label"] == "label"


@pytest.mark.parametrize(
    ("kind", "columns", "task"),
    [
        (UsageError, {"text": "txet"}, None),
        (UsageError, {"lable": "label"}, None),
        (UsageError, {"tokens": "text", "text": "text"}, None),
        (UsageError, None, "clasification"),
        (DataError, None, "regression"),
        (DataError, None, "tagging"),
        (DataError, {"label": ["a", "b"], "text": "text"}, "regression"),
        (DataError, {"label": ["a", "b"], "text": "text"}, "classification"),
    ],
)
def test_what_cannot_be_meant_is_refused(kind: Any, columns: Any, task: str | None) -> None:
    table = table_from("text: text, label: name, a: 2, b: 3")
    refusal(kind, lambda: infer(table, columns, task))


def test_two_columns_of_texts_are_asked_about() -> None:
    """Taking one and dropping the other in silence would train on half of each pair."""
    table = table_from("eins: text, zwei: other, klasse: 2")
    refusal(DataError, lambda: infer(table))
    task = infer(table, {"first": "eins", "second": "zwei"})
    assert task.name == "pair-classification" and task.columns["label"] == "klasse"
    longer = infer(table_from("kurz: title, lang: text, klasse: 2"))
    assert longer.columns["text"] == "lang" and "'kurz'" in longer.lines()[-1]


def test_a_column_references_is_used_where_every_row_has_some() -> None:
    made: dict[str, Any] = {"source": some, "target": other}
    task = of(**made, references=lambda n: [other(n), some(n)])
    assert task.columns.roles["references"] == ("references",)
    assert "'references' as references (by its name)" in "\n".join(task.lines())
    task = of(**made, references=lambda n: [other(n)] if n else [])
    assert "references" not in task.columns.roles
    assert "not used: 'references'" in task.lines()
    parts = {"train": rows(**made, references=lambda n: [other(n)]), "test": rows(**made)}
    assert "references" not in infer(table_of(**parts)).columns.roles


def test_a_test_part_without_the_column_of_labels_is_not_used() -> None:
    """As competitions have it; a misspelt column is still refused (F74)."""
    train = rows(id=lambda n: n, text=some, label=lambda n: n % 2)
    table = table_of(train=train, test=rows(id=lambda n: n, text=some))
    assert infer(table).name == "classification" and list(table.parts) == ["train"]
    assert [finding.name for finding in table.counts["test"].findings] == ["part-not-used"]
    misspelt = rows(text=some, lable=lambda n: n % 2)
    for parts in ({"validation": rows(text=some)}, {"test": misspelt}):
        (name,) = parts
        error = refusal(DataError, lambda parts=parts: infer(table_of(train=train, **parts)))
        assert error.where == f"{name}.jsonl"


@pytest.mark.parametrize(
    "columns",
    [
        "question: text, context: other, label: 2",
        "question: text, context: texts, label: 2",
        "paragraph: other, question: text, answer: text, label: 2",
        "instruction: text, input: other, output: other",
        "text: other, question: text, answer: in",
    ],
)
def test_what_a_question_is_about_is_not_left_out_unsaid(columns: str) -> None:
    table = table_from(columns)
    error = refusal(DataError, lambda: infer(table))
    advice = str(error.do).removeprefix("to leave it out: ").partition(";")[0]
    roles = dict(option.split("=") for option in advice.replace("--column ", "").split())
    assert infer(table, roles).columns.roles.items() >= {(role, (roles[role],)) for role in roles}


def test_a_row_in_the_place_of_the_header_is_noticed(tmp_path: Path) -> None:
    lines = "".join(f"{'spam' if n % 3 else 'ham'},a text {n}\n" for n in range(60))
    path = write(tmp_path / "a.csv", "spam,Ok lar\n" + lines)
    assert "'spam'" in str(refusal(DataError, lambda: infer(load(path))).found)
    # Who names the column has seen that it is one.
    assert infer(load(path), {"label": "spam"}).columns["label"] == "spam"
    refusal(UsageError, lambda: load(path, header=["spam", "Ok lar"]))
    named = "\ufeff\ufeffkind,words\n" + lines
    path = write(tmp_path / "b.csv", named)
    assert infer(load(path)).columns["label"] == "kind"
    joined = refusal(DataError, lambda: load(write(path, named * 2)))
    assert joined.where == f"{path}, line 62"


@pytest.mark.parametrize(
    ("columns", "asked"),
    [
        ("prompt: text, response: other, is_safe: bool", "is_safe"),
        ("instruction: text, output: other, label: name", "label"),
        ("source: text, target: other, score: sevenths", "score"),
        ("question: text, response: other, label: 2", "response"),
        ("question: text, student_answer: other, score: 3", "student_answer"),
        ("article: text, summary: other, label: 2", "summary"),
        ("question: text, opa: in, opb: on, opc: at, cop: 3", "opa"),
        ("text: text, topics: choices or names, lead_time: sevenths", "topics"),
    ],
)
def test_what_belongs_to_it_is_asked_about(columns: str, asked: str) -> None:
    error = refusal(DataError, lambda: infer(table_from(columns)))
    assert asked in str(error.found)
    assert re.findall(r"--column (\S+?=\S+?)(?=[;\s]|$)", str(error.do)) or asked == "topics"


def test_several_labels_of_pairs_are_refused() -> None:
    refusal(DataError, lambda: infer(table_from("premise: text, hypothesis: other, labels: lists")))


def test_the_one_role_that_is_missing_is_asked_for() -> None:
    error = refusal(DataError, lambda: infer(table_from("question: text, context: other")))
    assert "'context' (context)" in str(error.do) and "--column answers=NAME" in str(error.do)


@pytest.mark.parametrize("value", [date(2020, 1, 1), {"name": "good", "id": 1}])
def test_a_column_of_objects_is_not_said_to_be_missing(value: Any) -> None:
    rows = [{"text": sentence(n), "mood": value} for n in range(20)]
    assert "--column label" in str(refusal(DataError, lambda: infer(table_of(*rows))).do)


def test_texts_in_lists_are_not_said_to_lack_a_label() -> None:
    rows = [{"text": [sentence(n)], "label": "ab"[n % 2]} for n in range(20)]
    assert "--column" not in str(refusal(DataError, lambda: infer(table_of(*rows))).do)


def test_names_with_blanks_are_told_as_they_are_typed() -> None:
    error = refusal(DataError, lambda: infer(table_of(*rows(**{"a text": some, "b text": other}))))
    assert "--column 'text=a text'" in str(error.do)


def test_long_numbers_stay_what_they_are() -> None:
    """Some share their first sixteen digits; a float would join them."""
    ids = ["1234567890123456789", "1234567890123456788", "1" + "0" * 30]
    table = table_of(*rows(text=some, label=lambda n: ids[n % 3]))
    assert set(build(table, infer(table)).labels.names) == set(ids)


def test_labels_that_are_not_known_say_nothing_of_the_task() -> None:
    marks = ["n/a" if n % 8 == 0 else f"{n % 50 / 10 + 0.05:.2f}" for n in range(200)]
    table = table_of(*({"text": sentence(n), "mark": mark} for n, mark in enumerate(marks)))
    assert infer(table).name == "regression", "also before the rows are left out"
    assert infer(table, None, "regression", no_label="n/a").name == "regression"
    made = build(table, infer(table, no_label="n/a"), read=how_read("no_label=n/a"))
    assert made.task.name == "regression"
    assert made.unlabelled == 25 and len(made.parts["all"]) == 175


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        (lambda n: "a, b" if n % 40 == 0 else "ab"[n % 2], ("a", "b")),
        (lambda n: ("a;b", "b;c")[n % 2], ("a", "b", "c")),  # fewer cells than names
        (lambda n: ("Sports, Games", "Business")[n % 2], ("Business", "Sports, Games")),
    ],
)
def test_a_rare_separator_is_one_where_the_task_is_said(cell: Any, names: tuple[str, ...]) -> None:
    table = table_of(*({"text": sentence(n), "label": cell(n)} for n in range(200)))
    made = build(table, infer(table, None, "multi-label"))
    assert made.labels is not None and made.labels.names == names


@pytest.mark.parametrize(
    ("task", "roles"),
    [
        ("tagging", ("tokens", "tags")),
        ("question-answering", ("question", "context", "answers")),
        ("matching", ("anchor", "positive")),
    ],
)
def test_advice_for_a_task_that_is_asked_for_names_its_roles(task: str, roles: Any) -> None:
    error = refusal(DataError, lambda: infer(table_from("text: text, topic: name"), task=task))
    assert error.wanted == " + ".join(roles) and "label" not in str(error.do)
    assert all(f"--column {role}=NAME" in str(error.do) for role in roles)
