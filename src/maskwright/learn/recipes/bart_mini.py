"""BART at mini size: sentences in another order, spans that became one mask each."""

from __future__ import annotations

from maskwright.learn.recipes.base.mini import VOCABULARY, mini
from maskwright.learn.recipes.base.recipe import FamilyModel, ObjectiveChoice, Recipe
from maskwright.text.tokenizer.training.train import TokenizerChoice


def recipe() -> Recipe:
    return mini(
        "bart-mini",
        "BART at mini size: text infilling and sentence permutation",
        tokenizer=TokenizerChoice(kind="byte-bpe", vocabulary=VOCABULARY, style="roberta"),
        model=FamilyModel(
            family="bart",
            architecture="BartForConditionalGeneration",
            settings={
                "d_model": 256,
                "encoder_layers": 4,
                "decoder_layers": 4,
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "encoder_ffn_dim": 1024,
                "decoder_ffn_dim": 1024,
                "max_position_embeddings": 128,
                "dropout": 0.0,
                "attention_dropout": 0.0,
            },
        ),
        objective=ObjectiveChoice(name="denoising", options={}),
    )
