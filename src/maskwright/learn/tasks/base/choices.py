"""Choices of how texts are encoded and compared: long texts, pooling, and similarities of vectors.
This module does not import torch, so that invalid choices are reported quickly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import UsageError, near
from maskwright.model.nn.config import TextPooling

# The part of a long text that is kept; or its division into pieces, whose scores are averaged or
# maximised ("pieces-…"), whose vectors are averaged or maximised before scoring ("vectors-…"), or
# whose vectors are read by further layers ("hierarchical").
Long = Literal[
    "head",
    "tail",
    "head-and-tail",
    "pieces-mean",
    "pieces-max",
    "vectors-mean",
    "vectors-max",
    "hierarchical",
]
LONG: tuple[Long, ...] = get_args(Long)
# The handling of long texts in prediction: as in training (`Long`, by default the end is cut); in
# windows, if the model was trained with the default; or an error.
LongText = Literal["as_trained", "windows", "refuse"]
LONG_TEXTS: tuple[LongText, ...] = get_args(LongText)
HIERARCHICAL = "hierarchical"
# Poolings by their names for users: the state of [CLS] (for decoders, of the last token), or the
# mean or maximum of all states.
POOLINGS: dict[str, TextPooling] = {"cls": "place", "mean": "mean", "max": "max"}

# The poolings of sentence-transformers, in the order in which it concatenates them.
VECTOR_POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
# Names of further options of embeddings: prefixes of texts by name; the name of the prefix in use;
# number of its tokens that are not pooled; whether texts are lowercased; the similarity of vectors.
PROMPTS, NAME, SKIPPED, LOWER = "prompts", "default_prompt", "prompt_tokens", "lowercase"
COMPARED = "similarity"


def require_choice(value: str, choices: Iterable[str], where: str) -> None:
    """Check that `value` of the setting `where` is one of `choices`.

    Raises:
        UsageError: with similar choices.
    """
    choices = tuple(choices)
    if value not in choices:
        raise UsageError(
            "no such choice", where=where, found=repr(value), wanted=near(str(value), choices)
        )


def require_long_text(long: str) -> None:
    """Check that `long` is a value of `LongText`.

    Raises:
        UsageError: with similar values.
    """
    require_choice(long, LONG_TEXTS, "long")


Vectors = NDArray[np.float64]


def _cosines(a: Vectors, b: Vectors) -> Vectors:
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray(np.clip((a * b).sum(1) / np.where(lengths > 0, lengths, 1.0), -1.0, 1.0))


# By their names in sentence-transformers.
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
