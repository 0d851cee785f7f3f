"""BERT-base as it was published: masked modelling plus next-sentence prediction, dropout 0.1.

Batch 256, 1,000,000 steps, peak rate 1e-4 after 10,000 steps of warm-up, then linear; Adam
without bias correction (Devlin et al. 2018, A.2; google-research/bert, optimization.py). Rows of
128 tokens for nine tenths of the steps, then of 512, so that all positions are learned (A.2).
"""

from __future__ import annotations

from maskwright.base.budget import Budget
from maskwright.learn.recipes.base.recipe import (
    Checkpoints,
    Corpus,
    Evaluation,
    FamilyModel,
    ObjectiveChoice,
    Recipe,
    RowChoice,
    Training,
)
from maskwright.learn.train.optimizers.settings import AdamW
from maskwright.learn.train.schedule import Phase, Schedule
from maskwright.text.tokenizer.training.train import TokenizerChoice


def recipe() -> Recipe:
    return Recipe(
        name="bert-base",
        note="BERT-base as published: masked modelling and next-sentence prediction",
        corpus=Corpus(),
        tokenizer=TokenizerChoice(kind="wordpiece", vocabulary=30_522, lowercase=True),
        model=FamilyModel(
            family="bert", architecture="BertForPreTraining", size="base", settings={}
        ),
        objective=ObjectiveChoice(name="sentence-pair", options={}),
        rows=RowChoice(length=512),
        training=Training(
            budget=Budget(steps=1_000_000),
            batch=256,
            phases=(Phase(until=0.9, length=128, batch=256),),
            microbatches=8,
            optimizer=AdamW(learning_rate=1e-4, bias_correction=False),
            schedule=Schedule(kind="linear", warmup=0.01),
        ),
        evaluation=Evaluation(every=1_000),
        checkpoints=Checkpoints(every=1_000),
    )
