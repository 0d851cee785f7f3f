"""The package's own source, as the laws read it."""

from __future__ import annotations

import ast
from pathlib import Path

import maskwright

SOURCE = Path(maskwright.__file__).parent


def nodes(code: str) -> list[ast.AST]:
    """All nodes of Python code."""
    return list(ast.walk(ast.parse(code)))
