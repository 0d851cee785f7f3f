"""Patterns of module names mean what a regular expression would, and always end."""

from __future__ import annotations

import re
import time

import hypothesis
import pytest
from hypothesis import strategies

from maskwright.model.adapters.base.name_pattern import PatternError, fits

NAMES = [
    "encoder.layer.0.attention.self.query",
    "encoder.layer.11.attention.self.value",
    "transformer.h.1.attn.c_attn",
    "model.layers.3.mlp.up_proj",
    "q",
    "",
    "a.b",
]
PATTERNS = [
    "query",
    "self.query",
    r"self\.query",
    r".*\.(query|value)",
    r".*\.(?:q|v)_proj",
    r"encoder\.layer\.[0-9]+\.attention.*",
    r"layers\.\d+\.mlp\.(up_proj|down_proj)",
    "^query",
    "query$",
    ".*",
    ".+",
    "c_attn|value",
    "(query|value|)",
    r"encoder\.layer\.(0|1)\..*\.query",
    "(a|b)",
    "0",
    "h.1.attn.c_attn",
    "qu*ery",
    r"layer\.1+\.",
]


def meant(pattern: str, name: str) -> bool:
    return re.match(rf"(.*\.)?({pattern})$", name) is not None


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_forms_that_are_read(pattern: str) -> None:
    for name in NAMES:
        assert fits(pattern, name) == meant(pattern, name), name


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(
    strategies.text(alphabet="ab.*+|()\\d$^", max_size=8), strategies.text("ab.1", max_size=8)
)
def test_what_is_read_means_what_re_says(pattern: str, name: str) -> None:
    try:
        found = fits(pattern, name)
    except PatternError:
        return
    assert found == meant(pattern, name)


REFUSED = [
    "(a+)+$",
    "(a|aa)+b",
    "(.*)*x",
    "a{1,9999}",
    "[a-z]+",
    "(?=a)a",
    "(",
    ")",
    "a)",
    "^a|b",
    r"\w+",
    r"\1",
    "a**",
    "a?",
    "(" * 50,
    "a" * 2000,
    "(?P<n>a)",
    "x$y",
]


@pytest.mark.parametrize("pattern", [*REFUSED, "é"])
def test_the_others_are_refused(pattern: str) -> None:
    if pattern == "é":
        assert fits(pattern, "a.é")  # a letter like any other: the control
        return
    with pytest.raises(PatternError):
        fits(pattern, "a" * 40)


def test_what_is_read_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """Many stars are slow for `re`, and not here."""
    begun = time.process_time()
    assert not fits(".*a" * 200 + "b", "a" * 200)
    assert time.process_time() - begun < 20
