"""BERT-small (4 layers, width 512; Turc et al. 2019): bert-mini, wider, and trained for longer."""

from __future__ import annotations

from dataclasses import replace

from maskwright.base.budget import Budget
from maskwright.learn.recipes import bert_mini
from maskwright.learn.recipes.base.mini import WORDPIECE
from maskwright.learn.recipes.base.recipe import FamilyModel, Recipe
from maskwright.learn.train.optimizers.settings import AdamW


def recipe() -> Recipe:
    mini = bert_mini.recipe()
    assert isinstance(mini.model, FamilyModel)
    return replace(
        mini,
        name="bert-small",
        note="BERT-small on documents of any length, packed; no dropout, no sentence pairs",
        tokenizer=replace(WORDPIECE, vocabulary=16_384),
        model=replace(mini.model, size="small"),
        training=replace(
            mini.training,
            budget=Budget(steps=20_000),
            optimizer=AdamW(learning_rate=6e-4, beta2=0.98),
        ),
    )
