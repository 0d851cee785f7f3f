"""A BERT of two layers for a minute of training: to try things out, and for tests."""

from __future__ import annotations

from maskwright.base.budget import Budget
from maskwright.learn.recipes.base.recipe import (
    Checkpoints,
    Corpus,
    Evaluation,
    FamilyModel,
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
        name="tiny",
        note="2 layers of width 64 on a little text",
        corpus=Corpus(limit_bytes=1_000_000, held_out=0.05),
        tokenizer=TokenizerChoice(kind="wordpiece", vocabulary=1024, lowercase=True),
        model=FamilyModel(
            family="bert",
            architecture="BertForMaskedLM",
            settings={
                "hidden_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "intermediate_size": 256,
                "max_position_embeddings": 64,
                "hidden_dropout_prob": 0.0,
                "attention_probs_dropout_prob": 0.0,
            },
        ),
        objective=ObjectiveChoice(name="masked", options={}),
        rows=RowChoice(length=64),
        training=Training(
            budget=Budget(steps=200),
            batch=32,
            optimizer=AdamW(learning_rate=2e-3),
            schedule=Schedule(kind="linear", warmup=0.1),
        ),
        evaluation=Evaluation(every=100, rows=128),
        checkpoints=Checkpoints(every=100),
    )
