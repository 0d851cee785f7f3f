"""ELECTRA at mini size: four of ELECTRA-small's layers, its generator with one head of four."""

from __future__ import annotations

from maskwright.learn.recipes.base.mini import NO_DROPOUT, SHAPE, mini
from maskwright.learn.recipes.base.recipe import FamilyModel, ObjectiveChoice, Recipe


def recipe() -> Recipe:
    return mini(
        "electra-mini",
        "ELECTRA at mini size: replaced-token detection",
        model=FamilyModel(
            family="electra",
            architecture="ElectraForPreTraining",
            settings={**SHAPE, **NO_DROPOUT, "embedding_size": 128},
        ),
        objective=ObjectiveChoice(name="replaced-token", options={}),
    )
