"""The best model of grammar that an hour on two cores gives from ten million words of babytext.

A causal model of GPT-2's family, 5 layers of width 256, trained by Muon. How each choice was made,
and what it was worth: docs/results.md. The budget is 55 minutes of training: vocabulary, store and
evaluation take the other five.
"""

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
from maskwright.learn.train.optimizers.settings import Muon
from maskwright.learn.train.schedule import Schedule
from maskwright.text.tokenizer.training.train import TokenizerChoice

BABYTEXT = "$MASKWRIGHT_DATA/text/babytext"


def recipe() -> Recipe:
    return Recipe(
        name="babytext-hour",
        note="an hour of grammar on two cores: causal, by Muon",
        corpus=Corpus(
            text=tuple(f"{BABYTEXT}/train-{shard:02}.jsonl.gz" for shard in range(4)),
            held_out_text=(f"{BABYTEXT}/valid.jsonl.gz",),
        ),
        tokenizer=TokenizerChoice(kind="wordpiece", vocabulary=8_192, lowercase=True, style="gpt2"),
        model=FamilyModel(
            family="gpt2",
            architecture="GPT2LMHeadModel",
            settings={
                "n_embd": 256,
                "n_layer": 5,
                "n_head": 4,
                "n_positions": 128,
                "embd_pdrop": 0.0,
                "attn_pdrop": 0.0,
                "resid_pdrop": 0.0,
            },
        ),
        initialisation=Initialisation(distribution="normal", scaled_residual=True),
        objective=ObjectiveChoice(name="causal", options={}),
        rows=RowChoice(length=128, kind="sentences"),
        training=Training(
            budget=Budget(minutes=55.0),
            batch=64,
            optimizer=Muon(learning_rate=6e-3, beta2=0.95, decay=0.1),
            schedule=Schedule(kind="linear", warmup=0.03),
        ),
        evaluation=Evaluation(every=1_000, rows=512),
        checkpoints=Checkpoints(every=1_000),
    )
