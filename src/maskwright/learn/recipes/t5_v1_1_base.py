"""T5-base, version 1.1: t5-v1-1-small, larger."""

from __future__ import annotations

from dataclasses import replace

from maskwright.learn.recipes import t5_v1_1_small
from maskwright.learn.recipes.base.recipe import FamilyModel, Recipe


def recipe() -> Recipe:
    other = t5_v1_1_small.recipe()
    assert isinstance(other.model, FamilyModel)
    return replace(
        other,
        name="t5-v1-1-base",
        note="T5-base v1.1: span corruption, trained by Adafactor",
        model=replace(other.model, size="v1.1-base"),
    )
