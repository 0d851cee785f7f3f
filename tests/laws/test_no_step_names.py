"""A curation step is one file: outside `steps/` and the default recipe its name stands nowhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import pytest

from laws.source import Found, nodes
from maskwright.base import catalogue

NAMES = set(catalogue.names("curate.steps"))
MODULES = {name.replace("-", "_") for name in NAMES}
# The note of that name, a key of the facts of a measure, and a limit of reading.
OTHERS = {"language", "sample", "limit"}


def step_names(tree: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """(line, what) of each name of a step as a value, and each import of a step's module."""
    for node in tree:
        match node:
            case ast.Constant(value=str() as text) if text in NAMES - OTHERS:
                yield node.lineno, text
            case ast.ImportFrom(module=str() as module) if "curate.steps" in module:
                yield node.lineno, module


def broken(place: str, tree: Sequence[ast.AST]) -> Found:
    """The law of test_source."""
    *folders, name = place.split("/")
    allowed = folders[:2] != ["text", "curate"] or folders[-1] == "steps" or name == "recipe.py"
    return [] if allowed else list(step_names(tree))


@pytest.mark.parametrize(
    "line",
    ['if name == "near-duplicates": pass', "from maskwright.text.curate.steps import html"],
)
def test_a_named_step_is_noticed(line: str) -> None:
    assert broken("text/curate/card_report.py", nodes(line))


def test_every_step_says_what_it_is() -> None:
    for name in NAMES:
        module = catalogue.load("curate.steps", name)
        assert module.SUMMARY and "\n" not in module.SUMMARY and not module.SUMMARY.endswith(".")
        module.Settings()
