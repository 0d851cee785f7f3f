"""T5-small, version 1.1: gated, nothing tied, no dropout, and no tasks among the text (Shazeer
2020; google-research/text-to-text-transfer-transformer, released_checkpoints.md).
"""

from __future__ import annotations

from dataclasses import replace

from maskwright.learn.recipes import t5_small
from maskwright.learn.recipes.base.recipe import FamilyModel, Recipe


def recipe() -> Recipe:
    other = t5_small.recipe()
    assert isinstance(other.model, FamilyModel)
    return replace(
        other,
        name="t5-v1-1-small",
        note="T5-small v1.1: span corruption, trained by Adafactor",
        model=replace(
            other.model, size="v1.1-small", settings={**other.model.settings, "dropout_rate": 0.0}
        ),
    )
