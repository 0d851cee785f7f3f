"""Whole numbers, however they are written."""

from __future__ import annotations

import re

INTEGER = re.compile(r"\s*[-+]?\d{1,4000}\s*")  # Python converts no more digits


def as_integer(value: object) -> int | None:
    """`value` as a whole number, also where a text or a float spells one; else None."""
    if isinstance(value, int):  # also true and false
        return int(value)
    try:
        if isinstance(value, str) and INTEGER.fullmatch(value):
            return int(value)  # a float has not room for all of its digits
        number = float(value) if isinstance(value, str | float) else float("nan")
        return int(number) if number == int(number) else None
    except (ValueError, OverflowError):
        return None
