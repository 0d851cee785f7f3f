"""DistilBERT as it was published: half of BERT-base's layers, taught by all of them.

The teacher is yours to name (`--set objective.options.teacher=FOLDER`, a model folder or a run),
and its tokenizer with it where it was not trained by this recipe (`--set tokenizer.folder=FOLDER`).
Weights 5, 2 and 1 of the three losses at temperature 2, student and teacher compared at every
position; peak rate 5e-4 after 5 % of warm-up, then linear, second moments of 0.98, gradients
clipped at 5 (Sanh et al. 2019; its distillation/train.py and distiller.py). Published are three
epochs and batches of up to 4,000; here 100,000 steps of 4,000 rows of 512. Positions are learned
too, and rare words masked no more often than others.
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
        name="distilbert",
        note="DistilBERT as published: a student of half the layers, and its teacher",
        tokenizer=TokenizerChoice(kind="wordpiece", vocabulary=30_522, lowercase=True),
        model=FamilyModel(
            family="distilbert", architecture="DistilBertForMaskedLM", size="base", settings={}
        ),
        objective=ObjectiveChoice(name="distillation", options={"everywhere": True}),
        rows=RowChoice(length=512),
        training=replace(
            base.training,
            phases=(),
            budget=Budget(steps=100_000),
            batch=4_000,
            microbatches=500,
            optimizer=AdamW(learning_rate=5e-4, beta2=0.98, decay=0.0, clip=5.0),
            schedule=Schedule(kind="linear", warmup=0.05),
        ),
    )
