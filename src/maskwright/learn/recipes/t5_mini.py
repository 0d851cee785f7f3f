"""T5, version 1.0, at mini size: span corruption; Unigram with a hundred sentinels.

Its token vectors are initialised with deviation 1, as published, and need a higher rate than
others: after 100 steps of 2,048 tokens the held-out loss was 6.02 at 1e-3, 5.58 at 3e-3 and 5.53 at
1e-2.
"""

from __future__ import annotations

from maskwright.learn.recipes.base.mini import VOCABULARY, mini
from maskwright.learn.recipes.base.recipe import (
    FamilyModel,
    Initialisation,
    ObjectiveChoice,
    Recipe,
)
from maskwright.learn.train.optimizers.settings import AdamW
from maskwright.text.tokenizer.training.train import TokenizerChoice


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
        optimizer=AdamW(learning_rate=3e-3, beta2=0.98),
    )
