"""Longformer: RoBERTa whose tokens see a window, and a few of them everything.

Notable: half of `attention_window` lies to either side. Global tokens have projections of their
own, which a model converted from RoBERTa begins as copies of the others; local tokens see them
through the ordinary ones. Heads for whole texts, for answers in a text and for choices choose the
global tokens by themselves; the masked-language head has none (`families/base/sliding_window.py`).
Texts are not padded to a multiple of the window, as transformers does: the results are the same.
"""

from __future__ import annotations

from typing import Any

from maskwright.model.families.base import post_norm, sliding_window
from maskwright.model.families.base.family import (
    Architecture,
    Coordinate,
    Fields,
    head_rules,
    heads,
    look,
)
from maskwright.model.families.base.weights import Rule
from maskwright.model.nn.config import Tokens, TransformerConfig

MODEL_TYPE = "longformer"
PAPERS = ["https://arxiv.org/abs/2004.05150"]
STYLE = "roberta"
PREFIX = "longformer."
IGNORED = (".position_ids",)
SWITCHES = {"add_pooling_layer": "pooler."}
TOKEN_IDS = {"sep_token_id": "separator"}

ARCHITECTURES = {
    "LongformerModel": Architecture(pooler=True),
    "LongformerForMaskedLM": Architecture(vocabulary=True),
    "LongformerForSequenceClassification": Architecture(heads=(("classifier", "sequence"),)),
    "LongformerForTokenClassification": Architecture(heads=(("classifier", "token"),)),
    "LongformerForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
    "LongformerForMultipleChoice": Architecture(
        pooler=True, heads=(("choice", "choice"),), labels=1
    ),
}
HEADS = {
    "sequence": ("classifier.out_proj", "classifier.dense"),
    "token": ("classifier",),
    "span": ("qa_outputs",),
    "choice": ("classifier",),
}

POSITIONS = "encoder.embeddings.positions"
COORDINATES: dict[str, Coordinate] = {
    **post_norm.COORDINATES,
    **post_norm.POOLER,
    **sliding_window.coordinates("none"),
    "max_position_embeddings": lambda c: (
        look(c, f"{POSITIONS}.offset") + look(c, f"{POSITIONS}.length")
    ),
    "pad_token_id": lambda c: look(c, f"{POSITIONS}.offset") - 1,
    "sep_token_id": "encoder.global_tokens.separator",
}
CONSTANTS = {**post_norm.CONSTANTS, "onnx_export": False}
DEFAULTS = post_norm.DEFAULTS


LONG = {
    "vocab_size": 50265,
    "attention_window": 512,
    "max_position_embeddings": 4098,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
    "sep_token_id": 2,
}
SIZES = {
    "base": post_norm.sized(12, 768, **LONG),
    "large": post_norm.sized(24, 1024, **LONG),
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `longformer` config -> our config."""
    architecture = fields.architecture(ARCHITECTURES)
    padding = fields.integer("pad_token_id", 1, smallest=0)
    fields.fixed({"onnx_export": False})
    rule = sliding_window.global_tokens(fields, architecture, "none")
    encoder = post_norm.encoder(fields, DEFAULTS, offset=padding + 1)
    sizes = fields.integers("attention_window", 512, len(encoder.blocks))
    width, rate = fields.integer("hidden_size", 768), encoder.embeddings.dropout
    options: dict[str, dict[str, Any]] = {
        "sequence": {"transform": "tanh", "input_dropout": rate, "dropout": rate},
        "token": {"dropout": rate},
        "choice": {"dropout": rate},
    }
    return TransformerConfig(
        width=width,
        tokens=Tokens(vocabulary=fields.integer("vocab_size", 30522), width=width),
        encoder=sliding_window.with_windows(encoder, sizes, rule),
        vocabulary_head=post_norm.vocabulary_head(architecture, fields, encoder, "gelu"),
        pooler=post_norm.pooler(architecture, fields),
        heads=heads(architecture, fields, options),
    )


GLOBAL_NAMES = {
    f"encoder.blocks.{{}}.attention.{name}": f"encoder.layer.{{}}.attention.self.{name}"
    for name in ("query_global", "key_global", "value_global")
}


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a Longformer."""
    return [
        *post_norm.body(config, PREFIX, {**post_norm.NAMES, **GLOBAL_NAMES}),
        *post_norm.vocabulary_rules(
            config,
            transform="lm_head.dense",
            norm_name="lm_head.layer_norm",
            projection="lm_head.decoder",
            bias="lm_head.bias",
        ),
        *head_rules(config, HEADS),
    ]
