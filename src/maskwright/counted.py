"""How many of what, as people say it: `1 row`, `2,000 rows`."""

from __future__ import annotations


def counted(number: int, thing: str, things: str | None = None) -> str:
    """The number with its noun in singular or plural; `things` where an s does not make it."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
