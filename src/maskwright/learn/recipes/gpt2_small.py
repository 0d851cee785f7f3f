"""GPT-2 small (Radford et al. 2019) with the open recipe that reproduces it (nanoGPT's settings:
peak 6e-4 to 6e-5 by a cosine, 0.5 M tokens per step, decay 0.1, no dropout)."""

from __future__ import annotations

from maskwright.base.budget import Budget
from maskwright.learn.recipes.base.recipe import (
    Checkpoints,
    Corpus,
    Evaluation,
    FamilyModel,
    Initialisation,
    ObjectiveChoice,
    Recipe,
    RowChoice,
    Training,
)
from maskwright.learn.train.optimizers.settings import AdamW
from maskwright.learn.train.schedule import Schedule
from maskwright.text.tokenizer.training.train import TokenizerChoice


def recipe() -> Recipe:
    return Recipe(
        name="gpt2-small",
        note="GPT-2 small, causal, byte-level BPE",
        corpus=Corpus(),
        tokenizer=TokenizerChoice(kind="byte-bpe", vocabulary=50_257, style="gpt2"),
        model=FamilyModel(
            family="gpt2",
            architecture="GPT2LMHeadModel",
            size="small",
            settings={"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0},
        ),
        initialisation=Initialisation(distribution="normal", scaled_residual=True),
        objective=ObjectiveChoice(name="causal", options={}),
        rows=RowChoice(length=1024),
        training=Training(
            budget=Budget(steps=600_000),
            batch=480,
            microbatches=120,
            optimizer=AdamW(learning_rate=6e-4, beta2=0.95, epsilon=1e-8, decay=0.1),
            schedule=Schedule(kind="cosine", warmup=1 / 300, floor=0.1),
        ),
        evaluation=Evaluation(every=1_000, rows=128, batch=4),
        checkpoints=Checkpoints(every=1_000),
    )
