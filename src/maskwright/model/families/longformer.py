"""Longformer: RoBERTa whose tokens see a window, and a few of them everything.

Notable: half of `attention_window` lies to either side. Global tokens have projections of their
own, which a model converted from RoBERTa begins as copies of the others; local tokens see them
through the ordinary ones. Heads for whole texts, for answers in a text and for choices choose the
global tokens by themselves; the masked-language head has none (`families/base/sliding_window.py`).
Texts are not padded to a multiple of the window, as transformers does: the results are the same.
"""

from __future__ import annotations

from maskwright.model.families.base import post_norm, sliding_window
from maskwright.model.families.base.family import Architecture, Coordinate, Fields
from maskwright.model.families.base.weights import Rule
from maskwright.model.nn.config import TransformerConfig

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
COORDINATES: dict[str, Coordinate] = {
    **post_norm.ROBERTA_COORDINATES,
    **sliding_window.coordinates("none"),
    "sep_token_id": "encoder.global_tokens.separator",
}
CONSTANTS = {**post_norm.CONSTANTS, "onnx_export": False}
DEFAULTS = post_norm.DEFAULTS


LONG = {
    **post_norm.ROBERTA_SIZE,
    "attention_window": 512,
    "max_position_embeddings": 4098,
    "sep_token_id": 2,
}
SIZES = {
    "base": post_norm.sized(12, 768, **LONG),
    "large": post_norm.sized(24, 1024, **LONG),
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `longformer` config -> our config."""
    architecture = fields.architecture(ARCHITECTURES)
    fields.fixed({"onnx_export": False})
    rule = sliding_window.global_tokens(fields, architecture, "none")
    encoder = post_norm.roberta_encoder(fields, DEFAULTS)
    sizes = fields.integers("attention_window", 512, len(encoder.blocks))
    encoder, rate = sliding_window.with_windows(encoder, sizes, rule), encoder.embeddings.dropout
    options = post_norm.roberta_head_options(rate, rate)
    return post_norm.model(fields, DEFAULTS, architecture, encoder, options, transform="gelu")


GLOBAL_NAMES = {
    f"encoder.blocks.{{}}.attention.{name}": f"encoder.layer.{{}}.attention.self.{name}"
    for name in ("query_global", "key_global", "value_global")
}


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a Longformer."""
    names = {**post_norm.NAMES, **GLOBAL_NAMES}
    heads = post_norm.ROBERTA_HEAD, post_norm.ROBERTA_HEADS
    return post_norm.weights(config, PREFIX, names, *heads)
