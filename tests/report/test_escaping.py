"""Plain values on a page, escaped whatever they hold."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from maskwright.base.errors import Finding
from maskwright.base.report import document
from maskwright.base.report.document import with_sentences

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


def test_nested_facts() -> None:
    text = facts({"bytes": 5131000, "ok": True, "none": None, "list": ["a", 1], "in": {"x": 2.5}})
    assert "<dt>bytes</dt><dd>5,131,000</dd>" in text
    assert "<dd>yes</dd>" in text
    assert "<dd>–</dd>" in text
    assert "<dd>a, 1</dd>" in text
    assert '<dd class="nested"><dl><dt>x</dt><dd>2.5</dd></dl></dd>' in re.sub(r"\n", "", text)


def test_many_entries_are_folded_and_hashes_shortened() -> None:
    text = facts({"files": [f"f{i}" for i in range(50)], "hash": "ab" * 32})
    assert "<details><summary>50 entries</summary>" in text
    assert f'<code title="{"ab" * 32}">abababababababab…</code>' in text


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
    assert "<" not in left
    assert ">" not in left
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
