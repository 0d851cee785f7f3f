"""Texts with marked parts: the tags of their words, what is refused, and which tables they are."""

from __future__ import annotations

import csv
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import loaded, refusal, table_of, understood, write, write_parquet, write_rows
from maskwright.base.errors import DataError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.marked_text import are_marked_spans, tag_words, words_in
from maskwright.text.tables.prepare import prepare

TEXT = "Ann Lee, of New York."


def tags(*parts: Any, text: str = TEXT) -> dict[str, str]:
    found = tag_words(text, list(parts), "a.jsonl, line 1")
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


def test_what_a_list_of_parts_is() -> None:
    assert are_marked_spans([[0, 3, "PER"]]) and are_marked_spans(
        [{"begin": 0, "end": 3, "type": "PER"}]
    )
    for value in (
        [],
        [0, 3, "PER"],
        [[0, 3]],
        [[0, 3, ""]],
        "[[0, 3, 'PER']]",
        [["a", 1, "b"]],
        [{"text": "Ann", "answer_start": 0}],
    ):
        assert not are_marked_spans(value)


def rows(count: int) -> list[dict[str, Any]]:
    each = [
        {"id": 7, "text": "Ann is here", "label": [[0, 3, "PER"]]},
        {"id": 8, "text": "nobody is in Rome", "label": [[13, 17, "LOC"]]},
        {"id": 9, "text": "nobody at all", "label": []},
    ]
    return each * count


def test_a_table_of_them_is_tagging(tmp_path: Path) -> None:
    task, examples = understood(table_of(*rows(10)))
    assert task.name == "tagging" and "marked" in task.why
    assert task.columns.roles == {"tokens": ("text",), "tags": ("label",)}
    assert examples.labels is not None and set(examples.labels.names) == {"O", "B-LOC", "B-PER"}
    first = examples.parts["all"][1]
    assert first.tokens == ("nobody", "is", "in", "Rome") and first.text == "nobody is in Rome"
    assert [examples.labels.names[n] for n in first.tags] == ["O", "O", "O", "B-LOC"]
    # As cells of a csv, and from a file.
    cells = "".join(f'{r["text"]},"{r["label"]}"\n' for r in rows(10))
    for path in (
        write(tmp_path / "a.csv", "text,entities\n" + cells),
        write_rows(tmp_path / "a.jsonl", rows(10)),
    ):
        assert [e.tags for e in loaded(path).parts["all"]] == [
            e.tags for e in examples.parts["all"]
        ]


def test_one_bad_row_is_refused_with_its_place() -> None:
    for bad in ([[0, 30, "PER"]], [[0, "3", "PER"]], "PER", None):
        some = [*rows(10), {"id": 1, "text": "Ann is here", "label": bad}]
        error = refusal(DataError, lambda some=some: understood(table_of(*some)))  # type: ignore[misc]
        assert "31" in str(error.where)


