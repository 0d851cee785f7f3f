"""Rows of an export, and labels that were chosen in it, until all rows are there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Exported(dict[str, Any]):
    """The values of such a row.

    Attributes:
        left_out: why nothing is to be learned from it; empty where there is something.
        item: the number of its entry in the file, counted from 1; 0 where it is that of the row.
    """

    left_out: str = ""
    item: int = 0


class Chosen(list[Any]):
    """The labels that a row has.

    Attributes:
        among: those that it could have had, where the export lists them.
    """

    def __init__(self, labels: Iterable[Any] = (), among: frozenset[str] | None = None) -> None:
        super().__init__(labels)
        self.among = among
