"""BERT-mini (4 layers, width 256; Turc et al. 2019), masked modelling only, without dropout."""

from __future__ import annotations

from maskwright.recipes.recipe import (
    Corpus,
    FamilyModel,
    ObjectiveChoice,
    Recipe,
    RowChoice,
    Training,
)
from maskwright.tokenizer.train import TokenizerChoice
from maskwright.train.optimizer import AdamW
from maskwright.train.schedule import Budget, Schedule


def recipe() -> Recipe:
    return Recipe(
        name="bert-mini",
        note="BERT-mini on documents of any length, packed; no dropout, no sentence pairs",
        corpus=Corpus(),
        tokenizer=TokenizerChoice(kind="wordpiece", vocabulary=16_384, lowercase=True),
        model=FamilyModel(
            family="bert",
            architecture="BertForMaskedLM",
            size="mini",
            settings={"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        ),
        objective=ObjectiveChoice(name="masked", options={}),
        rows=RowChoice(length=128),
        training=Training(
            budget=Budget(steps=20_000),
            batch=64,
            optimizer=AdamW(learning_rate=1e-3, beta2=0.98),
            schedule=Schedule(kind="linear", warmup=0.05),
        ),
    )
