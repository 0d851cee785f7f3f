"""T5, version 1.0, at mini size: span corruption; Unigram with a hundred sentinels."""

from __future__ import annotations

from maskwright.recipes.mini import VOCABULARY, mini
from maskwright.recipes.recipe import FamilyModel, Initialisation, ObjectiveChoice, Recipe
from maskwright.tokenizer.train import TokenizerChoice


def recipe() -> Recipe:
    return mini(
        "t5-mini",
        "T5 v1.0 at mini size: span corruption",
        tokenizer=TokenizerChoice(kind="unigram", vocabulary=VOCABULARY, style="t5"),
        model=FamilyModel(
            family="t5",
            architecture="T5ForConditionalGeneration",
            settings={
                "d_model": 256,
                "d_kv": 64,
                "d_ff": 1024,
                "num_layers": 4,
                "num_heads": 4,
                "dropout_rate": 0.0,
            },
        ),
        initialisation=Initialisation(distribution="fan_in"),
        objective=ObjectiveChoice(name="span-corruption", options={}),
    )
