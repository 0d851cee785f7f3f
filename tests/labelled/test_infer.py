"""Columns by name and by content, the task they make, and how the user overrules both."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import refusal, sentence, table_of, write
from maskwright.base.errors import DataError, UsageError
from maskwright.text.tables.files import load
from maskwright.text.tables.infer import infer
from maskwright.text.tables.layout import Task
from maskwright.text.tables.prepare import build

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
    "words": TOKENS["tokens"],
    "tags": TOKENS["tags"],
    "tag numbers": lambda n: [0] * len(some(n).split()),
    "languages": lambda n: {"en": some(n), "de": other(n)},
    **{str(size): lambda n, size=size: n % size for size in (2, 3, 4, 5)},
}
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
"""


@pytest.mark.parametrize("case", CASES.strip().split("\n"))
def test_what_a_table_is_for(case: str) -> None:
    names, _, expected = case.partition(" -> ")
    kind, _, roles = expected.partition(", ")
    cells = dict(column.split(": ") for column in names.split(", "))
    task = of(**{name: CELLS[cell] for name, cell in cells.items()})
    assert task.name == kind, task.why
    for role, _, columns in (each.partition("=") for each in roles.split()):
        assert task.columns.roles[role] == tuple(columns.split("|"))
    assert task.lines()[0] == f"task: {kind}, because {task.why}"
    used = {name for names in task.columns.roles.values() for name in names}
    assert all(any(repr(name) in line for line in task.lines()) for name in used)


def test_a_word_in_each_row_is_no_table_of_texts() -> None:
    made = rows(
        **{
            "Sentence #": lambda n: f"Sentence: {n}" if n % 4 == 0 else "",
            "Word": lambda n: f"word{n % 19}",
            "Tag": lambda n: ("O", "B-PER")[n % 2],
            "POS": lambda n: "NN",
        }
    )
    with pytest.raises(DataError, match=r"\.conll"):
        infer(table_of(*made))


def test_one_mistake_makes_no_other_task() -> None:
    made = rows(text=some, score=lambda n: "n/a" if n == 7 else f"{n / 7:.2f}")
    assert infer(table_of(*made)).name == "regression"
    made = rows(text=some, label=lambda n: "postive" if n == 7 else str(n % 2))
    assert infer(table_of(*made)).columns.column("label").kind == "whole"


@pytest.mark.parametrize("cell", ["{}%", "{},5 %", "$ {}.50", "€{}", "-{} £"])
def test_numbers_with_a_unit_are_no_names(cell: str) -> None:
    error = refusal(DataError, lambda: of(text=some, label=lambda n: cell.format(n)))
    assert "--task classification" in str(error.do)
    # The controls: a few of them may be names, and so may what is said to be some.
    assert of(text=some, label=lambda n: cell.format(n % 3)).name == "classification"
    table = table_of(*rows(text=some, label=lambda n: cell.format(n % 25)))
    assert infer(table, task="classification").name == "classification"


@pytest.mark.parametrize(
    ("make", "classes"),
    [
        (lambda n: n % 20, True),
        (lambda n: n % 30, False),  # 30 different numbers, seldom each
        (lambda n: n % 2 * 2 - 1, True),
    ],
)
def test_when_whole_numbers_are_classes(make: Any, classes: bool) -> None:
    assert (of(text=some, label=make).name == "classification") == classes


def test_many_classes_without_gaps_are_classes() -> None:
    made = [{"text": sentence(n), "label": n % 150} for n in range(1500)]
    task = infer(table_of(*made))
    assert task.name == "classification" and "0 to 149 without gaps" in task.why


# ------------------------------------------------------------------------------ overruling
def test_the_user_overrules_columns_and_task() -> None:
    table = table_of(*rows(text=some, title=other, label=lambda n: n % 2, stars=lambda n: n % 5))
    task = infer(table, {"text": "title", "label": "stars"})
    assert task.columns.roles == {"text": ("title",), "label": ("stars",)}
    assert task.columns.why == {"text": "as given", "label": "as given"}
    assert task.columns.left_out == ["text", "label"]
    task = infer(table, {"label": "stars"}, "regression")
    assert task.name == "regression"
    flags = infer(table, {"label": ("label", "stars")})
    assert flags.name == "multi-label"
    pair = infer(table, {"first": "title", "second": "text"})
    assert pair.name == "pair-classification" and pair.columns["label"] == "label"


