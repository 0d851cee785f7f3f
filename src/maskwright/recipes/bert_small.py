"""BERT-small (4 layers, width 512; Turc et al. 2019): bert-mini, wider."""

from __future__ import annotations

from dataclasses import replace

from maskwright.recipes import bert_mini
from maskwright.recipes.recipe import FamilyModel, Recipe


def recipe() -> Recipe:
    mini = bert_mini.recipe()
    assert isinstance(mini.model, FamilyModel)
    optimizer = replace(mini.training.optimizer, learning_rate=6e-4)
    return replace(
        mini,
        name="bert-small",
        note="BERT-small on documents of any length, packed; no dropout, no sentence pairs",
        model=replace(mini.model, size="small"),
        training=replace(mini.training, optimizer=optimizer),
    )
