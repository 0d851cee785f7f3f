"""What can be chosen of how texts are read: what becomes of long ones, and how a text becomes one
vector. No torch: a wrong choice is refused before it is loaded."""

from __future__ import annotations

from typing import Literal, get_args

from maskwright.base.errors import UsageError, near
from maskwright.model.nn.config import TextPooling

# What stays of a text, or: all of it in pieces. Each piece is scored, and the scores are averaged
# or the largest taken; or that is done with the vectors of the pieces, and what comes of them is
# scored; or layers over these vectors read them first.
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
# What becomes of a text that is longer than the model reads, when the model is asked: what it was
# trained with (`Long`, of which the usual one cuts the end); windows, unless it was trained with a
# way of its own; or the text is refused.
LongText = Literal["as_trained", "windows", "refuse"]
LONG_TEXTS: tuple[LongText, ...] = get_args(LongText)
HIERARCHICAL = "hierarchical"
# What is read of a text, as users call it: the state of [CLS] (of the last token, of a decoder), or
# something of all states.
POOLINGS: dict[str, TextPooling] = {"cls": "place", "mean": "mean", "max": "max"}

# Those of sentence-transformers, in the order in which it puts them side by side.
VECTOR_POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
# Further options of vectors: what may be put before a text, by name; the name of the one that
# is; how many tokens of it are not pooled; whether texts are put in lower case; how two vectors are
# compared.
PROMPTS, NAME, SKIPPED, LOWER = "prompts", "default_prompt", "prompt_tokens", "lowercase"
COMPARED = "similarity"


def require_long(long: str) -> None:
    """Refuse a way with long texts that there is not.

    Raises:
        UsageError: with the near names.
    """
    if long not in LONG:
        raise UsageError(
            "the handling of long texts is unknown",
            where="--long",
            found=long,
            wanted=near(long, LONG),
        )


def require_long_text(long: str, where: str = "long") -> None:
    """Refuse a way with long texts that there is not when a model is asked.

    Raises:
        UsageError: with the near names.
    """
    if long not in LONG_TEXTS:
        raise UsageError(
            "the handling of long texts is unknown",
            where=where,
            found=repr(long),
            wanted=near(str(long), LONG_TEXTS),
        )


def require_pooling(pooling: str) -> None:
    """Refuse a pooling that there is not.

    Raises:
        UsageError: with the near names.
    """
    if pooling not in POOLINGS:
        raise UsageError(
            "no such pooling", where="--pooling", found=pooling, wanted=near(pooling, POOLINGS)
        )
