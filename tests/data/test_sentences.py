"""Sentences start where a reader would say so, in time linear in the text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.text.store.tokenize import sentence_starts


def split(text: str) -> list[str]:
    starts = [*sentence_starts(text), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(starts)]


@pytest.mark.parametrize(
    "parts",
    [
        ["One sentence."],
        ["It rains.", " We stay."],
        ["Really?!", " Yes…", " No!"],
        ['He said "Go."', " Then he went."],
        ["(It rained.)", " The end."],
        ["Mr. Smith met Dr. J. Watson at No. 5 in Jan. 1890.", " They spoke."],
        ["Version 3.14 of e.g. this is vs. that.", " Next."],
        ["it goes on. and on.", " But ends."],
        ["A title", "\n\nThen text.", "\n  \n\nMore."],
        ["One line\nof two.", "\nNext."],
        ["終わり。", " 次。"],
        ["Café?", " Été 2020."],
        ["Trailing space.  \n\n"],
        ["   leading."],
        ['End."', ' "Start.'],
        ["5 apples.", " 3 pears."],
    ],
)
def test_by_example(parts: list[str]) -> None:
    assert split("".join(parts)) == parts


def test_sentences_without_spaces() -> None:
    assert split("他来了。我走了！天气很好吗？是的。") == [
        "他来了。",
        "我走了！",
        "天气很好吗？",
        "是的。",
    ]
    assert split("「はい。」そうです。") == ["「はい。」", "そうです。"]
    assert split("Yes. 好。 Then.") == ["Yes.", " 好。", " Then."]


@given(st.text(alphabet="aB.!?\n \t\"')(。", max_size=200))
def test_starts_ascend_and_cut_before_white_space(text: str) -> None:
    starts = sentence_starts(text)
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    for start in starts[1:]:
        assert text[start].isspace() or text[start - 1] in "。\"')"
        assert not text[start - 1].isspace()
        assert text[start:].strip()


@pytest.mark.parametrize(
    "unit", [".", "\n", " ", ". ", "A. ", "\n \n", '."', "a", ".\n", "? )", "\n\t", "…", "Mr. "]
)
@pytest.mark.timeout(60)
def test_F66_a_million_characters_of_one_kind(unit: str) -> None:
    """A quadratic rule would take hours here."""
    text = unit * (1_000_000 // len(unit))
    assert len(sentence_starts(text)) <= len(text) // len(unit) + 1
