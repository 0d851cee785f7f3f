"""The causal twin of the textbook comparison: characters of Tiny Shakespeare, 186,368 parameters.

Two pre-norm layers of width 96 with sinusoidal positions on the first 80,000 characters, 90/10.
Only the mask and the places of the loss differ from `shakespeare-bert`.
"""

from __future__ import annotations

from maskwright.base.budget import Budget
from maskwright.learn.recipes.base.recipe import (
    CharacterRanges,
    Checkpoints,
    Corpus,
    Evaluation,
    Initialisation,
    ObjectiveChoice,
    Point,
    Recipe,
    RowChoice,
    Training,
)
from maskwright.learn.train.optimizers.settings import AdamW
from maskwright.learn.train.schedule import Schedule
from maskwright.model.nn.config import (
    Attention,
    Block,
    Embeddings,
    FeedForward,
    Norm,
    Sinusoidal,
    Stack,
    Tokens,
    TransformerConfig,
    VocabularyHead,
    layers,
)
from maskwright.text.tokenizer.training.train import TokenizerChoice

BLOCK = 48
DROPOUT = 0.1


def stack(pattern: str) -> Stack:
    """Two layers that differ between the twins in nothing but who may see whom.

    Dropout acts inside the layers and not on the embeddings: there it costs the small models more
    than it gives (perplexity 6.17 against 5.7 after 600 steps).
    """
    blocks, weights_of = layers(
        Block(
            attention=Attention(heads=4, head_width=24, pattern=pattern, dropout=DROPOUT),  # type: ignore[arg-type]
            feed_forward=FeedForward(width=256, activation="relu"),
            norm=Norm(eps=1e-5),
            placement="pre",
            dropout=DROPOUT,
        ),
        2,
    )
    return Stack(
        embeddings=Embeddings(positions=Sinusoidal(length=BLOCK)),
        blocks=blocks,
        weights_of=weights_of,
        final_norm=True,
    )


def recipe() -> Recipe:
    return Recipe(
        name="shakespeare-gpt",
        note="the causal twin, characters of Tiny Shakespeare",
        corpus=Corpus(
            text=("$MASKWRIGHT_DATA/text/tinyshakespeare.txt",),
            form="file",
            characters=CharacterRanges(
                train=(0, 72_000), held_out=(72_000, 80_000), tokenizer=(0, 80_000)
            ),
        ),
        tokenizer=TokenizerChoice(kind="character", vocabulary=62, specials=("[MASK]",)),
        model=Point(
            config=TransformerConfig(
                width=96,
                tokens=Tokens(vocabulary=62, width=96),
                decoder=stack("causal"),
                vocabulary_head=VocabularyHead(tied=False, bias=False),
            )
        ),
        initialisation=Initialisation(distribution="uniform"),
        objective=ObjectiveChoice(name="causal", options={}),
        rows=RowChoice(length=BLOCK, kind="windows"),
        training=Training(
            budget=Budget(steps=600),
            batch=64,
            optimizer=AdamW(learning_rate=3e-3, decay=0.0, epsilon=1e-8),
            schedule=Schedule(kind="cosine"),
        ),
        evaluation=Evaluation(every=200, rows=8_000, batch=256),
        checkpoints=Checkpoints(every=200),
    )
