"""BERT-mini as BERT was trained: masked modelling and next-sentence prediction on pairs."""

from __future__ import annotations

from dataclasses import replace

from maskwright.learn.recipes import bert_mini
from maskwright.learn.recipes.base.recipe import FamilyModel, ObjectiveChoice, Recipe


def recipe() -> Recipe:
    alone = bert_mini.recipe()
    assert isinstance(alone.model, FamilyModel)
    return replace(
        alone,
        name="bert-nsp-mini",
        note="BERT-mini with next-sentence prediction beside its masks",
        model=replace(alone.model, architecture="BertForPreTraining"),
        objective=ObjectiveChoice(name="sentence-pair", options={}),
    )
