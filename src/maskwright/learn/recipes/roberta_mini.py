"""RoBERTa at mini size: byte-level BPE, `<s>` and `</s>`, masks drawn anew every time."""

from __future__ import annotations

from maskwright.learn.recipes.base.mini import NO_DROPOUT, SHAPE, VOCABULARY, mini
from maskwright.learn.recipes.base.recipe import FamilyModel, ObjectiveChoice, Recipe
from maskwright.text.tokenizer.training.train import TokenizerChoice


def recipe() -> Recipe:
    return mini(
        "roberta-mini",
        "RoBERTa at mini size: masked modelling on byte-level BPE",
        tokenizer=TokenizerChoice(kind="byte-bpe", vocabulary=VOCABULARY, style="roberta"),
        model=FamilyModel(
            family="roberta",
            architecture="RobertaForMaskedLM",
            # 128 positions, counted from the one after the padding token's id.
            settings={
                **SHAPE,
                **NO_DROPOUT,
                "max_position_embeddings": 130,
                "type_vocab_size": 1,
                "layer_norm_eps": 1e-5,
            },
        ),
        objective=ObjectiveChoice(name="masked", options={}),
    )
