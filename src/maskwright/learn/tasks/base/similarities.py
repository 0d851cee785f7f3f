"""Similarities of vectors, by their names in sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float64]


def _cosines(a: Vectors, b: Vectors) -> Vectors:
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray(np.clip((a * b).sum(1) / np.where(lengths > 0, lengths, 1.0), -1.0, 1.0))


SIMILARITIES: dict[str, Callable[[Vectors, Vectors], Vectors]] = {
    "cosine": _cosines,
    "dot": lambda a, b: (a * b).sum(1),
    "euclidean": lambda a, b: -np.linalg.norm(a - b, axis=1),
    "manhattan": lambda a, b: -np.abs(a - b).sum(1),
}


def compared(
    similarity: str, first_vectors: NDArray[np.float32], second_vectors: NDArray[np.float32]
) -> Vectors:
    """Return similarities (N,) of vectors (N, D), where one may be (1, D); higher is closer."""
    return SIMILARITIES[similarity](
        first_vectors.astype(np.float64), second_vectors.astype(np.float64)
    )
