"""Answers in contexts: whole words, and files of SQuAD."""

from __future__ import annotations

from typing import Any

import pytest

from maskwright.base.errors import DataError
from maskwright.text.tables.formats.json_file import squad_rows
from maskwright.text.tables.marked_text import whole_words


@pytest.mark.parametrize(
    ("context", "cut", "wanted"),
    [
        ("The internationalisation of it", "ternational", "internationalisation"),
        ("in 1990s style", "1990", "1990s"),
        ("it cost $1,200 then", "1,200", "1,200"),  # signs are words of their own
        ("France's king", "France", "France"),
        ("a well-known man", "known", "known"),
        ("наступила осенью 1812", "осен", "осенью"),
        ("cafe\u0301s here", "cafe", "cafe\u0301s"),
        ("中国的首都是北京市。", "北京", "北京"),  # no blanks: not the whole sentence
        ("東京タワーは高い", "東京", "東京"),
        ("กรุงเทพมหานครเป็นเมืองหลวง", "กรุงเทพ", "กรุงเทพ"),
        ("서울에서 만났다", "서울", "서울"),  # endings are written to the word
        ("in 北京Beijing now", "北京", "北京"),
        ("in 北京Beijing now", "Beij", "Beijing"),
        ("x" * 200 + " y", "x" * 100, "x" * 100),  # a hash is no word
        ("one two", "one two", "one two"),
        ("हिन्दी भाषा", "हिन्द", "हिन्दी"),
    ],
)
def test_answers_end_at_words(context: str, cut: str, wanted: str) -> None:
    begin = context.index(cut)
    first, last = whole_words(context, begin, begin + len(cut))
    assert context[first:last] == wanted
    assert whole_words(context, first, last) == (first, last)
    assert whole_words(context, 0, len(context)) == (0, len(context))


# ------------------------------------------------------------------------------ the file
def document(**change: Any) -> dict[str, Any]:
    first = {"id": "1", "question": "who", "answers": [{"text": "Po", "answer_start": 3}]}
    second = {"id": "2", "question": "why", "answers": [], "is_impossible": True}
    paragraph = {"context": "to Po", "qas": [first | change, second]}
    return {"data": [{"title": "T", "paragraphs": [paragraph]}]}


def rows_of(document: Any, where: str = "") -> list[dict[str, Any]]:
    rows = []
    for row in squad_rows(document, where):
        if isinstance(row, DataError):
            raise row
        rows.append(row)
    return rows


def test_a_file_by_hand() -> None:
    one, two = rows_of(document())
    assert one == {
        "id": "1",
        "title": "T",
        "context": "to Po",
        "question": "who",
        "answers": {"text": ["Po"], "answer_start": [3]},
    }
    assert two["answers"] == {"text": [], "answer_start": []}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": [{"text": "Po", "answer_start": "3"}]}, "a whole number"),
        ({"answers": [{"text": "Po", "answer_start": True}]}, "a whole number"),
        ({"answers": [{"text": "Po"}]}, '"answer_start"'),
        ({"answers": {"text": ["Po"]}}, '"answer_start"'),
        ({"answers": 3}, "a list"),
        ({"answers": {"text": ["Po", "to"], "answer_start": [3]}}, "a list"),
        ({"answers": ["Po"]}, '"text"'),
        ({"is_impossible": True}, "do not agree"),
        ({"answers": [], "is_impossible": False}, "do not agree"),
        ({"id": "2"}, "same id"),
        ({"question": None}, "a text"),
    ],
)
def test_faults_of_a_file_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match="article 1, paragraph 1") as refused:
        list(rows_of(document(**change), "dev.json"))
    assert message in str(refused.value)


@pytest.mark.parametrize("bad", [{}, [], {"data": {}}, {"data": [{}]}, {"data": [1]}])
def test_other_documents_are_refused(bad: Any) -> None:
    with pytest.raises(DataError):
        list(rows_of(bad, "dev.json"))
