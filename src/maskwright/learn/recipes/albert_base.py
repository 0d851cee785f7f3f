"""ALBERT-base, first version: one layer's weights for all, n-gram masks and the order of sentences.

Batches of 4,096 pairs of 512 tokens, 125,000 steps, warm-up of 3,125, then linear, dropout 0.1
(Lan et al. 2019, A; the second version, without dropout, does not say its batch), by LAMB at
1.76e-3 without bias correction (google-research/albert, lamb_optimizer.py). As published.
"""

from __future__ import annotations

from dataclasses import replace

from maskwright.base.budget import Budget
from maskwright.learn.recipes import bert_base
from maskwright.learn.recipes.base.recipe import FamilyModel, ObjectiveChoice, Recipe, RowChoice
from maskwright.learn.train.optimizers.settings import Lamb
from maskwright.learn.train.schedule import Schedule
from maskwright.text.tokenizer.training.train import TokenizerChoice


def recipe() -> Recipe:
    base = bert_base.recipe()
    return replace(
        base,
        name="albert-base",
        note="ALBERT-base: n-gram masks and sentence order, trained by LAMB",
        tokenizer=TokenizerChoice(kind="unigram", vocabulary=30_000, lowercase=True),
        model=FamilyModel(
            family="albert", architecture="AlbertForPreTraining", size="base-v1", settings={}
        ),
        objective=ObjectiveChoice(name="sentence-order", options={}),
        rows=RowChoice(length=512),
        training=replace(
            base.training,
            phases=(),
            budget=Budget(steps=125_000),
            batch=4_096,
            microbatches=512,
            optimizer=Lamb(learning_rate=1.76e-3, bias_correction=False),
            schedule=Schedule(kind="linear", warmup=3_125 / 125_000),
        ),
    )
