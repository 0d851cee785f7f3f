"""How many of what, as people say it: `1 row`, `2,000 rows`; and numbers in few digits."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """The number with its noun in singular or plural; `plural` where an s does not make it."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def rounded(value: float) -> float:
    """A number with six decimals; a smaller one than 0.1, whatever its unit, with six digits."""
    return float(f"{value:.6f}" if abs(value) >= 0.1 else f"{value:.6g}")


def decimals(value: float, count: int = 4) -> str:
    """A figure with so many decimals; in three digits where these would all be zeros."""
    return f"{value:.3g}" if 0 < abs(value) < 10.0**-count else f"{value:.{count}f}"
