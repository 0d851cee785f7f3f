"""A check returns findings: no other file writes the `note: …` and `warning: …` of a terminal."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import maskwright

SOURCES = Path(maskwright.__file__).parent
PREFIXES = ("note: ", "warning: ")


def own_lines(text: str) -> Iterator[int]:
    """The lines of source `text` where a string begins as the line of a finding does."""
    for node in ast.walk(ast.parse(text)):
        words = node.value if isinstance(node, ast.Constant) else None
        if isinstance(words, str) and words.lower().startswith(PREFIXES):
            yield node.lineno


def test_only_findings_are_lines_of_findings() -> None:
    found = {
        f"{path.relative_to(SOURCES)}:{line}"
        for path in SOURCES.rglob("*.py")
        for line in own_lines(path.read_text())
    }
    assert not found


def test_the_control_finds_them() -> None:
    assert sorted(own_lines('say(f"note: {said}")\nprint("Warning: odd")\nsay("a note: b")')) == [
        1,
        2,
    ]
