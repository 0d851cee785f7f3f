"""ELECTRA-base as it was published: a generator of a third of the width, rows of 512 tokens.

Batches of 256, 766,000 steps, peak rate 2e-4 after 10,000 of warm-up, then linear (Clark et al.
2020, table 6).
"""

from __future__ import annotations

from dataclasses import replace

from maskwright.base.budget import Budget
from maskwright.learn.recipes import electra_small
from maskwright.learn.recipes.base.recipe import FamilyModel, ObjectiveChoice, Recipe, RowChoice
from maskwright.learn.train.optimizers.settings import AdamW
from maskwright.learn.train.schedule import Schedule


def recipe() -> Recipe:
    small = electra_small.recipe()
    return replace(
        small,
        name="electra-base",
        note="ELECTRA-base as published: replaced-token detection",
        model=FamilyModel(
            family="electra", architecture="ElectraForPreTraining", size="base", settings={}
        ),
        objective=ObjectiveChoice(name="replaced-token", options={"generator_size": 1 / 3}),
        rows=RowChoice(length=512),
        training=replace(
            small.training,
            budget=Budget(steps=766_000),
            batch=256,
            microbatches=32,
            optimizer=AdamW(learning_rate=2e-4, bias_correction=False),
            schedule=Schedule(kind="linear", warmup=10_000 / 766_000),
        ),
    )
