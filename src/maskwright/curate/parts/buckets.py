"""Pairs of documents to compare, of those that share a bucket, without squares of large buckets.

In a bucket of at most `SMALL` documents all pairs are compared. In a larger one, whose documents
are all similar (a whole band of their signatures is equal), each is compared with `HUBS` documents
of the bucket, those with the smallest hash of their set, which are the same in every band, and with
its `NEXT` neighbours in the order of the next bands' hashes, where documents that share another
band, too, stand side by side. So the number of pairs grows with the
documents. A pair that goes without comparison here is one of a crowd that the hubs join; or it
shares another, smaller bucket; its documents end in one cluster in all these cases.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SMALL, HUBS, NEXT = 24, 8, 2


def pairs_in_buckets(
    keys: NDArray[np.uint64], documents: NDArray[np.int64], order: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """(P, 2) pairs of documents, the smaller number first; each pair once.

    Args:
        keys: (R,) the bucket of each row.
        documents: (R,) int64 below 2**32; no document twice in a bucket.
        order: (K, R) by which the rows of a bucket are arranged; the last is different for each.
    """
    rows = np.lexsort((*order[::-1], keys))
    keys_given, documents_given = keys, documents
    keys, documents = keys[rows], documents[rows]
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))[: len(keys)]
    sizes = np.diff(np.append(begins, len(keys)))
    found = []
    places = np.arange(len(keys)) - np.repeat(begins, sizes)
    own = np.repeat(sizes, sizes)
    small = own <= SMALL
    for step in range(1, min(SMALL, int(sizes.max(initial=1)))):
        # All pairs of a small bucket; the neighbours in a large one.
        first = np.flatnonzero((places + step < own) & (small | (step <= NEXT)))
        found.append(np.stack([documents[first], documents[first + step]], axis=1))
    large = np.flatnonzero(~small)
    if large.size:
        hubs = np.lexsort((order[-1], keys_given))
        first = np.repeat(begins, sizes)[large]
        for hub in range(HUBS):
            pairs = np.stack([documents[large], documents_given[hubs[first + hub]]], axis=1)
            found.append(pairs[pairs[:, 0] != pairs[:, 1]])
    return unique_pairs(np.concatenate(found)) if found else np.zeros((0, 2), np.int64)


def unique_pairs(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """(P, 2) each pair once, sorted, the smaller number first."""
    low, high = pairs.min(axis=1), pairs.max(axis=1)
    codes = np.unique((low.astype(np.uint64) << np.uint64(32)) | high.astype(np.uint64))
    mask = np.uint64(0xFFFFFFFF)
    return np.stack([codes >> np.uint64(32), codes & mask], axis=1).astype(np.int64)


def components(pairs: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """(count,) the number of each document's connected component."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(len(pairs), np.int8)
    graph = coo_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def portions(
    pairs: NDArray[np.int64], sizes: NDArray[np.int64], limit: int
) -> list[NDArray[np.int64]]:
    """The pairs in portions whose documents together are no larger than about `limit`.

    Documents that are connected stay together as far as they can, so that few portions are needed
    and a document is in few of them.

    Args:
        pairs: (P, 2) of documents, numbers below len(sizes).
        sizes: (D,) of the documents.
    """
    if not len(pairs):
        return []
    used = np.unique(pairs)
    if sizes[used].sum() <= limit:
        return [pairs]
    groups = components(pairs, len(sizes))[used]
    rows = np.lexsort((used, groups))
    used, groups = used[rows], groups[rows]
    own = sizes[used]
    opening = np.concatenate([[True], np.diff(groups) != 0])
    group = np.cumsum(opening) - 1
    group_sizes = np.add.reduceat(own, np.flatnonzero(opening))
    half = max(1, limit // 2)
    small = (group_sizes <= half)[group]
    # Groups that fit lie in blocks of the whole size; of larger ones two half blocks meet.
    before = np.cumsum(np.where(small, own, 0)) - np.where(small, own, 0)
    room = limit - int(group_sizes[group_sizes <= half].max(initial=0))
    blocks = before[opening][group] // room
    before = np.cumsum(np.where(small, 0, own)) - np.where(small, 0, own)
    blocks = np.where(small, blocks, blocks.max() + 1 + before // half)
    block = np.zeros(len(sizes), np.int64)
    block[used] = blocks
    low, high = np.sort(block[pairs], axis=1).T
    codes = low * (block.max() + 1) + high
    order = np.argsort(codes, kind="stable")
    cuts = np.flatnonzero(np.diff(codes[order])) + 1
    found: list[NDArray[np.int64]] = []
    room = 0
    for part in np.split(order, cuts):
        size = int(sizes[np.unique(pairs[part])].sum())
        if found and size <= room:
            found[-1] = np.concatenate([found[-1], pairs[part]])
        else:
            found.append(pairs[part])
            room = limit
        room -= size
    return found
