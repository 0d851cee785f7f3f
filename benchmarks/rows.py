"""Token arrays in memory as a row source, for benchmarks that need no tokenizer and no disk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskwright.text.store.rows import Rows, best_fit, spread


class FixedRows:
    """Rows that are there already."""

    def __init__(self, rows: Rows) -> None:
        self.all = rows
        self.length = rows.tokens.shape[1]
        self.fingerprint = "benchmark"
        self.description = f"{len(rows):,} rows in memory"

    def __len__(self) -> int:
        return len(self.all)

    def rows(self, indices: np.ndarray, epoch: int) -> Rows:
        return self.all.take(indices)


def packed(documents: Sequence[np.ndarray], length: int, *, special: int = 5) -> FixedRows:
    """Framed documents best-fit into rows of `length`, positions restarting; ids below `special`
    are never masked and 0 is padding."""
    sizes = np.array([len(d) for d in documents])
    row = best_fit(sizes, length)
    order = np.argsort(row, kind="stable")
    tokens = np.zeros((int(row.max()) + 1, length), dtype=np.int64)
    numbers = np.zeros(tokens.shape, dtype=np.int32)
    positions = np.zeros(tokens.shape, dtype=np.int64)
    ends = np.cumsum(sizes[order])
    starts = ends - sizes[order]
    first = np.zeros(len(tokens), dtype=np.int64)
    begins = np.r_[True, row[order][1:] != row[order][:-1]]
    first[row[order][begins]] = starts[begins]
    number = (
        np.arange(len(order))
        - np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
        + 1
    )
    at = np.repeat(starts - first[row[order]], sizes[order]) + spread(sizes[order])
    lines = np.repeat(row[order], sizes[order])
    tokens[lines, at] = np.concatenate([documents[i] for i in order])
    numbers[lines, at] = np.repeat(number, sizes[order])
    positions[lines, at] = spread(sizes[order])
    return FixedRows(
        Rows(
            tokens=tokens,
            positions=positions,
            documents=numbers,
            special=tokens < special,
            starts_word=tokens >= special,
            ids=np.arange(len(tokens)),
        )
    )