def test_refusals_name_what_is_near() -> None:
    table = table_of(*rows(text=some, label=lambda n: "ab"[n % 2]))
    error = refusal(UsageError, lambda: infer(table, {"text": "txet"}))
    assert error.where == "text=txet"
    error = refusal(UsageError, lambda: infer(table, {"lable": "label"}))
    error = refusal(UsageError, lambda: infer(table, task="clasification"))
    error = refusal(DataError, lambda: infer(table, task="regression"))
    assert error.where == "all.jsonl, column 'label'" and "classification" in str(error.do)
    error = refusal(DataError, lambda: infer(table, task="tagging"))
    assert error.wanted == "tokens + tags"
    error = refusal(UsageError, lambda: infer(table, {"tokens": "text", "text": "text"}))


def test_two_columns_of_texts_are_asked_about() -> None:
    """Taking one and dropping the other in silence would train on half of each pair."""
    refusal(DataError, lambda: of(eins=some, zwei=other, klasse=lambda n: n % 2))
    table = table_of(*rows(eins=some, zwei=other, klasse=lambda n: n % 2))
    task = infer(table, {"first": "eins", "second": "zwei"})
    assert task.name == "pair-classification" and task.columns["label"] == "klasse"
    long = infer(table_of(*rows(kurz=lambda n: "two words", lang=some, klasse=lambda n: n % 2)))
    assert long.columns["text"] == "lang" and "'kurz'" in long.lines()[-1]


def test_F74_a_part_without_the_column() -> None:
    good = rows(text=some, label=lambda n: n % 2)
    bad = rows(text=some, lable=lambda n: n % 2)
    error = refusal(DataError, lambda: infer(table_of(train=good, test=bad)))
    assert error.where == "test.jsonl"


def test_several_labels_of_pairs_are_refused() -> None:
    refusal(DataError, lambda: of(premise=some, hypothesis=other, labels=lambda n: ["a", "b"]))


def test_exact_names_win_over_contents(tmp_path: Path) -> None:
    lines = "".join(f"{3 * n},{('even', 'odd')[n % 2]}\n" for n in MANY)
    task = infer(load(write(tmp_path / "numbers.csv", f"text,label\n{lines}")))
    assert task.name == "classification" and task.columns["text"] == "text"
    few = infer(table_of(*rows(text=lambda n: "yes" if n % 3 else "no", label=lambda n: n % 2)))
    assert few.columns["text"] == "text"


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
    refusal(DataError, lambda: infer(table_of(train=train, validation=rows(text=some))))


@pytest.mark.parametrize(
    "columns",
    [
        {"question": some, "context": other, "label": lambda n: n % 2},
        {"question": some, "context": lambda n: {"text": [other(n)]}, "label": lambda n: n % 2},
        {"paragraph": other, "question": some, "answer": some, "label": lambda n: n % 2},
        {"instruction": some, "input": other, "output": other},
        {"text": other, "question": some, "answer": lambda n: f"answer {n}"},
    ],
)
def test_what_a_question_is_about_is_not_left_out_unsaid(columns: Any) -> None:
    table = table_of(*rows(**columns))
    error = refusal(DataError, lambda: infer(table))
    said = str(error.do).removeprefix("to leave it out: ").partition(";")[0]
    given = dict(each.split("=") for each in said.replace("--column ", "").split())
    assert infer(table, given).columns.roles.items() >= {k: (v,) for k, v in given.items()}.items()


def test_questions_with_choices_by_many_names() -> None:
    stem = rows(
        question_stem=some,
        answerKey=lambda n: "AB"[n % 2],
        choices=lambda n: {"text": ["a b", "c d"], "label": ["A", "B"]},
    )
    letters = rows(
        question=some,
        A=lambda n: f"a{n}",
        B=lambda n: f"b{n}",
        C=lambda n: f"c{n}",
        answer=lambda n: "ABC"[n % 3],
    )
    for made in (stem, letters):
        assert infer(table_of(*made)).name == "multiple-choice"
    one = infer(table_of(*letters)).columns.roles
    assert one["choices"] == ("A", "B", "C") and one["label"] == ("answer",)


def test_a_judged_answer_is_no_part_of_a_text() -> None:
    table = table_of(
        *rows(
            question=some, document_title=lambda n: "a title", answer=other, label=lambda n: n % 2
        )
    )
    assert infer(table).columns.roles["second"] == ("answer",)


def test_a_row_in_the_place_of_the_header_is_noticed(tmp_path: Path) -> None:
    lines = "".join(f"{'spam' if n % 3 else 'ham'},a text {n}\n" for n in range(60))
    error = refusal(
        DataError, lambda: infer(load(write(tmp_path / "a.csv", "spam,Ok lar\n" + lines)))
    )
    assert "'spam'" in str(error.found)
    # Who names the column has seen that it is one.
    task = infer(load(tmp_path / "a.csv"), {"label": "spam"})
    assert task.columns["label"] == "spam"
    error = refusal(UsageError, lambda: load(tmp_path / "a.csv", header=["spam", "Ok lar"]))
    assert infer(load(write(tmp_path / "b.csv", "kind,words\n" + lines))).name == "classification"


