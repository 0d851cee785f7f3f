"""Texts with marked parts: the tags of their words, what is refused, and which tables they are."""

from __future__ import annotations

import csv
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import loaded, refusal, table_of, understood, write, write_parquet
from maskwright.base.errors import DataError
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.marked_text import are_marked_spans, tag_words, words_in
from maskwright.text.tables.prepare import prepare
from maskwright.text.tables.reading_options import how_read

TEXT = "Ann Lee, of New York."


def tags(*parts: Any) -> dict[str, str]:
    tagged = tag_words(TEXT, list(parts), "a.jsonl, line 1")
    return {word: tag for word, tag in zip(tagged.words, tagged.tags, strict=True) if tag != "O"}


def test_words_of_marked_parts_have_their_tags() -> None:
    wanted = {"Ann": "B-PER", "Lee": "I-PER", "New": "B-LOC", "York": "I-LOC"}
    assert tags([0, 7, "PER"], [12, 20, "LOC"]) == wanted
    assert tags([12, 20, "LOC"], [0, 7, "PER"]) == wanted, "in any order"
    assert tags([0, 7, "PER"], [11, 20, "LOC"]) == wanted, "blanks at the border are not of it"
    assert tags([0, 3, "PER"], [4, 7, "PER"]) == {"Ann": "B-PER", "Lee": "B-PER"}
    assert tags([20, 21, "END"]) == {".": "B-END"}
    assert tags() == {}


def test_a_part_of_a_word_takes_the_whole_of_it_and_is_counted() -> None:
    found = tag_words("Annas Buch", [[0, 3, "PER"]], "a.jsonl, line 1")
    assert found.tags == ("B-PER", "O") and found.widened == 1
    assert tag_words(TEXT, [[0, 7, "PER"], [11, 20, "LOC"]], "").widened == 0, "the control"


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


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ([[0, 3, "PER"]], True),
        ([{"begin": 0, "end": 3, "type": "PER"}], True),
        ([], False),
        ([0, 3, "PER"], False),
        ([[0, 3]], False),
        ([[0, 3, ""]], False),
        ("[[0, 3, 'PER']]", False),
        ([["a", 1, "b"]], False),
        ([{"text": "Ann", "answer_start": 0}], False),
    ],
)
def test_what_a_list_of_parts_is(value: Any, is_one: bool) -> None:
    assert are_marked_spans(value) is is_one


ROWS: list[dict[str, Any]] = [
    {"id": 7, "text": "Ann is here", "label": [[0, 3, "PER"]]},
    {"id": 8, "text": "nobody is in Rome", "label": [[13, 17, "LOC"]]},
    {"id": 9, "text": "nobody at all", "label": []},
] * 10


def test_a_table_of_them_is_tagging(tmp_path: Path) -> None:
    task, examples = understood(table_of(*ROWS))
    assert task.name == "tagging" and "marked" in task.why
    assert task.columns.roles == {"tokens": ("text",), "tags": ("label",)}
    row = examples.parts["all"][1]
    assert row.tokens == ("nobody", "is", "in", "Rome") and row.text == "nobody is in Rome"
    assert [examples.labels.names[n] for n in row.tags] == ["O", "O", "O", "B-LOC"]
    cells = "".join(f'{r["text"]},"{r["label"]}"\n' for r in ROWS)
    table = loaded(write(tmp_path / "a.csv", "text,entities\n" + cells))
    assert [e.tags for e in table.parts["all"]] == [e.tags for e in examples.parts["all"]]


@pytest.mark.parametrize("bad", [[[0, 30, "PER"]], [[0, "3", "PER"]], "PER", None])
def test_one_bad_row_is_refused_with_its_place(bad: Any) -> None:
    table = table_of(*ROWS, {"id": 1, "text": "Ann is here", "label": bad})
    assert "31" in str(refusal(DataError, lambda: understood(table)).where)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("L’été, à 7%", ["L", "’", "été", ",", "à", "7", "%"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("so\u00adft", ["so\u00adft"]),
        ("👩‍⚕️ ok👍🏽!!", ["👩‍⚕️", "ok", "👍🏽", "!", "!"]),
        ("🇩🇪🇫🇷", ["🇩🇪", "🇫🇷"]),
    ],
)
def test_words_of_many_scripts(text: str, words: list[str]) -> None:
    assert [text[begin:end] for begin, end in words_in(text)] == words


# ------------------------------------------------------------------------------ places as given
def entity_rows(before: str, count: Any = len, key: str | None = "text") -> list[dict[str, Any]]:
    """Rows whose places are those of `count`, with each part's text under `key` if there is one."""
    made = []
    for n in range(12):
        name, town = ("Ann", "Berun", "Cyd")[n % 3], ("Rome", "Lund")[n % 2]
        text = f"{before}report {n} of {name} on {town} in the early spring"
        parts = []
        for part, kind in ((name, "PER"), (town, "LOC")):
            begin = text.index(part)
            span = {"start": count(text[:begin]), "end": count(text[:begin] + part), "label": kind}
            parts.append({**span, **({key: part} if key else {})})
        made.append({"text": text, "entities": parts})
    return made


