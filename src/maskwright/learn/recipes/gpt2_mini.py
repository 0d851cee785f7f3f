"""GPT-2 at mini size: byte-level BPE, next tokens."""

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
        "gpt2-mini",
        "GPT-2 at mini size: causal",
        tokenizer=TokenizerChoice(kind="byte-bpe", vocabulary=VOCABULARY, style="gpt2"),
        model=FamilyModel(
            family="gpt2",
            architecture="GPT2LMHeadModel",
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
        initialisation=Initialisation(distribution="normal", scaled_residual=True),
        objective=ObjectiveChoice(name="causal", options={}),
        optimizer=AdamW(learning_rate=2e-3, beta2=0.95, decay=0.1),
    )
