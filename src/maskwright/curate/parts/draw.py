"""Drawing documents by their content: the same choice in any order, cut and number of shards.

A document's number is a hash of its text and of a seed, so equal texts are drawn together where a
share is drawn. Where so many are drawn, equal texts are told apart by a hash of where they stand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maskwright import randomness

# Steps that draw from the same texts must not draw alike: a counter for each.
SAMPLE, LIMIT, BALANCE, PERPLEXITY = range(4)


def draws(texts: Sequence[str], step: int, seed: int) -> NDArray[np.float64]:
    """(B,) numbers in [0, 1) of the texts."""
    keys = randomness.key("curate", step, seed, hashes(texts))
    return randomness.uniforms(np.atleast_1d(keys), 1)[:, 0]


def hashes(texts: Sequence[str]) -> NDArray[np.uint64]:
    """(B,) 64 bits of BLAKE2b of each text."""
    digests = b"".join(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for text in texts
    )
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def within(
    order: NDArray[np.int64],
    sizes: NDArray[np.int64],
    groups: NDArray[np.int64],
    limits: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Which documents are kept when each group is filled in this order until the first document
    with which it would be larger than its limit.

    Args:
        order: (D,) a permutation of the documents.
        sizes: (D,) of each document.
        groups: (D,) of each document, 0 to G - 1.
        limits: (G,) the largest sum of sizes.
    """
    by_group = order[np.argsort(groups[order], kind="stable")]
    running = np.cumsum(sizes[by_group])
    ordered = groups[by_group]
    firsts = np.searchsorted(ordered, np.arange(len(limits)))
    before = np.concatenate([[0], running])[firsts]
    kept = np.zeros(len(sizes), np.bool_)
    kept[by_group] = running - before[ordered] <= limits[ordered]
    return kept