def test_words_of_many_scripts() -> None:
    for text, wanted in (
        ("L’été, à 7%", ["L", "’", "été", ",", "à", "7", "%"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("so\u00adft", ["so\u00adft"]),
        ("👩‍⚕️ ok👍🏽!!", ["👩‍⚕️", "ok", "👍🏽", "!", "!"]),
        ("🇩🇪🇫🇷", ["🇩🇪", "🇫🇷"]),
    ):
        assert [text[begin:end] for begin, end in words_in(text)] == wanted


# ------------------------------------------------------------------------------ places as given
def entity_rows(before: str, count: Any = len, own: str | None = "text") -> list[dict[str, Any]]:
    """Rows whose places are those of `count`, with each part's text if it is to have it."""
    made = []
    for n in range(12):
        name, town = ("Ann", "Berun", "Cyd")[n % 3], ("Rome", "Lund")[n % 2]
        text = f"{before}report {n} of {name} on {town} in the early spring"
        parts = []
        for part, kind in ((name, "PER"), (town, "LOC")):
            begin = text.index(part)
            span = {"start": count(text[:begin]), "end": count(text[:begin] + part), "label": kind}
            parts.append({**span, **({own: part} if own else {})})
        made.append({"text": text, "entities": parts})
    return made


def told(rows: list[dict[str, Any]]) -> list[set[tuple[str, str]]]:
    task, made = understood(table_of(*rows))
    assert task.name == "tagging" and made.labels is not None
    return [
        {
            (word, made.labels.names[tag])
            for word, tag in zip(row.tokens, row.tags, strict=True)
            if tag
        }
        for row in made.parts["all"]
    ]


RIGHT = told(entity_rows("", own=None))


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
    rows = entity_rows(before, own=None)
    path = tmp_path / name
    if name == "a.csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\r\n").writerows(
                [["text", "entities"], *([r["text"], json.dumps(r["entities"])] for r in rows)]
            )
    elif name == "a.parquet":
        write_parquet(path, rows)
    elif name == "raw.jsonl":  # control characters without escapes
        raw = (json.dumps(row, ensure_ascii=False) for row in rows)
        write(path, "\n".join(line.replace("\\u001b", "\x1b") for line in raw))
    else:
        write(path, json.dumps(rows) if name == "a.json" else "\n".join(map(json.dumps, rows)))
    made = prepare(path, reading=ReadingOptions(on_nul="strip"))
    assert made.labels is not None
    found = [
        {
            (word, made.labels.names[tag])
            for word, tag in zip(row.tokens, row.tags, strict=True)
            if tag
        }
        for row in made.parts["train"]
    ]
    assert found and all(each in RIGHT for each in found)
    assert all(row.widened == 0 for row in made.parts["train"])


@pytest.mark.parametrize("own", ["text", "word", "surface_form", "mention", "value"])
@pytest.mark.parametrize(
    ("before", "count", "cause"),
    [
        ("\U0001f600 ", lambda text: len(text.encode("utf-16-le")) // 2, "UTF-16"),
        ("é ", lambda text: len(text.encode()), "bytes"),
        ("a\r\n", lambda text: len(text.replace("\r\n", "\n")), "LF for CRLF"),
        ("a\nb\n", lambda text: len(text.replace("\n", "\r\n")), "CRLF for LF"),
        ("  ", lambda text: len(text.lstrip()), "without the blanks"),
        ("\x1b ", lambda text: len(text.replace("\x1b", "")), "without control characters"),
        ("e\u0301 ", lambda text: len(unicodedata.normalize("NFC", text)), "NFC"),
        ("\u0958 ", lambda text: len(unicodedata.normalize("NFD", text)), "Unicode form"),
        ("", lambda text: len(text) + 1, "from 1"),
        ("", lambda text: len(text) + 2, "stands at"),
    ],
)
def test_a_part_that_brings_its_text_must_have_it_there(
    before: str, count: Any, cause: str, own: str
) -> None:
    rows = entity_rows(before, count, own)
    error = refusal(DataError, lambda: understood(table_of(*rows)))
    assert cause in str(error.do) and "on_bad=skip" in str(error.do)
    assert told(entity_rows(before, own=own)) == RIGHT, "the control"


def test_a_parts_own_text_may_be_written_otherwise() -> None:
    text = "Zoë  Lee met Bob"
    for own in ("zoe lee", "Zoë Lee ", "zoe ##lee", "ZOË  LEE"):
        found = tag_words(text, [{"start": 0, "end": 8, "label": "PER", "word": own}], "")
        assert found.tags[:2] == ("B-PER", "I-PER")
    # Another name of the thing, as Rasa has it, and the text under the name of a kind.
    for part in ({"value": "the chief", "entity": "PER"}, {"entity": "Zoë  Lee", "type": "PER"}):
        assert tag_words(text, [{"start": 0, "end": 8, **part}], "").tags[0] == "B-PER"
    part = {"start": 9, "end": 11, "label": "PER", "text": "met"}
    error = refusal(DataError, lambda: tag_words(text, [part], "a.jsonl, line 1"))
    assert "last character" in str(error.do)


def test_places_in_another_counting_are_noticed_without_the_parts_texts() -> None:
    for before, count in (
        ("\U0001f600 ", lambda text: len(text.encode("utf-16-le")) // 2),
        ("éé ", lambda text: len(text.encode())),
        ("a\r\n", lambda text: len(text.replace("\r\n", "\n"))),
    ):
        rows = entity_rows(before, count, None)
        error = refusal(DataError, lambda rows=rows: understood(table_of(*rows)))
        assert "12 rows" in str(error.found)
        assert told(entity_rows(before, own=None)) == RIGHT, "the control"
    # The control: parts of words stay what they are, which is counted.
    some = [{"text": f"Annas Büch {n}", "entities": [[0, 3, "PER"], [6, 8, "X"]]} for n in range(9)]
    assert understood(table_of(*some))[1].parts["all"][0].widened == 2
