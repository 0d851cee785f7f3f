"""Texts of a task as framed ids of a bounded length; how many had to be cut is told.

A single text loses its end; of a pair the longer text is cut first, as the reference library's
`longest_first` does, and special tokens always stay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maskwright.finetune.examples import Examples, framed
from maskwright.tokenizer.tokenizer import Tokenizer

Texts = Sequence[tuple[str, ...]]


def encode(
    texts: Texts,
    labels: NDArray[np.int64] | NDArray[np.float32],
    tokenizer: Tokenizer,
    length: int,
    *,
    segments: bool = False,
) -> tuple[Examples, int]:
    """Texts, one or two to an example, as `Examples`, and how many of them were cut.

    Args:
        labels: one row for each of `texts`.
        length: the most ids that an example may have.
        segments: whether the model tells first and second text apart.
    """
    width = len(texts[0]) if texts else 1
    columns = [tokenizer.encode_batch([row[i] for row in texts]) for i in range(width)]
    room = length - len(tokenizer.frame(*[[]] * width)[0])
    rows: list[list[int]] = []
    kinds: list[int] = []
    cut = 0
    for parts in zip(*columns, strict=True):
        kept = _fitting([part.tolist() for part in parts], room)
        cut += sum(map(len, kept)) < sum(map(len, parts))
        ids, segment = tokenizer.frame(*kept)
        rows.append(ids or [tokenizer.pad or 0])
        kinds += segment or [0]
    return Examples(
        framed(rows), labels, np.array(kinds, dtype=np.int64) if segments else None
    ), cut


def _fitting(parts: list[list[int]], room: int) -> list[list[int]]:
    """`parts` cut to `room` ids together, the longer one first."""
    if sum(map(len, parts)) <= room:
        return parts
    if len(parts) == 1:
        return [parts[0][:room]]
    first, second = parts
    kept = min(len(second), max(room // 2, room - len(first)))
    return [first[: room - kept], second[:kept]]
