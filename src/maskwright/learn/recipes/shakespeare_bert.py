"""The bidirectional twin of the textbook comparison: 186,430 parameters, masked characters.

Evaluated on the 20,000 characters that follow the first 80,000, by the published question: each
character is hidden with probability 0.15, of those 80/10/10.
"""

from __future__ import annotations

from dataclasses import replace

from maskwright.base.budget import Budget
from maskwright.learn.recipes import shakespeare_gpt
from maskwright.learn.recipes.base.recipe import CharacterRanges, ObjectiveChoice, Point, Recipe
from maskwright.model.nn.config import Tokens, TransformerConfig, VocabularyHead


def recipe() -> Recipe:
    twin = shakespeare_gpt.recipe()
    ranges = CharacterRanges(train=(0, 72_000), held_out=(80_000, 100_000), tokenizer=(0, 80_000))
    return replace(
        twin,
        name="shakespeare-bert",
        note="the bidirectional twin, masked characters of Tiny Shakespeare",
        corpus=replace(twin.corpus, characters=ranges),
        model=Point(
            config=TransformerConfig(
                width=96,
                tokens=Tokens(vocabulary=62, width=96),
                encoder=shakespeare_gpt.stack("bidirectional"),
                vocabulary_head=VocabularyHead(tied=False, bias=True),
            )
        ),
        objective=ObjectiveChoice(name="masked", options={"independent": True}),
        training=replace(twin.training, budget=Budget(steps=1_500)),
    )
