"""ModernBERT at mini size: rotary positions, gated, every third layer sees all; 30 % masked."""

from __future__ import annotations

from maskwright.learn.recipes.base.mini import SHAPE, VOCABULARY, mini
from maskwright.learn.recipes.base.recipe import (
    FamilyModel,
    Initialisation,
    ObjectiveChoice,
    Recipe,
)
from maskwright.text.tokenizer.training.train import TokenizerChoice


def recipe() -> Recipe:
    return mini(
        "modernbert-mini",
        "ModernBERT at mini size: masked modelling at 30 %",
        tokenizer=TokenizerChoice(kind="byte-bpe", vocabulary=VOCABULARY),
        model=FamilyModel(
            family="modernbert",
            architecture="ModernBertForMaskedLM",
            settings={**SHAPE, "intermediate_size": 384, "global_rope_theta": 10_000.0},
        ),
        initialisation=Initialisation(scaled_residual=True),
        objective=ObjectiveChoice(name="masked", options={"rate": 0.3}),
    )
