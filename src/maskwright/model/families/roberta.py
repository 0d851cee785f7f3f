"""RoBERTa: BERT's encoder, trained longer on more text, without segments or sentence pairs.

Notable: positions are counted from the row after the padding token's id, so the table has
`pad_token_id` + 1 rows before the first position's, and `max_position_embeddings` counts them too.
transformers finds padding by that id, so a tokenizer with another one is refused. Whole
texts are classified by a dense layer with tanh of its own instead of the pooler; the activation of
the masked-language head is always `gelu`.
"""

from __future__ import annotations

from typing import Any

from maskwright.model.families.base import post_norm
from maskwright.model.families.base.family import (
    Architecture,
    Coordinate,
    Fields,
    head_field,
    head_rules,
    heads,
    look,
)
from maskwright.model.families.base.weights import Rule
from maskwright.model.nn.config import Tokens, TransformerConfig

MODEL_TYPE = "roberta"
PAPERS = ["https://arxiv.org/abs/1907.11692", "https://arxiv.org/abs/1910.01108"]
STYLE = "roberta"
PREFIX = "roberta."
IGNORED = (".position_ids",)
SWITCHES = {"add_pooling_layer": "pooler."}

ARCHITECTURES = {
    "RobertaModel": Architecture(pooler=True),
    "RobertaForMaskedLM": Architecture(vocabulary=True),
    "RobertaForSequenceClassification": Architecture(heads=(("classifier", "sequence"),)),
    "RobertaForTokenClassification": Architecture(heads=(("classifier", "token"),)),
    "RobertaForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
    "RobertaForMultipleChoice": Architecture(pooler=True, heads=(("choice", "choice"),), labels=1),
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
    "max_position_embeddings": lambda c: (
        look(c, f"{POSITIONS}.offset") + look(c, f"{POSITIONS}.length")
    ),
    "pad_token_id": lambda c: look(c, f"{POSITIONS}.offset") - 1,
    "classifier_dropout": head_field("dropout", "classifier"),
}
CONSTANTS = post_norm.CONSTANTS
DEFAULTS = {**post_norm.DEFAULTS, "vocab_size": 50265}


def _sized(count: int, width: int) -> dict[str, Any]:
    return {
        **DEFAULTS,
        "num_hidden_layers": count,
        "hidden_size": width,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
    }


SIZES = {"base": _sized(12, 768), "large": _sized(24, 1024), "distil": _sized(6, 768)}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `roberta` config -> our config."""
    architecture = fields.architecture(ARCHITECTURES)
    padding = fields.integer("pad_token_id", 1, smallest=0)
    encoder = post_norm.encoder(fields, DEFAULTS, offset=padding + 1)
    width, dropout = fields.integer("hidden_size", 768), encoder.embeddings.dropout
    rate = fields.rate("classifier_dropout", dropout)
    options: dict[str, dict[str, Any]] = {
        "sequence": {"transform": "tanh", "input_dropout": rate, "dropout": rate},
        "token": {"dropout": rate},
        "choice": {"dropout": dropout},
    }
    return TransformerConfig(
        width=width,
        tokens=Tokens(vocabulary=fields.integer("vocab_size", 50265), width=width),
        encoder=encoder,
        vocabulary_head=post_norm.vocabulary_head(architecture, fields, encoder, "gelu"),
        pooler=post_norm.pooler(architecture, fields),
        heads=heads(architecture, fields, options),
    )


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a RoBERTa."""
    return [
        *post_norm.body(config, PREFIX, post_norm.NAMES),
        *post_norm.vocabulary_rules(
            config,
            transform="lm_head.dense",
            norm_name="lm_head.layer_norm",
            projection="lm_head.decoder",
            bias="lm_head.bias",
        ),
        *head_rules(config, HEADS),
    ]
