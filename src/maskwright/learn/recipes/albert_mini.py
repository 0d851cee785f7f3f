"""ALBERT at mini size: one layer's weights for all four, tokens of width 64, n-gram masks, and the
order of sentences.
"""

from __future__ import annotations

from maskwright.learn.recipes.base.mini import SHAPE, VOCABULARY, mini
from maskwright.learn.recipes.base.recipe import FamilyModel, ObjectiveChoice, Recipe
from maskwright.text.tokenizer.training.train import TokenizerChoice


def recipe() -> Recipe:
    return mini(
        "albert-mini",
        "ALBERT at mini size: n-gram masks and sentence order",
        tokenizer=TokenizerChoice(kind="unigram", vocabulary=VOCABULARY, lowercase=True),
        model=FamilyModel(
            family="albert",
            architecture="AlbertForPreTraining",
            settings={**SHAPE, "embedding_size": 64, "classifier_dropout_prob": 0.0},
        ),
        objective=ObjectiveChoice(name="sentence-order", options={}),
    )
