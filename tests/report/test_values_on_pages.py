"""Plain values on a page, escaped whatever they hold."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from maskwright.base.errors import Finding
from maskwright.base.report import document
from maskwright.base.report.document import (
    count,
    duration,
    figure,
    percent,
    size,
    standing,
    token_loss,
    with_sentences,
)
from report.runs import RUN

TAGS = re.compile(
    r"</?(?:mark|dl|dt|dd|ul|li|details|summary|code|pre)"
    r"(?: title=\"[0-9a-f]*\"| class=\"nested\")?>"
)
MARKED = (
    "{% for piece, new in text | marked(prompt) %}"
    "{% if new %}<mark>{{ piece | lines }}</mark>{% else %}{{ piece | lines }}{% endif %}"
    "{% endfor %}"
)


def filled(source: str, **values: object) -> str:
    return document._environment(document.TEMPLATES).from_string(source).render(**values)


def facts(value: object) -> str:
    return filled('{% import "parts.html" as parts %}{{ parts.facts(value) }}', value=value)


def test_long_texts_are_not_compared() -> None:
    assert document.marked("y " * 2000, "x " * 2000) == [("y " * 2000, False)]


def test_endless_nesting_ends() -> None:
    value: object = "deep"
    for _ in range(500):
        value = {"in": value}
    assert facts(value).count("<dl>") == 6


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(anything)
def test_no_value_becomes_markup(value: object) -> None:
    left = TAGS.sub("", facts(value))
    assert "<" not in left and ">" not in left
    assert all(c.isprintable() or c == "\n" for c in left)


@given(st.text(), st.text())
def test_no_sample_becomes_markup(prompt: str, text: str) -> None:
    left = TAGS.sub("", filled(MARKED, prompt=prompt, text=text))
    assert "<" not in left
    assert all(c.isprintable() or c in "\n\t" for c in left)
    left.encode("utf-8")
    assert "".join(piece for piece, _ in document.marked(text, prompt)) == text


@given(st.text())
def test_no_name_becomes_markdown(text: str) -> None:
    line = filled("{{ text | lines }}", text=text)
    assert isinstance(document.lines(text), Markup) and "<" not in line
    shown = document.md(text)
    assert re.search(r"(?<!\\)(?:\\\\)*[`<\[|]", shown) is None and shown.isprintable()
    quoted = document.code(text)
    fence = re.match("`+", quoted)
    assert fence is not None and quoted.endswith(fence.group()) and "\n" not in quoted


def test_findings_in_a_record_are_sentences() -> None:
    found = Finding("empty-files", "empty files: a", remedy="remove them")
    record = {"read": {"train": {"notes": [found.to_json(), "of before"], "unknown": {}}}}
    shown = with_sentences(record)["read"]["train"]
    assert shown == {"notes": ["empty files: a; remove them", "of before"], "unknown": {}}
    for other in ({"name": "a", "what": 3}, {"name": "Not one", "what": "b"}, {"name": "a"}):
        assert with_sentences([other]) == [other], "the control"


LINES = {"uniform_loss": 7.6, "unigram_loss": 6.1}


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (12.0, "4.4 nats above the uniform baseline"),
        (7.7, "at the uniform baseline, as before training"),
        (7.0, "0.9 nats above the unigram baseline"),
        (6.24, "at the unigram baseline, which is normal early in training"),
        (5.96, "at the unigram baseline, which is normal early in training"),
        (5.3, "0.8 nats below the unigram baseline"),
        (math.nan, "not a number"),
        (math.inf, "not a number"),
    ],
)
def test_a_loss_is_placed_between_the_lines(loss: float, words: str) -> None:
    assert standing(loss, LINES) == words


def test_a_plateau_late_in_the_run_is_not_called_normal() -> None:
    assert "normal" in standing(6.1, LINES, share=0.4)
    assert "normal" not in standing(6.1, LINES, share=0.6)


@pytest.mark.parametrize(
    ("write", "value", "words"),
    [
        (count, 999.7, "1 k"),
        (count, 12_345, "12.3 k"),
        (count, 999_999, "1 M"),
        (count, math.nan, "–"),
        (duration, 0.4, "0 s"),
        (duration, 200, "3 min 20 s"),
        (duration, 7500, "2 h 5 min"),
        (duration, 90_000, "1 d 1 h"),
        (duration, math.nan, "–"),
        (percent, 0.000488, "0.049 %"),
        (percent, math.nan, "–"),
        (figure, 4.0801, "4.080"),
        (figure, math.inf, "–"),
        (size, 18_100_000, "18.1 MB"),
    ],
)
def test_numbers_in_words(write: Callable[[float], str], value: float, words: str) -> None:
    assert write(value) == words


def test_the_part_that_predicts_tokens_is_compared() -> None:
    assert token_loss({"loss": 7.0, "parts": {"masked": 6.3, "pair": 0.7}}, RUN) == 6.3
    assert token_loss({"loss": 3.0, "parts": {"something": 1.0}}, RUN) == 3.0
    assert token_loss({"loss": 3.0}, RUN) == 3.0
    assert math.isnan(token_loss({"loss": "3.0", "parts": []}, RUN))
