"""T5, version 1.1, at mini size: gated, nothing tied."""

from __future__ import annotations

from dataclasses import replace

from maskwright.learn.recipes import t5_mini
from maskwright.learn.recipes.base.recipe import FamilyModel, Recipe


def recipe() -> Recipe:
    first = t5_mini.recipe()
    assert isinstance(first.model, FamilyModel)
    gated = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "d_ff": 512}
    return replace(
        first,
        name="t5-v1-1-mini",
        note="T5 v1.1 at mini size: span corruption",
        model=replace(first.model, settings={**first.model.settings, **gated}),
    )
