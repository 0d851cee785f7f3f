"""JSON without its traps, for rows, configs and requests alike.

Refused beyond what the grammar refuses: nesting deeper than 64 (Python's own reader would run out
of stack), NaN and infinities under any spelling, whole numbers of thousands of digits, and a name
given twice in one object (the last would win in silence). The checks cost little on ordinary rows:
nesting is looked at only where there are many brackets.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from maskwright.errors import DataError

MAX_DEPTH = 64
# Strings (closed, or running to the end) so that brackets inside them do not count.
BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|([\[{])|([\]}])', re.DOTALL)


def parse(text: str, where: str = "") -> Any:
    """The value written in `text`.

    Args:
        text: one JSON value.
        where: the place of `text`, for messages; the column is added where one is known.

    Raises:
        DataError: not JSON, or one of the traps above.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(text, where)
    try:
        return DECODER.decode(text)
    except json.JSONDecodeError as error:
        place = error.pos
        raise DataError(
            "not JSON",
            where=_column(where, place),
            found=f"{error.msg[:1].lower()}{error.msg[1:]} at "
            + (repr(text[place : place + 40]) if place < len(text) else "the end"),
            wanted="JSON",
        ) from None
    except _TrapError as error:
        raise DataError(
            error.what, where=where or None, found=error.found, wanted=error.wanted
        ) from None
    except ValueError:
        # What int() says of a text with more digits than the interpreter allows.
        raise DataError(
            "a number out of range",
            where=where or None,
            found="a whole number of thousands of digits",
            wanted="numbers a computer can hold",
        ) from None


def _column(where: str, place: int) -> str:
    column = f"column {place + 1}"
    return f"{where}, {column}" if where else column


class _TrapError(ValueError):
    """Raised inside the decoder; never leaves this file."""

    def __init__(self, what: str, found: str, wanted: str) -> None:
        super().__init__(what)
        self.what, self.found, self.wanted = what, found, wanted


def _check_depth(text: str, where: str) -> None:
    depth = 0
    for match in BRACKETS.finditer(text):
        if match[1]:
            depth += 1
        elif match[2]:
            depth -= 1
        if depth > MAX_DEPTH:
            raise DataError(
                "JSON nested too deeply",
                where=_column(where, match.start()),
                found=f"more than {MAX_DEPTH} levels",
                wanted=f"at most {MAX_DEPTH} levels",
            )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _TrapError("a name stands twice in one object", repr(twice), "every name once")
    return table


def _constant(name: str) -> NoReturn:
    raise _TrapError("a number that JSON does not have", name, "a finite number, or null")


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _TrapError("a number out of range", digits[:40], "a finite number")
    return value


DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant, parse_float=_float)