def tagged_words(examples: Dataset) -> list[set[tuple[str, str]]]:
    """The words of entities of each row, with their tags."""
    names = examples.labels.names
    return [
        {(word, names[tag]) for word, tag in zip(row.tokens, row.tags, strict=True) if tag}
        for part in examples.parts.values()
        for row in part
    ]


def tags_of(rows: list[dict[str, Any]]) -> list[set[tuple[str, str]]]:
    return tagged_words(understood(table_of(*rows))[1])


RIGHT = tags_of(entity_rows("", key=None))


@pytest.mark.parametrize(
    "before",
    [
        "\x1b\x1b ",
        "\x7f \x01\x0e",
        "a\x00b ",
        "\v\f ",
        "\r\n\r\n",
        "\U0001f600 ",
        "\ufeff",
        "\u200b\u200b ",
        "e\u0301 ",
        "   ",
        "\x85\x9c ",
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "raw.jsonl", "a.json", "a.csv", "a.parquet"])
def test_places_count_the_text_as_given(before: str, name: str, tmp_path: Path) -> None:
    rows = entity_rows(before, key=None)
    path = tmp_path / name
    if name == "a.csv":
        cells = [["text", "entities"], *([r["text"], json.dumps(r["entities"])] for r in rows)]
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\r\n").writerows(cells)
    elif name == "a.parquet":
        write_parquet(path, rows)
    elif name == "a.json":
        write(path, json.dumps(rows))
    else:
        lines = "\n".join(json.dumps(row, ensure_ascii=name == "a.jsonl") for row in rows)
        # Raw: control characters without escapes.
        write(path, lines if name == "a.jsonl" else lines.replace("\\u001b", "\x1b"))
    made = prepare(path, read=how_read("on_nul=strip"))
    assert sorted(map(sorted, tagged_words(made))) == sorted(map(sorted, RIGHT))
    assert all(row.widened == 0 for row in made.parts["train"])


OTHER_COUNTS = {
    "UTF-16": ("\U0001f600 ", lambda text: len(text.encode("utf-16-le")) // 2),
    "bytes": ("éé ", lambda text: len(text.encode())),
    "LF for CRLF": ("a\r\n", lambda text: len(text.replace("\r\n", "\n"))),
    "CRLF for LF": ("a\nb\n", lambda text: len(text.replace("\n", "\r\n"))),
    "without the blanks": ("  ", lambda text: len(text.lstrip())),
    "without control characters": ("\x1b ", lambda text: len(text.replace("\x1b", ""))),
    "NFC": ("e\u0301 ", lambda text: len(unicodedata.normalize("NFC", text))),
    "Unicode form": ("\u0958 ", lambda text: len(unicodedata.normalize("NFD", text))),
    "from 1": ("", lambda text: len(text) + 1),
    "stands at": ("", lambda text: len(text) + 2),
}


@pytest.mark.parametrize("key", ["text", "word", "surface_form", "mention", "value"])
@pytest.mark.parametrize("cause", OTHER_COUNTS)
def test_a_part_that_brings_its_text_must_have_it_there(cause: str, key: str) -> None:
    before, count = OTHER_COUNTS[cause]
    bad, right = entity_rows(before, count, key), {"text": "Nobody", "entities": []}
    tables = table_of(*bad), table_of(*bad, right)
    advice = [str(refusal(DataError, lambda t=table: understood(t)).do) for table in tables]
    assert all(cause in text for text in advice)
    assert ["on_bad=skip" in text for text in advice] == [False, True], "some row is left"
    assert tags_of(entity_rows(before, key=key)) == RIGHT, "the control"


def test_a_parts_own_text_may_be_written_otherwise() -> None:
    text = "Zoë  Lee met Bob"
    for own in ("zoe lee", "Zoë Lee ", "zoe ##lee", "ZOË  LEE"):
        found = tag_words(text, [{"start": 0, "end": 8, "label": "PER", "word": own}], "")
        assert found.tags[:2] == ("B-PER", "I-PER")
    # The text under the name of a kind.
    part = {"start": 0, "end": 8, "entity": "Zoë  Lee", "type": "PER"}
    assert tag_words(text, [part], "").tags[0] == "B-PER"
    part = {"start": 9, "end": 11, "label": "PER", "text": "met"}
    error = refusal(DataError, lambda: tag_words(text, [part], "a.jsonl, line 1"))
    assert "last character" in str(error.do)


@pytest.mark.parametrize("cause", ["UTF-16", "bytes", "LF for CRLF"])
def test_places_in_another_counting_are_noticed_without_the_parts_texts(cause: str) -> None:
    before, count = OTHER_COUNTS[cause]
    table = table_of(*entity_rows(before, count, None))
    assert "12 rows" in str(refusal(DataError, lambda: understood(table)).found)
    assert tags_of(entity_rows(before, key=None)) == RIGHT, "the control"


def test_parts_of_words_are_counted_and_no_sign_of_another_counting() -> None:
    rows = [{"text": f"Annas Büch {n}", "entities": [[0, 3, "PER"], [6, 8, "X"]]} for n in range(9)]
    assert understood(table_of(*rows))[1].parts["all"][0].widened == 2
