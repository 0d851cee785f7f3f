"""BERT-mini (4 layers, width 256; Turc et al. 2019), masked modelling only, without dropout."""

from __future__ import annotations

from maskwright.learn.recipes.base.mini import LENGTH, NO_DROPOUT, mini
from maskwright.learn.recipes.base.recipe import FamilyModel, ObjectiveChoice, Recipe


def recipe() -> Recipe:
    return mini(
        "bert-mini",
        "BERT-mini on documents of any length, packed; no dropout, no sentence pairs",
        model=FamilyModel(
            family="bert",
            architecture="BertForMaskedLM",
            size="mini",
            settings={**NO_DROPOUT, "max_position_embeddings": LENGTH},
        ),
        objective=ObjectiveChoice(name="masked", options={}),
    )
