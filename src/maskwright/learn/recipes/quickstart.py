"""The first run: a small BERT on the documentation text inside this Python installation.

Small vocabulary, short rows and a high mask rate, because the point is to leave the unigram
plateau within minutes on two cores: more targets per row are more signal per second (Wettig et
al. 2023 find 40 % no worse than 15 % for larger models). The command `maskwright quickstart`
measures the machine and sets the number of steps.
"""

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

MARKER = "quickstart.json"  # a file that lies in the run of the quickstart


def recipe() -> Recipe:
    return Recipe(
        name="quickstart",
        note="a small BERT on the documentation inside this Python installation",
        corpus=Corpus(held_out=0.03),
        tokenizer=TokenizerChoice(kind="wordpiece", vocabulary=2048, lowercase=True),
        model=FamilyModel(
            family="bert",
            architecture="BertForMaskedLM",
            settings={
                "hidden_size": 128,
                "num_hidden_layers": 4,
                "num_attention_heads": 4,
                "intermediate_size": 512,
                "max_position_embeddings": 64,
                "hidden_dropout_prob": 0.0,
                "attention_probs_dropout_prob": 0.0,
            },
        ),
        objective=ObjectiveChoice(name="masked", options={"rate": 0.3}),
        rows=RowChoice(length=64),
        training=Training(
            budget=Budget(steps=1_500),
            batch=32,
            optimizer=AdamW(learning_rate=1.5e-3, beta2=0.98),
            schedule=Schedule(kind="linear", warmup=0.1),
        ),
        evaluation=Evaluation(every=250, rows=512, batch=64),
        checkpoints=Checkpoints(every=500, keep=1),
    )