@pytest.mark.parametrize(
    ("columns", "asked"),
    [
        ({"prompt": some, "response": other, "is_safe": lambda n: bool(n % 2)}, "is_safe"),
        ({"instruction": some, "output": other, "label": lambda n: "ab"[n % 2]}, "label"),
        ({"source": some, "target": other, "score": lambda n: n / 7}, "score"),
        ({"question": some, "response": other, "label": lambda n: n % 2}, "response"),
        ({"question": some, "student_answer": other, "score": lambda n: n % 3}, "student_answer"),
        ({"article": some, "summary": other, "label": lambda n: n % 2}, "summary"),
        (
            {
                "question": some,
                "opa": lambda n: f"in {n}",
                "opb": lambda n: f"on {n}",
                "opc": lambda n: f"at {n}",
                "cop": lambda n: n % 3,
            },
            "opa",
        ),
        (
            {
                "text": some,
                "topics": lambda n: {"choices": ["a"]} if n % 2 else "a",
                "lead_time": lambda n: n / 7,
            },
            "topics",
        ),
    ],
)
def test_what_belongs_to_it_is_asked_about(columns: Any, asked: str) -> None:
    error = refusal(DataError, lambda: infer(table_of(*rows(**columns))))
    assert repr(asked) in str(error.found) or asked in str(error.found)
    options = re.findall(r"--column (\S+?=\S+?)(?=[;\s]|$)", str(error.do))
    assert options or asked == "topics"


def test_what_is_no_part_of_the_task_is_not_asked_about() -> None:
    for columns in (
        {"Text": some, "Summary": other, "Score": lambda n: n % 5},
        {"title": other, "body": some, "category": lambda n: "ab"[n % 2]},
        {"question": some, "url": lambda n: f"http://a.b/{n}", "label": lambda n: n % 2},
    ):
        assert infer(table_of(*rows(**columns))).name == "classification"


def test_yes_or_no_is_no_answer_in_a_text() -> None:
    made = rows(question=some, passage=other, answer=lambda n: ("yes", "no")[n % 2])
    assert infer(table_of(*made)).name == "pair-classification"


def test_names_with_blanks_are_told_as_they_are_typed() -> None:
    error = refusal(DataError, lambda: infer(table_of(*rows(**{"a text": some, "b text": other}))))
    assert "--column 'text=a text'" in str(error.do)


def test_long_numbers_stay_what_they_are() -> None:
    """Some share their first sixteen digits; a float would join them."""
    ids = ["1234567890123456789", "1234567890123456788", "1" + "0" * 30]
    rows = [{"text": sentence(n), "label": ids[n % 3]} for n in range(60)]
    made = build(table := table_of(*rows), infer(table))
    assert made.labels is not None and set(made.labels.names) == set(ids)


def test_labels_that_are_not_known_say_nothing_of_the_task() -> None:
    rows = [
        {"text": sentence(n), "mark": "n/a" if n % 8 == 0 else f"{n % 50 / 10 + 0.05:.2f}"}
        for n in range(200)
    ]
    table = table_of(*rows)
    assert infer(table).name == "regression", "also before the rows are left out"
    task = infer(table, no_label="n/a")
    assert task.name == "regression"
    assert infer(table, None, "regression", no_label="n/a").name == "regression"
    made = build(table, task, no_label="n/a")
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


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_one_column_holds_the_label_of_such_a_task(kind: str) -> None:
    rows = [{"text": sentence(n), "a": n % 2, "b": n % 3} for n in range(40)]
    with pytest.raises(DataError):
        infer(table_of(*rows), {"label": ["a", "b"], "text": "text"}, kind)


@pytest.mark.parametrize(
    ("task", "roles"),
    [
        ("tagging", ("tokens", "tags")),
        ("question-answering", ("question", "context", "answers")),
        ("matching", ("anchor", "positive")),
    ],
)
def test_advice_for_a_task_that_is_asked_for_names_its_roles(
    task: str, roles: tuple[str, ...]
) -> None:
    table = table_of(*rows(text=some, topic=lambda n: "ab"[n % 2]))
    error = refusal(DataError, lambda: infer(table, task=task))
    assert all(f"--column {role}=NAME" in str(error.do) for role in roles)
    assert "label" not in str(error.do)
    assert infer(table).name == "classification"  # the control: without the task it is clear
