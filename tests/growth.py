"""How the cost of a function grows with its input, counted: no clock.

    assert growth(lambda n: run(documents(n)), 100) <= 3

A cost is two numbers: calls of Python and C functions, where a search of a list counts as many as
it is long; and bytes allocated: the peaks between calls, added up, so that a copy of everything for
each item counts even where it is freed at once. A search by `in`, or of a text, is not seen.
What a process makes once (tables, caches) is made by a run before that does not count.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

LIMIT = 3.0
"""The most that doubling one dimension may multiply a cost by; a square comes out as about 4."""
SEARCHES = {"count", "index", "remove", "insert"}


def cost(function: Callable[[], object]) -> tuple[int, int]:
    """Calls, and bytes allocated."""
    calls = allocated = before = 0
    traced_memory, reset_peak = tracemalloc.get_traced_memory, tracemalloc.reset_peak

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls, allocated, before
        calls += 1
        if event == "c_call" and argument.__name__ in SEARCHES:
            searched = argument.__self__
            calls += len(searched) if isinstance(searched, list | tuple) else 0
        now, peak = traced_memory()
        reset_peak()
        if peak > before:
            allocated += peak - before
        before = now

    tracemalloc.start(1)
    try:
        before = traced_memory()[0]
        sys.setprofile(count)
        function()
    finally:
        sys.setprofile(None)
        tracemalloc.stop()
    return calls, allocated


def growth(make: Callable[[int], Callable[[], object]], size: int) -> float:
    """By how much the dearer of both costs grows from `size` to twice as much.

    Args:
        make: prepares an input of a size; what it returns does the work that is counted.
    """
    costs = []
    for n in (size, 2 * size):
        make(n)()
        costs.append(cost(make(n)))
    once, twice = costs
    return max(after / max(1, before) for before, after in zip(once, twice, strict=True))
