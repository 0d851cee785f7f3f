"""Strict JSON parser for rows, configs, headers and tokenizer files.

Besides syntax errors it refuses nesting deeper than 64 (which would exhaust Python's stack), NaN
and infinities in any spelling, integers of thousands of digits, and duplicate names in an object
(of which Python would keep the last). The checks are cheap on ordinary rows: depth is only checked
if there are many brackets. The caller chooses the class of the errors.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

from maskwright.base.errors import DataError, MaskwrightError

MAX_DEPTH = 64
# Strings (closed or not), whose brackets do not count, and brackets.
BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|([\[{])|([\]}])', re.DOTALL)

BETWEEN = re.compile(r"[\s,]*")

# Escapes of surrogates.
HALF = re.compile(r"\\u[dD][89a-fA-F]")

Refusal = Callable[..., MaskwrightError]
"""One of the classes in `errors`, or a function with their arguments."""


def parse(text: str, where: object = "", *, error: Refusal = DataError, many: bool = False) -> Any:
    """Parse a JSON value.

    Args:
        where: the source of `text`, for errors; line and column are added if known.
        error: the class of errors.
        many: return a list of values that are separated by white space or commas.

    Raises:
        error: not JSON, or refused as described above.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(text, where, error)
    try:
        return _values(text) if many else DECODER.decode(text)
    except json.JSONDecodeError as fault:
        position = fault.pos
        raise error(
            "not JSON",
            where=_place(where, text, position),
            found=f"{fault.msg[:1].lower()}{fault.msg[1:].removesuffix(' at')} at "
            + (repr(text[position : position + 40]) if position < len(text) else "the end"),
            wanted="JSON",
        ) from None
    except _TrapError as trap:
        raise error(trap.what, where=where or None, found=trap.found, wanted=trap.wanted) from None
    except ValueError:
        # Of int(), for more digits than the interpreter allows.
        raise error(
            "a number out of range",
            where=where or None,
            found="a whole number of thousands of digits",
            wanted="numbers a computer can hold",
        ) from None


def _values(text: str) -> list[Any]:
    values, position = [], 0
    while (position := BETWEEN.match(text, position).end()) < len(text):  # type: ignore[union-attr]
        value, position = DECODER.raw_decode(text, position)
        values.append(value)
    return values


def parse_object(
    data: bytes | bytearray, where: object, *, error: Refusal, largest: int
) -> dict[str, Any]:
    """Parse the content of a file, a JSON object of at most `largest` bytes in UTF-8.

    Raises:
        error: too large, not UTF-8, not JSON, refused as described above, not an object, or with a
            text that cannot be encoded.
    """
    if len(data) > largest:
        raise error(
            "too large a file",
            where=where,
            found=f"{len(data):,} bytes",
            wanted=f"at most {largest:,}",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise error(
            "not UTF-8",
            where=f"{where}, byte {fault.start}",
            found=repr(bytes(data[fault.start : fault.end])),
            wanted="JSON in UTF-8",
        ) from None
    value = parse(text, where, error=error)
    if not isinstance(value, dict):
        raise error("not a JSON object", where=where, found=type(value).__name__)
    if HALF.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as fault:
            raise error(
                "half of a surrogate pair, which is no character",
                where=where,
                found=ascii(fault.object[fault.start : fault.start + 1]),
                wanted="text that can be written as UTF-8",
            ) from None
    return value


def _place(where: object, text: str, position: int) -> str:
    """Return `where` with the column of `position`, and its line if there are several."""
    line, start = text.count("\n", 0, position) + 1, text.rfind("\n", 0, position) + 1
    steps = [str(where)] if where else []
    if "\n" in text:
        steps.append(f"line {line}")
    return ", ".join([*steps, f"column {position - start + 1}"])


class _TrapError(ValueError):
    """Raised by hooks of the decoder and converted by `parse`."""

    def __init__(self, what: str, found: str, wanted: str) -> None:
        super().__init__(what)
        self.what, self.found, self.wanted = what, found, wanted


def _check_depth(text: str, where: object, error: Refusal) -> None:
    depth = 0
    for match in BRACKETS.finditer(text):
        if match[1]:
            depth += 1
        elif match[2]:
            depth -= 1
        if depth > MAX_DEPTH:
            raise error(
                "JSON nested too deeply",
                where=_place(where, text, match.start()),
                found=f"more than {MAX_DEPTH} levels",
                wanted=f"at most {MAX_DEPTH} levels",
            )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
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
