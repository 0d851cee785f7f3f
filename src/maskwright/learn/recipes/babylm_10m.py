"""Ten million words, read more than a thousand times: masked and causal on the same weights
(GPT-BERT, Charpentier and Samuel 2024), on the axes there are.

12 layers of width 384, gated inner width 1,280, vocabulary 8,192; one row in sixteen is causal,
spans of 1 to 3 tokens are masked, 30 % of the tokens falling to 15 %. LAMB at 1.41e-2, 7,812 steps:
warm-up of 1.6 %, cosine to a tenth, the last 1.6 % down to nothing. A step reads four million
tokens, a quarter of that in the beginning, in rows of 128, later 256 and 512; the running mean of
the weights is what is kept. As published but for two things. The stack: positions are rotary, where
the published model's are disentangled, and it also gates attention, mixes layers and has norms on
both sides (docs/decisions/0010). The masks: every epoch draws anew, where the published code
prefers tokens that were masked less often before.
"""

from __future__ import annotations

from dataclasses import replace

from maskwright.base.budget import Budget
from maskwright.learn.recipes import bert_base
from maskwright.learn.recipes.base.recipe import (
    FamilyModel,
    Initialisation,
    ObjectiveChoice,
    Recipe,
    RowChoice,
)
from maskwright.learn.train.optimizers.settings import Lamb
from maskwright.learn.train.schedule import Phase, Ramp, Schedule
from maskwright.text.tokenizer.training.train import TokenizerChoice

# The layers that see all are all of them: rows of the causal kind narrow what each may see.
EVERY_LAYER_SEES_ALL = {"global_attn_every_n_layers": 1, "global_rope_theta": 10_000.0}
HYBRID = ObjectiveChoice(
    name="hybrid",
    options={
        "causal_share": 1 / 16,
        "z_loss": 1e-4,
        "masking": {
            "rate": 0.3,
            "final_rate": 0.15,
            "unit": "span",
            "span_lengths": "uniform",
            "span_longest": 3,
            "span_words": False,
        },
    },
)


def recipe() -> Recipe:
    base = bert_base.recipe()
    return replace(
        base,
        name="babylm-10m",
        note="masked and causal on the same weights, for ten million words",
        tokenizer=TokenizerChoice(kind="byte-bpe", vocabulary=8_192),
        model=FamilyModel(
            family="modernbert",
            architecture="ModernBertForMaskedLM",
            settings={
                "hidden_size": 384,
                "num_hidden_layers": 12,
                "num_attention_heads": 6,
                "intermediate_size": 1_280,
                "max_position_embeddings": 512,
                "attention_dropout": 0.1,
                "mlp_dropout": 0.1,
                **EVERY_LAYER_SEES_ALL,
            },
        ),
        initialisation=Initialisation(scaled_residual=True),
        objective=HYBRID,
        rows=RowChoice(length=512),
        training=replace(
            base.training,
            budget=Budget(steps=7_812),
            batch=8_192,
            microbatches=1_024,
            phases=(
                Phase(until=0.7, length=128, batch=32_768),
                Phase(until=0.9, length=256, batch=16_384),
            ),
            ramp=Ramp(start=0.25),
            optimizer=Lamb(learning_rate=1.41e-2, beta2=0.98, epsilon=1e-8, decay=0.1, clip=2.0),
            schedule=Schedule(kind="cosine", warmup=0.016, floor=0.1, cooldown=0.016),
            ema=0.999,
        ),
    )
