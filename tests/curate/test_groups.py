"""Equal numbers are put side by side as a stable sort does it, also where only low bits differ."""

from __future__ import annotations

import numpy as np
import pytest

from maskwright.text.curate.arrays.hashes import group_equal


def _values(size: int, low: bool) -> np.ndarray:
    random = np.random.default_rng(size)
    chosen = random.integers(0, 1 << 63, max(1, size // 3), dtype=np.uint64)
    values = chosen[random.integers(0, len(chosen), size)]
    return values + random.integers(0, 2, size).astype(np.uint64) if low else values


@pytest.mark.parametrize("size", [0, 1, 2, 3, 100, 1000])
@pytest.mark.parametrize("low", [False, True])
def test_groups_are_those_of_a_stable_sort(size: int, low: bool) -> None:
    values = _values(size, low)
    order, opening = group_equal(values)
    assert (order == np.argsort(values, kind="stable")).all()
    ordered = values[order]
    assert opening.tolist() == [n == 0 or ordered[n] != ordered[n - 1] for n in range(size)]


def test_numbers_that_differ_in_low_bits_are_told_apart() -> None:
    """The control: without the second look they would be mixed up."""
    values = np.array([1 << 40 | 1, 1 << 40 | 2, 1 << 40 | 1, 1 << 40 | 2], np.uint64)
    order, opening = group_equal(values)
    assert order.tolist() == [0, 2, 1, 3] and opening.tolist() == [True, False, True, False]
    packed = np.sort(values >> np.uint64(2) << np.uint64(2) | np.arange(4, dtype=np.uint64))
    assert (packed & np.uint64(3)).tolist() == [0, 1, 2, 3]
