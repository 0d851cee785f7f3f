"""T5-base, version 1.0: t5-small, larger."""

from __future__ import annotations

from dataclasses import replace

from maskwright.learn.recipes import t5_small
from maskwright.learn.recipes.base.recipe import FamilyModel, Recipe


def recipe() -> Recipe:
    other = t5_small.recipe()
    assert isinstance(other.model, FamilyModel)
    return replace(
        other,
        name="t5-base",
        note="T5-base v1.0: span corruption, trained by Adafactor",
        model=replace(other.model, size="base"),
    )
