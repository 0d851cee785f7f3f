"""GPT-2-mini that reads the beginning of each row in both directions, and predicts the rest."""

from __future__ import annotations

from dataclasses import replace

from maskwright.learn.recipes import gpt2_mini
from maskwright.learn.recipes.base.recipe import ObjectiveChoice, Recipe


def recipe() -> Recipe:
    return replace(
        gpt2_mini.recipe(),
        name="prefix-lm-mini",
        note="prefix language modelling at mini size",
        objective=ObjectiveChoice(name="prefix-lm", options={}),
    )
