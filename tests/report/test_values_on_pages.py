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
    number,
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


@pytest.mark.parametrize(
    ("prompt", "text", "wanted"),
    [
        ("Return the", "Return the value.", "Return the <mark>value.</mark>"),
        ("a [MASK] file", "a new file", "a <mark>new</mark> file"),
        ("a [MASK].", "a file.", "a <mark>file</mark>."),
        ("[MASK] and [MASK]", "one and two", "<mark>one</mark> and <mark>two</mark>"),
        ("The [MASK]", "the file", "the <mark>file</mark>"),
        ("", "from nothing", "from nothing"),
        ("a [MASK] file of words", "new 4%  old 3%", "new 4%  old 3%"),
        ("same", "same", "same"),
        ("a", "a\nb", "a\n<mark>b</mark>"),
    ],
)
def test_what_the_model_added_is_marked(prompt: str, text: str, wanted: str) -> None:
    assert filled(MARKED, prompt=prompt, text=text) == wanted


def test_long_texts_are_not_compared() -> None:
    assert document.marked("y " * 2000, "x " * 2000) == [("y " * 2000, False)]


@pytest.mark.parametrize(
    ("value", "markup"),
    [
        ({"bytes": 5131000}, "<dt>bytes</dt><dd>5,131,000</dd>"),
        ({"ok": True}, "<dd>yes</dd>"),
        ({"none": None}, "<dd>–</dd>"),
        ({"list": ["a", 1]}, "<dd>a, 1</dd>"),
        ({"in": {"x": 2.5}}, '<dd class="nested"><dl><dt>x</dt><dd>2.5</dd></dl></dd>'),
        ({"files": [f"f{i}" for i in range(50)]}, "<details><summary>50 entries</summary>"),
        ({"hash": "ab" * 32}, f'<code title="{"ab" * 32}">abababababababab…</code>'),
    ],
)
def test_facts(value: object, markup: str) -> None:
    assert markup in facts(value).replace("\n", "")


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


@pytest.mark.parametrize("lines", [{}, {"unigram_loss": None}])
def test_missing_lines_give_no_words(lines: dict[str, None]) -> None:
    assert standing(5.0, lines) == ""


@pytest.mark.parametrize(
    ("write", "value", "words"),
    [
        (count, 0, "0"),
        (count, 0.5, "0.5"),
        (count, 999, "999"),
        (count, 999.7, "1 k"),
        (count, 12_345, "12.3 k"),
        (count, 999_999, "1 M"),
        (count, 2e9, "2 G"),
        (count, math.nan, "–"),
        (count, -1500, "-1.5 k"),
        (duration, 0.4, "0 s"),
        (duration, 59.4, "59 s"),
        (duration, 60, "1 min"),
        (duration, 200, "3 min 20 s"),
        (duration, 7500, "2 h 5 min"),
        (duration, 90_000, "1 d 1 h"),
        (duration, math.nan, "–"),
        (duration, -3, "0 s"),
        (percent, 0.3124, "31.2 %"),
        (percent, 0.000488, "0.049 %"),
        (percent, math.nan, "–"),
        (figure, 4.0801, "4.080"),
        (figure, 1e6, "1 M"),
        (figure, math.inf, "–"),
        (size, 18_100_000, "18.1 MB"),
        (size, 12, "12 bytes"),
    ],
)
def test_numbers_in_words(write: Callable[[float], str], value: float, words: str) -> None:
    assert write(value) == words


def test_the_part_that_predicts_tokens_is_compared() -> None:
    assert token_loss({"loss": 7.0, "parts": {"masked": 6.3, "pair": 0.7}}, RUN) == 6.3
    assert token_loss({"loss": 3.0, "parts": {"something": 1.0}}, RUN) == 3.0
    assert token_loss({"loss": 3.0}, RUN) == 3.0
    assert math.isnan(token_loss({"loss": "3.0", "parts": []}, RUN))


def test_what_is_no_number_is_nan() -> None:
    for value in (None, "1", True, [1]):
        assert math.isnan(number({"x": value}, "x"))
    assert number({"x": 2}, "x") == 2.0
