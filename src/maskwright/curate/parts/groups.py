"""Equal numbers side by side: a sort that says where each came from, at the cost of a plain one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def grouped(values: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The places of hashes, those of equal ones side by side in their order.

    Returns:
        (N,) the places, and (N,) which of these begin a group of equal values. The groups are in
        the order of their values.
    """
    size = len(values)
    bits = np.uint64(max(1, (size - 1).bit_length()))
    # The highest bits of the hash, and the place in the lowest: numbers alone sort three times as
    # fast as numbers with their places.
    packed = values >> bits << bits | np.arange(size, dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    ordered = values[order]
    opening = np.ones(size, np.bool_)
    opening[1:] = ordered[1:] != ordered[:-1]
    packed >>= bits
    if (opening[1:] & (packed[1:] == packed[:-1])).any():
        # Two hashes that differ in the lowest bits alone.
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        opening[1:] = ordered[1:] != ordered[:-1]
    return order, opening
