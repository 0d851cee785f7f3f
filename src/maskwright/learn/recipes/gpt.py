"""GPT, the first, as it was published: a causal decoder on books, 100 times over.

Batches of 64 rows of 512 tokens, peak rate 2.5e-4 after 2,000 steps of warm-up, then a cosine to 0,
decay 0.01, dropout 0.1 (Radford et al. 2018, 4.1). Its 100 epochs were about 120 billion tokens,
which is what is counted here.
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
from maskwright.learn.train.schedule import Schedule
from maskwright.text.tokenizer.training.train import TokenizerChoice


def recipe() -> Recipe:
    base, steps = bert_base.recipe(), 120_000_000_000 // (64 * 512)
    return replace(
        base,
        name="gpt",
        note="GPT, the first, as published: causal, lower case",
        tokenizer=TokenizerChoice(kind="bpe", vocabulary=40_478, lowercase=True, style="gpt2"),
        model=FamilyModel(
            family="openai-gpt", architecture="OpenAIGPTLMHeadModel", size="base", settings={}
        ),
        initialisation=Initialisation(distribution="normal"),
        objective=ObjectiveChoice(name="causal", options={}),
        rows=RowChoice(length=512),
        training=replace(
            base.training,
            phases=(),
            budget=Budget(steps=steps),
            batch=64,
            microbatches=8,
            optimizer=AdamW(learning_rate=2.5e-4, epsilon=1e-8),
            schedule=Schedule(kind="cosine", warmup=2_000 / steps),
        ),
    )
