"""A name is a noun of the field: the house's old words name nothing in these packages."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import maskwright

SOURCE = Path(maskwright.__file__).parent
PACKAGES = ("base", "text", "model", "learn", "ask", "ship", "cli")
NOT_YET = ("model/graph/",)
WORDS = {
    *("asked", "begun", "entrant", "gone", "kit", "odd", "said", "several", "sitting"),
    *("taught", "told", "way", "ways", "_asked", "_begun", "_said", "_told"),
}
TEXT = re.compile(rf"\b({'|'.join(WORDS)})\b")
FILES = [
    file
    for file in sorted(SOURCE.rglob("*.py"))
    if not file.relative_to(SOURCE).as_posix().startswith(NOT_YET)
]


def old_words(code: str) -> Iterator[tuple[int, str]]:
    """Line and word of each such name."""
    if not TEXT.search(code):
        return  # the tokens of a file take ten times as long
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.NAME and token.string in WORDS:
            yield token.start[0], token.string


@pytest.mark.parametrize("package", PACKAGES)
def test_names_are_nouns_of_the_field(package: str) -> None:
    files = [file for file in FILES if file.relative_to(SOURCE).parts[0] == package]
    found = {file.name: list(old_words(file.read_text(encoding="utf-8"))) for file in files}
    assert files and not {name: words for name, words in found.items() if words}


@pytest.mark.parametrize("code", ["told = 1", "def f(way): ...", "x.several", "f(said=2)"])
def test_an_old_word_is_noticed(code: str) -> None:
    assert list(old_words(code))
    assert not list(old_words("'told' # said"))  # the control: text is not a name
