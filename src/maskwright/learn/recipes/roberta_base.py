"""RoBERTa-base as it was published: masks drawn anew every time, whole rows, no sentence pairs.

Batches of 8,192 rows of 512 tokens, 500,000 steps, peak rate 6e-4 after 24,000 of warm-up, then
linear; gradients are not clipped (Liu et al. 2019, table 9).
"""

from __future__ import annotations

from dataclasses import replace

from maskwright.base.budget import Budget
from maskwright.learn.recipes import bert_base
from maskwright.learn.recipes.base.recipe import FamilyModel, ObjectiveChoice, Recipe, RowChoice
from maskwright.learn.train.optimizers.settings import AdamW
from maskwright.learn.train.schedule import Schedule
from maskwright.text.tokenizer.training.train import TokenizerChoice


def recipe() -> Recipe:
    base = bert_base.recipe()
    return replace(
        base,
        name="roberta-base",
        note="RoBERTa-base as published: masked modelling on packed rows of 512",
        tokenizer=TokenizerChoice(kind="byte-bpe", vocabulary=50_265, style="roberta"),
        model=FamilyModel(
            family="roberta", architecture="RobertaForMaskedLM", size="base", settings={}
        ),
        objective=ObjectiveChoice(name="masked", options={}),
        rows=RowChoice(length=512),
        training=replace(
            base.training,
            phases=(),
            budget=Budget(steps=500_000),
            batch=8_192,
            microbatches=1_024,
            optimizer=AdamW(learning_rate=6e-4, beta2=0.98, clip=0.0),
            schedule=Schedule(kind="linear", warmup=24_000 / 500_000),
        ),
    )
