"""GPT, the first, at mini size: normalised after each sub-layer, BPE in lower case."""

from __future__ import annotations

from maskwright.learn.recipes.base.mini import VOCABULARY, mini
from maskwright.learn.recipes.base.recipe import (
    FamilyModel,
    Initialisation,
    ObjectiveChoice,
    Recipe,
)
from maskwright.text.tokenizer.training.train import TokenizerChoice


def recipe() -> Recipe:
    return mini(
        "gpt-mini",
        "GPT, the first, at mini size: causal, lower case",
        tokenizer=TokenizerChoice(kind="bpe", vocabulary=VOCABULARY, lowercase=True, style="gpt2"),
        model=FamilyModel(
            family="openai-gpt",
            architecture="OpenAIGPTLMHeadModel",
            settings={
                "n_embd": 256,
                "n_layer": 4,
                "n_head": 4,
                "n_positions": 128,
                "embd_pdrop": 0.0,
                "attn_pdrop": 0.0,
                "resid_pdrop": 0.0,
            },
        ),
        initialisation=Initialisation(distribution="normal"),
        objective=ObjectiveChoice(name="causal", options={}),
    )
