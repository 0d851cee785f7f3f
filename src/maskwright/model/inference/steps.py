"""Work that can be interrupted between its steps."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
# A generator that pauses after each step and returns the result at the end.
Steps = Generator[None, None, T]


def finished(steps: Steps[T]) -> T:
    """Run all steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
