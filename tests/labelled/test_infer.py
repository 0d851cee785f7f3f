"""Columns by name and by content, the task they make, and how the user overrules both."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import refusal, sentence, table_of, write
from maskwright.base.errors import DataError, UsageError
from maskwright.text.tables.cell_values import as_integer
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
ANSWER = {"text": ["river"], "answer_start": [4]}
CASES: list[tuple[dict[str, Any], str, dict[str, tuple[str, ...]]]] = [
    ({"text": some, "label": lambda n: n % 2}, "classification", {"text": ("text",)}),
    ({"Review_Text": some, "stars": lambda n: 1 + n % 5}, "classification", {"label": ("stars",)}),
    (
        {"title": some, "text": other, "category": lambda n: "ab"[n % 2]},
        "classification",
        {"text": ("text",)},
    ),
    ({"sentence": some, "label": lambda n: n % 3 == 0}, "classification", {}),
    (
        {"text": some, "label": lambda n: n % 2, "label_name": lambda n: ["no", "yes"][n % 2]},
        "classification",
        {"label_name": ("label_name",)},
    ),
    ({"text": some, "score": lambda n: n / 10 + 0.05}, "regression", {"label": ("score",)}),
    ({"text": some, "score": lambda n: n * 3}, "regression", {}),
    ({"text": some, "label": lambda n: float(n % 3)}, "classification", {}),
    (
        {"question1": some, "question2": other, "is_duplicate": lambda n: float(n % 2)},
        "pair-classification",
        {"label": ("is_duplicate",)},
    ),
    ({"sentence1": some, "sentence2": other, "label": lambda n: float(n % 6)}, "similarity", {}),
    (
        {"premise": some, "hypothesis": other, "label": lambda n: n % 3},
        "pair-classification",
        {"first": ("premise",), "second": ("hypothesis",)},
    ),
    (
        {"question1": some, "question2": other, "is_duplicate": lambda n: n % 2},
        "pair-classification",
        {"label": ("is_duplicate",)},
    ),
    ({"question": some, "sentence": other, "label": lambda n: n % 2}, "pair-classification", {}),
    (
        {"question": some, "passage": other, "answer": lambda n: n % 3 == 0},
        "pair-classification",
        {"label": ("answer",)},
    ),
    ({"sentence1": some, "sentence2": other, "score": lambda n: n / 8}, "similarity", {}),
    ({"text": some, "labels": lambda n: ["a", "b", "c"][: n % 4]}, "multi-label", {}),
    ({"text": some, "labels": lambda n: [n % 3, 3]}, "multi-label", {}),
    ({"text": some, "genres": lambda n: "|".join("abc"[: 1 + n % 3])}, "multi-label", {}),
    (
        {
            "comment_text": some,
            "toxic": lambda n: n % 2,
            "insult": lambda n: int(n % 3 == 0),
            "threat": lambda n: int(n % 5 == 0),
        },
        "multi-label",
        {"label": ("toxic", "insult", "threat")},
    ),
    (TOKENS, "tagging", {"tags": ("tags",)}),
    (
        {"words": TOKENS["tokens"], "ner_tags": lambda n: [0] * len(some(n).split()), "text": some},
        "tagging",
        {"tokens": ("words",), "tags": ("ner_tags",)},
    ),
    (
        {
            "id": some,
            "question": some,
            "context": lambda n: "the river",
            "answers": lambda n: ANSWER,
        },
        "question-answering",
        {"answers": ("answers",)},
    ),
    (
        {"ctx": some, "endings": lambda n: ["a", "b"], "label": lambda n: n % 2},
        "multiple-choice",
        {"choices": ("endings",)},
    ),
    (
        {"premise": some, "choice1": other, "choice2": some, "label": lambda n: n % 2},
        "multiple-choice",
        {"choices": ("choice1", "choice2")},
    ),
    (
        {
            "sent1": some,
            "sent2": other,
            "ending0": some,
            "ending1": other,
            "label": lambda n: n % 2,
        },
        "multiple-choice",
        {"context": ("sent1",), "question": ("sent2",)},
    ),
    (
        {"sent1": some, "sent2": other, "label": lambda n: n % 2},
        "pair-classification",
        {"first": ("sent1",), "second": ("sent2",)},
    ),
    ({"src": some, "tgt": other}, "sequence-to-sequence", {"source": ("src",)}),
    ({"id": some, "document": some, "summary": other}, "sequence-to-sequence", {}),
    ({"text": some, "target": other}, "sequence-to-sequence", {"target": ("target",)}),
    (
        {"translation": lambda n: {"en": some(n), "de": other(n)}},
        "sequence-to-sequence",
        {"source": ("translation.en",), "target": ("translation.de",)},
    ),
    # Several names are those of labels: what somebody thinks of a text is meant.
    (
        {
            "genre": lambda n: "ab"[n % 2],
            "sentence1": some,
            "sentence2": other,
            "gold_label": lambda n: "xyz"[n % 3],
        },
        "pair-classification",
        {"label": ("gold_label",)},
    ),
    (
        {
            "genre": lambda n: "ab"[n % 2],
            "sentence1": some,
            "sentence2": other,
            "score": lambda n: n / 8,
        },
        "similarity",
        {"label": ("score",)},
    ),
    (
        {"review": some, "genre": lambda n: "ab"[n % 2], "rating": lambda n: n % 5},
        "classification",
        {"label": ("rating",)},
    ),
    # No name says anything.
    (
        {"satz": some, "klasse": lambda n: "ja" if n % 2 else "nein"},
        "classification",
        {"text": ("satz",), "label": ("klasse",)},
    ),
    (
        {"satz": some, "nummer": lambda n: n, "mass": lambda n: n / 7},
        "regression",
        {"label": ("mass",)},
    ),
]


@pytest.mark.parametrize(("columns", "kind", "roles"), CASES)
def test_what_a_table_is_for(
    columns: dict[str, Any], kind: str, roles: dict[str, tuple[str, ...]]
) -> None:
    task = of(**columns)
    assert task.name == kind, task.why
    assert roles.items() <= task.columns.roles.items()
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


def test_what_else_might_be_the_label_is_said() -> None:
    names = {"text": some, "category": lambda n: "ab"[n % 2], "sentiment": lambda n: "xyz"[n % 3]}
    (line,) = [line for line in of(**names).lines() if "as label" in line]
    assert "'sentiment'" in line and "'category' might be it, too" in line
    sure = of(**{**names, "label": lambda n: n % 2})
    assert not any("might be" in line for line in sure.lines()), "the control"


def test_a_csv_is_understood_by_what_its_texts_spell(tmp_path: Path) -> None:
    lines = [f"{sentence(n)},{n % 3},{n / 7:.2f}" for n in MANY]
    path = write(tmp_path / "a.csv", "review,label,weight\n" + "\n".join(lines))
    table = load(path)
    assert infer(table).name == "classification"
    assert infer(table, {"label": "weight"}).name == "regression"


def test_one_mistake_makes_no_other_task() -> None:
    made = rows(text=some, score=lambda n: "n/a" if n == 7 else f"{n / 7:.2f}")
    assert infer(table_of(*made)).name == "regression"
    made = rows(text=some, label=lambda n: "postive" if n == 7 else str(n % 2))
    assert infer(table_of(*made)).columns.column("label").kind == "whole"


@pytest.mark.parametrize("cell", ["{}%", "{},5 %", "$ {}.50", "€{}", "-{} £"])
def test_numbers_with_a_unit_are_no_names(cell: str) -> None:
    error = refusal(DataError, lambda: of(text=some, label=lambda n: cell.format(n)))
    assert error.what == "numbers with a unit" and "--task classification" in str(error.do)
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
    assert task.name == "regression" and task.why.startswith("it was given (otherwise")
    flags = infer(table, {"label": ("label", "stars")})
    assert flags.name == "multi-label"
    pair = infer(table, {"first": "title", "second": "text"})
    assert pair.name == "pair-classification" and pair.columns["label"] == "label"


def test_refusals_name_what_is_near() -> None:
    table = table_of(*rows(text=some, label=lambda n: "ab"[n % 2]))
    error = refusal(UsageError, lambda: infer(table, {"text": "txet"}))
    assert error.what == "the column is missing" and error.where == "text=txet"
    assert error.wanted == "did you mean 'text'?"
    error = refusal(UsageError, lambda: infer(table, {"lable": "label"}))
    assert "did you mean 'label'" in str(error.wanted)
    error = refusal(UsageError, lambda: infer(table, task="clasification"))
    assert "did you mean 'classification'" in str(error.wanted)
    error = refusal(DataError, lambda: infer(table, task="regression"))
    assert error.what == "regression needs numbers as labels"
    assert error.where == "all.jsonl, column 'label'" and "classification" in str(error.do)
    error = refusal(DataError, lambda: infer(table, task="tagging"))
    assert error.what == "the roles of the columns are unclear"
    assert error.wanted == "tokens + tags"
    error = refusal(UsageError, lambda: infer(table, {"tokens": "text", "text": "text"}))
    assert error.what == "no task has all these columns"


def test_text_without_labels_is_for_pretraining() -> None:
    error = refusal(DataError, lambda: of(body_of_it=some))
    assert "use pretraining" in str(error.do)
    assert "body_of_it (text, 40 different)" in str(error.found)


def test_two_possible_labels_are_asked_about() -> None:
    error = refusal(DataError, lambda: of(text=some, mood=lambda n: n % 2, tone=lambda n: n % 3))
    assert error.do == "say which column is the label: --column label=mood (or tone)"


def test_two_columns_of_texts_are_asked_about() -> None:
    """Taking one and dropping the other in silence would train on half of each pair."""
    error = refusal(DataError, lambda: of(eins=some, zwei=other, klasse=lambda n: n % 2))
    assert "--column first=eins --column second=zwei for pairs" in str(error.do)
    table = table_of(*rows(eins=some, zwei=other, klasse=lambda n: n % 2))
    task = infer(table, {"first": "eins", "second": "zwei"})
    assert task.name == "pair-classification" and task.columns["label"] == "klasse"
    long = infer(table_of(*rows(kurz=lambda n: "two words", lang=some, klasse=lambda n: n % 2)))
    assert long.columns["text"] == "lang" and "'kurz'" in long.lines()[-1]


def test_F74_a_part_without_the_column() -> None:
    good = rows(text=some, label=lambda n: n % 2)
    bad = rows(text=some, lable=lambda n: n % 2)
    error = refusal(DataError, lambda: infer(table_of(train=good, test=bad)))
    assert error.what == "the part 'test' has no column 'label'"
    assert error.where == "test.jsonl" and "did you mean 'lable'?" in str(error.do)


def test_several_labels_of_pairs_are_refused() -> None:
    error = refusal(
        DataError, lambda: of(premise=some, hypothesis=other, labels=lambda n: ["a", "b"])
    )
    assert "several labels for a pair" in error.what


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


def test_whole_numbers_of_many_digits_stay_apart() -> None:
    """A float has 53 bits."""
    assert [as_integer(f"10000000000000000{n}") for n in (1, 2)] == [10**17 + 1, 10**17 + 2]
    assert (
        as_integer(" +7 ") == 7
        and as_integer("7.0") == 7
        and as_integer("7.5") is as_integer("x") is None
    )


def test_a_test_part_without_the_column_of_labels_is_not_used() -> None:
    """As competitions have it; a misspelt column is still refused (F74)."""
    train = rows(id=lambda n: n, text=some, label=lambda n: n % 2)
    table = table_of(train=train, test=rows(id=lambda n: n, text=some))
    assert infer(table).name == "classification" and list(table.parts) == ["train"]
    assert list(map(str, table.counts["test"].findings)) == [
        "not used: no column 'label' in place of a label in all 40 rows"
    ]
    error = refusal(DataError, lambda: infer(table_of(train=train, validation=rows(text=some))))
    assert error.what == "the part 'validation' has no column 'label'"


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
    assert error.what == "a column that may belong to the question is not read"
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


def test_what_is_missing_beside_what_was_found_is_asked_for() -> None:
    pairs = rows(
        sentence_A=some,
        sentence_B=other,
        entailment_label=lambda n: "xyz"[n % 3],
        relatedness_score=lambda n: n / 7,
        part=lambda n: "ab"[n % 2],
    )
    error = refusal(DataError, lambda: infer(table_of(*pairs)))
    assert "--column label=entailment_label (or relatedness_score, part)" in str(error.do)
    assert "'sentence_A' (first) and 'sentence_B' (second)" in str(error.do)
    error = refusal(DataError, lambda: infer(table_of(*rows(goal=some, sol1=some, sol2=other))))
    assert "add a column with the label" in str(error.do)


def test_a_row_in_the_place_of_the_header_is_noticed(tmp_path: Path) -> None:
    lines = "".join(f"{'spam' if n % 3 else 'ham'},a text {n}\n" for n in range(60))
    error = refusal(
        DataError, lambda: infer(load(write(tmp_path / "a.csv", "spam,Ok lar\n" + lines)))
    )
    assert error.what.startswith("the first row looks like data") and "'spam'" in str(error.found)
    # Who names the column has seen that it is one.
    task = infer(load(tmp_path / "a.csv"), {"label": "spam"})
    assert task.columns["label"] == "spam"
    error = refusal(UsageError, lambda: load(tmp_path / "a.csv", header=["spam", "Ok lar"]))
    assert error.what == "the file's first row holds these names already"
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


def test_letters_of_no_width_make_no_other_label() -> None:
    rows = [{"text": sentence(n), "label": "a\u200b" if n == 7 else "ab"[n % 2]} for n in range(60)]
    with pytest.raises(DataError, match="differ only by case or blanks") as refused:
        build(table := table_of(*rows), infer(table))
    assert r"a\u200b" in str(refused.value.found)
    made = build(table, infer(table), fold_labels=True)
    assert made.labels is not None and len(made.labels) == 2


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
    with pytest.raises(DataError, match="one column of labels"):
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
