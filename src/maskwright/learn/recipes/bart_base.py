"""BART-base as it was published: sentences in another order, 30 % of the tokens in spans that
became one mask each (of length 3.5 on average, as released), and the whole text to be written.

Batches of 8,000 rows of 512 tokens, 500,000 steps, peak rate 4e-4 after 10,000 of warm-up, then
linear, gradients clipped at 0.1, dropout 0.1, a tenth of the masks a random token (Lewis et al.
2019, 5.1; facebookresearch/fairseq, issue 1899).
"""

from __future__ import annotations

from dataclasses import replace

from maskwright.base.budget import Budget
from maskwright.learn.recipes import roberta_base
from maskwright.learn.recipes.base.recipe import FamilyModel, ObjectiveChoice, Recipe
from maskwright.learn.train.optimizers.settings import AdamW
from maskwright.learn.train.schedule import Schedule


def recipe() -> Recipe:
    base = roberta_base.recipe()
    return replace(
        base,
        name="bart-base",
        note="BART-base as published: text infilling and sentence permutation",
        model=FamilyModel(
            family="bart",
            architecture="BartForConditionalGeneration",
            size="base",
            settings={},
        ),
        objective=ObjectiveChoice(name="denoising", options={"mean_span": 3.5, "random": 0.1}),
        training=replace(
            base.training,
            budget=Budget(steps=500_000),
            batch=8_000,
            microbatches=1_000,
            optimizer=AdamW(learning_rate=4e-4, clip=0.1),
            schedule=Schedule(kind="linear", warmup=0.02),
        ),
    )
