"""ELECTRA-small as it was published: a generator of a quarter of the width fills the holes, the
discriminator finds what is not original.

Batches of 128 rows of 128 tokens, 1,000,000 steps, peak rate 5e-4 after 10,000 of warm-up, then
linear; Adam without bias correction (Clark et al. 2020, table 6; google-research/electra,
configure_pretraining.py).
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
        name="electra-small",
        note="ELECTRA-small as published: replaced-token detection",
        tokenizer=TokenizerChoice(kind="wordpiece", vocabulary=30_522, lowercase=True),
        model=FamilyModel(
            family="electra", architecture="ElectraForPreTraining", size="small", settings={}
        ),
        objective=ObjectiveChoice(name="replaced-token", options={"generator_size": 0.25}),
        rows=RowChoice(length=128),
        training=replace(
            base.training,
            phases=(),
            budget=Budget(steps=1_000_000),
            batch=128,
            microbatches=2,
            optimizer=AdamW(learning_rate=5e-4, bias_correction=False),
            schedule=Schedule(kind="linear", warmup=0.01),
        ),
    )
