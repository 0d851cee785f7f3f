"""Scores of whole texts as classes, the likeliest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.base.counted import rounded
from maskwright.ship.serve.dialects.base.chosen import Chosen
from maskwright.ship.serve.host import Answered

Applied = Literal["sigmoid", "softmax", "none"]


async def scored(
    model: Chosen, rows: Sequence[Any], *, field: str, truncate: bool, raw: bool = False
) -> Answered:
    """(L,) of each text or pair: probabilities, of several labels each by itself; or `raw`.

    Raises:
        Refusal: the model gives no scores of whole texts.
    """
    model.require_scores()
    options = model.options(field, truncate=truncate, raw=raw)
    return await model.host.scores(model.name, rows, options)


def classes(
    labels: Sequence[str], scores: NDArray[np.floating], top: int | None = None
) -> list[dict[str, Any]]:
    """The labels with their scores, the best first."""
    order = np.argsort(-scores, kind="stable")[:top]
    return [{"score": rounded(scores[place]), "label": labels[place]} for place in order]


def applied(logits: NDArray[np.floating], function: Applied) -> NDArray[np.float64]:
    """Scores of logits (L,), of any size without overflow."""
    wide = logits.astype(np.float64)
    if function == "softmax":
        shifted = np.exp(wide - wide.max())
        return np.asarray(shifted / shifted.sum())
    if function == "sigmoid":
        half = np.exp(-np.abs(wide))
        return np.asarray(np.where(wide >= 0, 1.0, half) / (1.0 + half))
    return wide
