"""A check returns findings: no other file writes the `note: …` and `warning: …` of a terminal."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from laws.source import Found, nodes

PREFIXES = ("note: ", "warning: ")


def broken(place: str, tree: Sequence[ast.AST]) -> Found:
    """The law of test_source: a string that begins as the line of a finding does."""
    return [
        (node.lineno, node.value)
        for node in tree
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.lower().startswith(PREFIXES)
    ]


def test_the_control_finds_them() -> None:
    code = 'say(f"note: {said}")\nprint("Warning: odd")\nsay("a note: b")'
    assert sorted(line for line, _ in broken("model/opening/open.py", nodes(code))) == [1, 2]
