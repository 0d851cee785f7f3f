"""A curation step is one file: outside `steps/` and the default recipe its name stands nowhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import maskwright
from maskwright import catalogue

ROOM = Path(maskwright.__file__).parent / "curate"
NAMES = set(catalogue.names("curate.steps"))
MODULES = {name.replace("-", "_") for name in NAMES}
# The note of that name, a key of the facts of a measure, and a limit of reading.
OTHERS = {"language", "sample", "limit"}
FILES = [
    file
    for file in sorted(ROOM.rglob("*.py"))
    if file.parent.name != "steps" and file.name != "default.py"
]


def step_names(code: str) -> Iterator[tuple[int, str]]:
    """(line, what) of each name of a step as a value, and each import of a step's module."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Constant(value=str() as text) if text in NAMES - OTHERS:
                yield node.lineno, text
            case ast.ImportFrom(module=str() as module) if "curate.steps" in module:
                yield node.lineno, module


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.parts[-2:]))
def test_no_step_is_named(file: Path) -> None:
    assert list(step_names(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "line",
    ['if name == "near-duplicates": pass', "from maskwright.curate.steps import html"],
)
def test_a_named_step_is_noticed(line: str) -> None:
    assert list(step_names(line))


def test_every_step_says_what_it_is() -> None:
    for name in NAMES:
        module = catalogue.load("curate.steps", name)
        assert module.SUMMARY and "\n" not in module.SUMMARY and not module.SUMMARY.endswith(".")
        module.Settings()
