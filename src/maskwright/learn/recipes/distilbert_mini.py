"""DistilBERT at mini size: two layers, taught by the four of a BERT-mini.

The teacher is yours to name, `--set objective.options.teacher=FOLDER`: a run of `bert-mini` on the
same text has the same tokenizer; any other brings its own with `--set tokenizer.folder=FOLDER`.
"""

from __future__ import annotations

from maskwright.learn.recipes.base.mini import LENGTH, mini
from maskwright.learn.recipes.base.recipe import FamilyModel, ObjectiveChoice, Recipe


def recipe() -> Recipe:
    return mini(
        "distilbert-mini",
        "DistilBERT at mini size: a student of half the layers, and its teacher",
        model=FamilyModel(
            family="distilbert",
            architecture="DistilBertForMaskedLM",
            settings={
                "dim": 256,
                "max_position_embeddings": LENGTH,
                "n_layers": 2,
                "n_heads": 4,
                "hidden_dim": 1024,
                "dropout": 0.0,
                "attention_dropout": 0.0,
            },
        ),
        objective=ObjectiveChoice(name="distillation", options={}),
    )
