"""Texts with marked parts: the tags of their words, what is refused, and which tables they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maskwright.errors import DataError
from maskwright.tasks.marked_text import are_parts, marked
from maskwright.tasks.survey import survey
from maskwright.tasks.words import words_in
from tasks.tables import loaded, refusal, table_of, understood, write, write_rows

TEXT = "Ann Lee, of New York."


def tags(*parts: Any, text: str = TEXT) -> dict[str, str]:
    found = marked(text, list(parts), "a.jsonl, line 1")
    assert len(found.words) == len(found.tags)
    return {word: tag for word, tag in zip(found.words, found.tags, strict=True) if tag != "O"}


def test_words_of_marked_parts_have_their_tags() -> None:
    wanted = {"Ann": "B-PER", "Lee": "I-PER", "New": "B-LOC", "York": "I-LOC"}
    assert tags([0, 7, "PER"], [12, 20, "LOC"]) == wanted
    assert tags([12, 20, "LOC"], [0, 7, "PER"]) == wanted, "in any order"
    assert tags([0, 7, "PER"], [11, 20, "LOC"]) == wanted, "blanks at the border are not of it"
    assert tags([0, 3, "PER"], [4, 7, "PER"]) == {"Ann": "B-PER", "Lee": "B-PER"}
    assert tags([20, 21, "END"]) == {".": "B-END"}
    assert tags() == {}
    for keys in (("start", "end", "label"), ("start_offset", "end_offset", "entity_group")):
        assert tags(dict(zip(keys, (0, 7, "PER"), strict=True))) == tags([0, 7, "PER"])
    assert tags({"start": 0, "end": 7, "labels": ["PER"]}) == tags([0, 7, "PER"])


def test_a_part_of_a_word_takes_the_whole_of_it_and_is_counted() -> None:
    found = marked("Annas Buch", [[0, 3, "PER"]], "a.jsonl, line 1")
    assert found.tags == ("B-PER", "O") and found.widened == 1
    assert marked(TEXT, [[0, 7, "PER"], [11, 20, "LOC"]], "").widened == 0, "the control"


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ([5, 5, "PER"], "not in the text"),
        ([-1, 3, "PER"], "not in the text"),
        ([12, 22, "LOC"], "not in the text"),
        ([3, 4, "PER"], "without a word"),
        ([6, 9, "LOC"], "share a word"),
        ([0, 7], "no list of marked parts"),
        ([0, "7", "PER"], "no list of marked parts"),
        ("PER", "no list of marked parts"),
    ],
)
def test_what_is_no_part_is_refused(part: Any, what: str) -> None:
    error = refusal(DataError, lambda: tags([0, 7, "PER"], part))
    assert what in error.what and error.where == "a.jsonl, line 1" and error.do
    assert what == "no list of marked parts" or str(part[2]) in str(error.found)


def test_what_a_list_of_parts_is() -> None:
    assert are_parts([[0, 3, "PER"]]) and are_parts([{"begin": 0, "end": 3, "type": "PER"}])
    for value in ([], [0, 3, "PER"], [[0, 3]], [[0, 3, ""]], "[[0, 3, 'PER']]", [["a", 1, "b"]],
                  [{"text": "Ann", "answer_start": 0}]):  # fmt: skip
        assert not are_parts(value)


def rows(count: int) -> list[dict[str, Any]]:
    each = [{"id": 7, "text": "Ann is here", "label": [[0, 3, "PER"]]},
            {"id": 8, "text": "nobody is in Rome", "label": [[13, 17, "LOC"]]},
            {"id": 9, "text": "nobody at all", "label": []}]  # fmt: skip
    return each * count


def test_a_table_of_them_is_tagging(tmp_path: Path) -> None:
    task, examples = understood(table_of(*rows(10)))
    assert task.kind == "tagging" and "marked" in task.why
    assert task.columns.roles == {"tokens": ("text",), "tags": ("label",)}
    assert examples.labels is not None and set(examples.labels.names) == {"O", "B-LOC", "B-PER"}
    first = examples.parts["all"][1]
    assert first.tokens == ("nobody", "is", "in", "Rome") and first.text == "nobody is in Rome"
    assert [examples.labels.names[n] for n in first.tags] == ["O", "O", "O", "B-LOC"]
    # As cells of a csv, and from a file.
    cells = "".join(f'{r["text"]},"{r["label"]}"\n' for r in rows(10))
    for path in (write(tmp_path / "a.csv", "text,entities\n" + cells),
                 write_rows(tmp_path / "a.jsonl", rows(10))):  # fmt: skip
        assert [e.tags for e in loaded(path).parts["all"]] == [
            e.tags for e in examples.parts["all"]
        ]


def test_one_bad_row_is_refused_with_its_place() -> None:
    for bad in ([[0, 30, "PER"]], [[0, "3", "PER"]], "PER", None):
        some = [*rows(10), {"id": 1, "text": "Ann is here", "label": bad}]
        error = refusal(DataError, lambda some=some: understood(table_of(*some)))  # type: ignore[misc]
        assert "31" in str(error.where)


def test_widened_parts_are_told() -> None:
    some = [*rows(10), {"id": 1, "text": "Annas Buch", "label": [[0, 3, "PER"]]}]
    _, examples = understood(table_of(*some))
    (said,) = [line for line in survey(examples).warnings if "within a word" in line]
    assert said.startswith("1 marked part of all")
    _, examples = understood(table_of(*rows(10)))
    assert not [line for line in survey(examples).warnings if "within a word" in line]


def test_words_of_many_scripts() -> None:
    for text, wanted in (("L’été, à 7%", ["L", "’", "été", ",", "à", "7", "%"]),
                         ("हिन्दी में", ["हिन्दी", "में"]),
                         ("so\u00adft", ["so\u00adft"]),
                         ("👩‍⚕️ ok👍🏽!!", ["👩‍⚕️", "ok", "👍🏽", "!", "!"]),
                         ("🇩🇪🇫🇷", ["🇩🇪", "🇫🇷"])):  # fmt: skip
        assert [text[begin:end] for begin, end in words_in(text)] == wanted
