"""Several columns that make one text: a title and what stands below it."""

from __future__ import annotations

from labelled.tables import refusal, sentence, table_of
from maskwright.base.errors import DataError, UsageError
from maskwright.text.tables.infer import infer
from maskwright.text.tables.prepare import build


def test_several_columns_make_one_text() -> None:
    rows = [
        {
            "title": f"on {sentence(n)}",
            "body": "" if n % 3 else sentence(n + 99),
            "label": "ab"[n % 2],
        }
        for n in range(20)
    ]
    table = table_of(*rows)
    task = infer(table, {"text": ["title", "body"]})
    assert task.name == "classification" and not task.columns.left_out
    assert any("columns 'title', 'body' as text" in line for line in task.lines())
    examples = build(table, task).parts["all"]
    assert examples[0].text == f"on {sentence(0)} {sentence(99)}"
    assert examples[1].text == f"on {sentence(1)}"  # nothing stands below it
    rows[4] |= {"title": " ", "body": ""}
    bad = table_of(*rows)
    error = refusal(DataError, lambda: build(bad, infer(bad, {"text": ["title", "body"]})))
    assert "line 5" in str(error.where)


def test_what_is_asked_with_what_it_is_about() -> None:
    rows = [
        {
            "instruction": f"say {n}",
            "input": sentence(n) if n % 2 else "",
            "output": sentence(n + 9),
        }
        for n in range(20)
    ]
    table = table_of(*rows)
    error = refusal(DataError, lambda: infer(table))
    advised = str(error.do).split("; ")[1].split(": ", 1)[1].replace("--column ", "").split()
    given: dict[str, list[str]] = {}
    for role, name in (each.split("=") for each in advised):
        given.setdefault(role, []).append(name)
    assert given == {"source": ["instruction", "input"], "target": ["output"]}
    first, second = build(table, infer(table, given)).parts["all"][:2]
    assert (first.source, second.source) == ("say 0", f"say 1 {sentence(1)}")


def test_places_are_counted_in_one_column_only() -> None:
    rows = [
        {"q": sentence(n), "a": "river", "b": "a river", "answers": ["river"]} for n in range(20)
    ]
    given = {"question": "q", "context": ["a", "b"]}
    refusal(UsageError, lambda: infer(table_of(*rows), given))
