"""How many of what, as people say it: `1 row`, `2,000 rows`; and numbers in few digits."""

from __future__ import annotations


def counted(number: int, thing: str, things: str | None = None) -> str:
    """The number with its noun in singular or plural; `things` where an s does not make it."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def rounded(value: float) -> float:
    """A number with six decimals; a smaller one than 0.1, whatever its unit, with six digits."""
    return float(f"{value:.6f}" if abs(value) >= 0.1 else f"{value:.6g}")
