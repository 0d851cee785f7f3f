r"""Docstrings out of Python source, some ten times faster than parsing all of it.

A regular expression steps from one triple-quoted string to the next, over comments and other
strings, as Python's own lexer does; a string that stands alone after a colon, or opens the file, is
a docstring, and so is the text in `add_docstr(f, …)` and `add_newdoc(…)`. Only the literal
itself goes to `ast`. The tests compare the result with `ast.get_docstring` over the standard
library.
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Iterator

SKIP = r"""(?:[^"'\#]++|\#[^\n]*+|"(?!"")(?:[^"\\\n]|\\.)*+"|'(?!'')(?:[^'\\\n]|\\.)*+')*+"""
DOUBLE = r'"""(?:[^"\\]++|\\.|"(?!""))*+"""'
SINGLE = r"'''(?:[^'\\]++|\\.|'(?!''))*+'''"
NEXT_TRIPLE = re.compile(f"{SKIP}({DOUBLE}|{SINGLE})", re.DOTALL)
PREFIX = re.compile(r"[A-Za-z]{0,2}\Z")
ADDED = re.compile(r"\badd_?(?:newdoc|docstr)\w*\([^)#]*\Z")
LOOK_BACK = 300


def literals(source: str) -> Iterator[tuple[int, int]]:
    """(start, end) of every triple-quoted string in `source`, without its prefix letters."""
    place = 0
    while '"""' in source or "'''" in source:
        # `match` from a known place, never `search`: a failure must not be tried again further on.
        found = NEXT_TRIPLE.match(source, place)
        if found is None:
            return
        yield found.span(1)
        place = found.end()


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of the docstrings in `source`, without their common indentation."""
    line, counted = 1, 0
    for start, end in literals(source):
        letters = PREFIX.search(source, max(0, start - 2), start)
        begin = start if letters is None else letters.start()
        prefix = source[begin:start].lower()
        if "b" in prefix or "f" in prefix or not _documents(source, begin):
            continue
        body = source[start + 3 : end - 3]
        if "\\" in body and "r" not in prefix:
            body = _unescaped(source[start:end])
        line += source.count("\n", counted, start)
        counted = start
        text = inspect.cleandoc(body)
        if text:
            yield line, text


def _documents(source: str, begin: int) -> bool:
    """Whether the string at `begin` stands where a docstring stands."""
    head = source.rfind("\n", 0, begin) + 1
    if source[head:begin].isspace() or head == begin:
        while head > 0:
            above = source.rfind("\n", 0, head - 1) + 1
            text = source[above : head - 1].strip()
            if text and not text.startswith("#"):
                return text.partition(" #")[0].rstrip().endswith(":") or bool(
                    ADDED.search(source, max(0, begin - LOOK_BACK), begin)
                )
            head = above
        return True
    return bool(ADDED.search(source, max(0, begin - LOOK_BACK), begin))


def _unescaped(literal: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = ast.literal_eval(literal)
        except (SyntaxError, ValueError):
            return ""
    return value if isinstance(value, str) else ""
