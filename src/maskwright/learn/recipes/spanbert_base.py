"""SpanBERT-base as it was published: spans of whole words are masked and predicted from their
boundaries too; a cased vocabulary, single texts, no sentence pairs.

131,072 tokens a step, 2,400,000 steps, peak rate 1e-4 after 10,000 of warm-up, then linear, epsilon
1e-8; boundaries predict the first 15 tokens of a span, places have vectors of width 200 (Joshi et
al. 2019; facebookresearch/SpanBERT, pretraining/README.md).
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
        name="spanbert-base",
        note="SpanBERT-base as published: masked spans and their boundaries",
        tokenizer=TokenizerChoice(kind="wordpiece", vocabulary=28_996),
        model=FamilyModel(
            family="bert", architecture="BertForMaskedLM", size="base-cased", settings={}
        ),
        objective=ObjectiveChoice(name="span-boundary", options={"max_pair_targets": 15}),
        rows=RowChoice(length=512),
        training=replace(
            base.training,
            phases=(),
            budget=Budget(steps=2_400_000),
            microbatches=32,
            optimizer=AdamW(learning_rate=1e-4, epsilon=1e-8),
            schedule=Schedule(kind="linear", warmup=10_000 / 2_400_000),
        ),
    )
