"""Texts of a task as framed ids of a bounded length; what had to be cut is counted.

A single text loses its end, its beginning or its middle, or becomes several that overlap; of a pair
the longer text is cut first, as transformers' `longest_first` does. Special tokens always
stay. The cutting itself is `labelled/windows/windows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maskwright.inference.encoded import Examples, framed
from maskwright.labelled.windows.windows import (
    HEAD,
    Cuts,
    Keep,
    Row,
    fit,
    fit_pair,
    fit_pair_windows,
    fit_windows,
    room_of,
)
from maskwright.tokenizer.tokenizer import Tokenizer

Texts = Sequence[tuple[str, ...]]


def encode(
    texts: Texts,
    labels: NDArray[np.int64] | NDArray[np.float32],
    tokenizer: Tokenizer,
    length: int,
    *,
    segments: bool = False,
    keep: Keep = "head",
) -> tuple[Examples, Cuts, NDArray[np.int64]]:
    """Texts, one or two to an example, as `Examples`, what was cut of them, and (N,) how many
    tokens of each.

    Args:
        labels: one row for each of `texts`.
        length: the most ids that an example may have.
        segments: whether the model tells first and second text apart.
        keep: what stays of a single text that is too long; of its head a quarter at most stays
            with "head-and-tail", as the published 128 of 510 places.
    """
    parts = iter(tokenizer.encode_batch([part for row in texts for part in row]))
    rows, cuts = [], Cuts()
    for text in texts:
        first, *second = [next(parts).tolist() for _ in text]
        if second:
            row = fit_pair(tokenizer, first, second[0], length)
        else:
            row = fit(tokenizer, first, length, keep, min(HEAD, length // 4))
        whole = len(first) + sum(map(len, second))
        cuts += Cuts.of(whole, whole - row.cut)
        rows.append(row)
    cut = np.array([row.cut for row in rows], np.int64)
    return examples_of(rows, labels, tokenizer, segments), cuts, cut


def in_windows(
    texts: Texts, tokenizer: Tokenizer, length: int, *, overlap: bool = True
) -> tuple[list[Row], NDArray[np.int64]]:
    """Texts, one or two to an example, as rows of at most `length` ids, several where they are too
    long, and the number of the example that each is of. Of two texts the longer one is in windows.

    Args:
        overlap: windows of one text overlap by half; else each token is in one window.
    """
    parts = iter(tokenizer.encode_batch([part for row in texts for part in row]))
    found = []
    for text in texts:
        first, *second = [next(parts).tolist() for _ in text]
        if second:
            found.append(fit_pair_windows(tokenizer, first, second[0], length))
            continue
        stride = max(1, length // 2 - 2) if overlap else room_of(tokenizer, length)
        found.append(fit_windows(tokenizer, first, length, stride)[0])
    counts = [len(rows) for rows in found]
    return [row for rows in found for row in rows], np.repeat(np.arange(len(found)), counts)


def examples_of(
    rows: Sequence[Row],
    labels: NDArray[np.int64] | NDArray[np.float32],
    tokenizer: Tokenizer,
    segments: bool,
    pieces: NDArray[np.int64] | None = None,
) -> Examples:
    """Framed rows beside their labels; a row of nothing is padding, so that it is one at all. With
    `pieces`, so many rows after each other have one label together."""
    texts = [row.tokens.tolist() or [tokenizer.pad or 0] for row in rows]
    kinds = [row.segments if len(row) else np.zeros(1, np.int64) for row in rows]
    flat = np.concatenate([np.zeros(0, np.int64), *kinds]) if segments else None
    return Examples(framed(texts), labels, flat, pieces=pieces)
