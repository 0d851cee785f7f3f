"""Counts with their nouns (`1 row`, `2,000 rows`), and rounded numbers."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return the number with its noun; `plural` is needed if it is not `noun` with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def rounded(value: float) -> float:
    """Round to six decimals, numbers below 0.1 to six significant digits."""
    return float(f"{value:.6f}" if abs(value) >= 0.1 else f"{value:.6g}")


def decimals(value: float, count: int = 4) -> str:
    """Format with `count` decimals, or with three significant digits if these would be zeros."""
    return f"{value:.3g}" if 0 < abs(value) < 10.0**-count else f"{value:.{count}f}"
