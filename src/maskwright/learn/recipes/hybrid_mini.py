"""`babylm-10m` at mini size: masked and causal on the same weights."""

from __future__ import annotations

from dataclasses import replace

from maskwright.learn.recipes import modernbert_mini
from maskwright.learn.recipes.babylm_10m import EVERY_LAYER_SEES_ALL, HYBRID
from maskwright.learn.recipes.base.recipe import FamilyModel, Recipe


def recipe() -> Recipe:
    masked = modernbert_mini.recipe()
    assert isinstance(masked.model, FamilyModel)
    settings = {**masked.model.settings, **EVERY_LAYER_SEES_ALL}
    return replace(
        masked,
        name="hybrid-mini",
        note="masked and causal on the same weights, at mini size",
        model=replace(masked.model, settings=settings),
        objective=HYBRID,
    )
