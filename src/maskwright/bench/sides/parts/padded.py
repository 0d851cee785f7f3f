"""The plain loop around a forward pass: texts sorted by length, `BATCH` of them padded to the
longest. This is what a user of a graph writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.bench.sides.parts.side import Ask

BATCH = 32

Ids = NDArray[np.int64]


def padded_loop(
    encode: Callable[[Sequence[str]], list[list[int]]],
    forward: Callable[[Ids, Ids], Any],
    answer: Callable[[NDArray[Any], Ids], Sequence[Any]],
    pad: int,
) -> Ask:
    """What answers texts.

    Args:
        encode: texts to ids, special tokens among them.
        forward: ids (B, T) and mask (B, T) of ones and zeros to what the graph gives, (B, …).
        answer: what the graph gave, float32, and the mask to an answer for each row.
        pad: the id that fills rows.
    """

    def ask(texts: list[Any]) -> list[Any]:
        rows = encode(texts)
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
        found: list[Any] = [None] * len(rows)
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            ids = np.full((len(part), len(rows[part[-1]])), pad, np.int64)
            mask = np.zeros_like(ids)
            for place, n in enumerate(part):
                ids[place, : len(rows[n])] = rows[n]
                mask[place, : len(rows[n])] = 1
            answers = answer(np.asarray(forward(ids, mask), np.float32), mask)
            for n, each in zip(part, answers, strict=True):
                found[n] = each
        return found

    return ask


def pooled(states: NDArray[np.float32], mask: Ids, pooling: str) -> NDArray[np.float32]:
    """(B, D) of length 1 from the states (B, T, D): the mean, the largest or the first of each
    text."""
    real = mask[..., None].astype(np.float32)
    if pooling == "cls":
        found = states[:, 0]
    elif pooling == "max":
        found = np.where(real > 0, states, -np.inf).max(1)
    else:
        found = (states * real).sum(1) / real.sum(1)
    unit: NDArray[np.float32] = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit
