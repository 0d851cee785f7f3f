"""T5-small, version 1.0: span corruption, rows of 512 made of 568 tokens, targets of 114.

Batches of 2,048, 2^20 steps, warm-up of 10,000 and then the inverse square root, dropout 0.1
(Raffel et al. 2020, 3.1 and 3.7), by Adafactor: 0.01 during the warm-up, without decay. As
published but for one thing: the published models saw tasks with their labels among the text.
"""

from __future__ import annotations

from dataclasses import replace

from maskwright.base.budget import Budget
from maskwright.learn.recipes import bert_base
from maskwright.learn.recipes.base.recipe import (
    FamilyModel,
    Initialisation,
    ObjectiveChoice,
    Recipe,
    RowChoice,
)
from maskwright.learn.train.optimizers.settings import Adafactor
from maskwright.learn.train.schedule import Schedule
from maskwright.text.tokenizer.training.train import TokenizerChoice


def recipe() -> Recipe:
    base, steps = bert_base.recipe(), 1 << 20
    return replace(
        base,
        name="t5-small",
        note="T5-small v1.0: span corruption, trained by Adafactor",
        tokenizer=TokenizerChoice(kind="unigram", vocabulary=32_100, style="t5"),
        model=FamilyModel(
            family="t5",
            architecture="T5ForConditionalGeneration",
            size="small",
            settings={"vocab_size": 32_128},
        ),
        initialisation=Initialisation(distribution="fan_in"),
        objective=ObjectiveChoice(name="span-corruption", options={}),
        rows=RowChoice(length=512),
        training=replace(
            base.training,
            phases=(),
            budget=Budget(steps=steps),
            batch=2_048,
            microbatches=256,
            optimizer=Adafactor(learning_rate=1e-2),
            schedule=Schedule(kind="held-inverse-sqrt", warmup=10_000 / steps),
        ),
    )
