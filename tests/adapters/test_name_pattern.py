"""Patterns of module names mean what a regular expression would, and always end."""

from __future__ import annotations

import re
import time

import hypothesis
import pytest
from hypothesis import strategies

from maskwright.model.adapters.base.name_pattern import PatternError, fits

NAMES = ["", "q", "a.b", "encoder.layer.0.attention.self.query", "transformer.h.1.attn.c_attn"]
NAMES += ["encoder.layer.11.attention.self.value", "model.layers.3.mlp.up_proj"]
PATTERNS = [
    *("query", "self.query", r"self\.query", "^query", "query$", ".*", ".+", "(a|b)", "0"),
    *(r".*\.(query|value)", r".*\.(?:q|v)_proj", "c_attn|value", "(query|value|)", "qu*ery"),
    *(r"encoder\.layer\.[0-9]+\.attention.*", r"layers\.\d+\.mlp\.(up_proj|down_proj)"),
    *(r"encoder\.layer\.(0|1)\..*\.query", "h.1.attn.c_attn", r"layer\.1+\."),
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
    *("(a+)+$", "(a|aa)+b", "(.*)*x", "a{1,9999}", "[a-z]+", "(?=a)a", "(?P<n>a)", "(", ")", "a)"),
    *("^a|b", r"\w+", r"\1", "a**", "a?", "x$y", "(" * 50, "a" * 2000),
]


@pytest.mark.parametrize("pattern", REFUSED)
def test_the_others_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        fits(pattern, "a" * 40)


def test_a_letter_of_another_alphabet_is_like_any_other() -> None:
    assert fits("é", "a.é") and not fits("é", "a.e")


def test_what_is_read_ends() -> None:
    """Many stars are slow for `re`, and not here."""
    begun = time.process_time()
    assert not fits(".*a" * 200 + "b", "a" * 200)
    assert time.process_time() - begun < 20
