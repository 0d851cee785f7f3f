"""ModernBERT-base, the first and longest of its three phases: 1.72 trillion tokens, rows of 1,024.

Batches grow from 288 to 4,608 rows over the first 50 billion tokens; 30 % masked, rate 8e-4,
constant after a warm-up of 3 billion tokens; rotary theta 10,000 everywhere (Warner et al. 2024;
AnswerDotAI/ModernBERT, modernbert-base-pretrain.yaml). The phases of long rows begin with what this
leaves: `--set model.folder=RUN`, and their thetas. As published but for three things: the first
batches were of 96 rows, where here each of 288 microbatches has one; it was trained by StableAdamW,
which bounds each tensor's update where AdamW here clips the gradient; and what attention gives had
dropout 0.1, which the family's config cannot say alone.
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
from maskwright.learn.train.optimizers.settings import AdamW
from maskwright.learn.train.schedule import Ramp, Schedule
from maskwright.text.tokenizer.training.train import TokenizerChoice


def recipe() -> Recipe:
    base = bert_base.recipe()
    return replace(
        base,
        name="modernbert-base",
        note="ModernBERT-base, first phase: masked modelling at 30 % on rows of 1,024",
        tokenizer=TokenizerChoice(kind="byte-bpe", vocabulary=50_368),
        model=FamilyModel(
            family="modernbert",
            architecture="ModernBertForMaskedLM",
            size="base",
            settings={"global_rope_theta": 10_000.0},
        ),
        initialisation=Initialisation(scaled_residual=True),
        objective=ObjectiveChoice(name="masked", options={"rate": 0.3}),
        rows=RowChoice(length=1024),
        training=replace(
            base.training,
            phases=(),
            budget=Budget(tokens=1_719_000_000_000),
            batch=4_608,
            microbatches=288,
            ramp=Ramp(start=288 / 4_608, until=50 / 1_719),
            optimizer=AdamW(learning_rate=8e-4, beta2=0.98, decay=1e-5),
            schedule=Schedule(kind="constant", warmup=3 / 1_719),
        ),
    )
