"""ALBERT: one layer's weights used by all layers, and a token table narrower than the model.

Notable: `gelu_new` throughout; the second task of pretraining is the order of two sentences, whose
head has the classifiers' dropout. The second version of the published models has no other dropout.
Both branches of a layer have dropout, as in the first code (google-research/albert, modeling.py);
transformers leaves it out after the feed-forward. Several groups of layers are outside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from maskwright.base.errors import ConfigError
from maskwright.model.families.base import post_norm
from maskwright.model.families.base.family import Architecture, Coordinate, Fields, head_field
from maskwright.model.families.base.weights import Rule
from maskwright.model.nn.config import TransformerConfig

PAPERS = ["https://arxiv.org/abs/1909.11942"]
STYLE = "bert"
PREFIX = "albert."
IGNORED = (".position_ids",)
SWITCHES = {"add_pooling_layer": "pooler."}

ARCHITECTURES = {
    "AlbertModel": Architecture(pooler=True),
    "AlbertForMaskedLM": Architecture(vocabulary=True),
    "AlbertForPreTraining": Architecture(
        pooler=True, vocabulary=True, heads=(("pair", "sequence"),), labels=2
    ),
    "AlbertForSequenceClassification": Architecture(
        pooler=True, heads=(("classifier", "sequence"),)
    ),
    "AlbertForTokenClassification": Architecture(heads=(("classifier", "token"),)),
    "AlbertForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
    "AlbertForMultipleChoice": Architecture(pooler=True, heads=(("choice", "choice"),), labels=1),
}
HEADS = {
    "pair": ("sop_classifier.classifier",),
    "classifier": ("classifier",),
    "span": ("qa_outputs",),
    "choice": ("classifier",),
}
VOCABULARY_HEAD = {
    "transform": "predictions.dense",
    "norm_name": "predictions.LayerNorm",
    "projection": "predictions.decoder",
    "bias": "predictions.bias",
}

COORDINATES: dict[str, Coordinate] = {
    **post_norm.COORDINATES,
    **post_norm.POOLER,
    "embedding_size": "tokens.width",
    "classifier_dropout_prob": head_field("dropout", "pair", "classifier", "choice"),
}
SHARED = {"num_hidden_groups": 1, "inner_group_num": 1}
CONSTANTS = {**post_norm.CONSTANTS, **SHARED}
DEFAULTS: dict[str, Any] = {
    **post_norm.DEFAULTS,
    "vocab_size": 30000,
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def _sized(count: int, width: int, num_heads: int, dropout: float) -> dict[str, Any]:
    return post_norm.sized(
        count,
        width,
        vocab_size=30000,
        num_attention_heads=num_heads,
        embedding_size=128,
        hidden_act="gelu_new",
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


SIZES = {
    "base-v1": _sized(12, 768, 12, 0.1),
    "large-v1": _sized(24, 1024, 16, 0.1),
    "xlarge-v1": _sized(24, 2048, 16, 0.1),
    "xxlarge-v1": _sized(12, 4096, 64, 0.0),
    "base-v2": _sized(12, 768, 12, 0.0),
    "large-v2": _sized(24, 1024, 16, 0.0),
    "xlarge-v2": _sized(24, 2048, 16, 0.0),
    "xxlarge-v2": _sized(12, 4096, 64, 0.0),
}

NAMES = {
    "tokens": "embeddings.word_embeddings",
    "encoder.embeddings.position": "embeddings.position_embeddings",
    "encoder.embeddings.segment": "embeddings.token_type_embeddings",
    "encoder.embeddings.norm": "embeddings.LayerNorm",
    "encoder.embeddings.project": "encoder.embedding_hidden_mapping_in",
    **{
        f"encoder.blocks.{{}}.{ours}": f"encoder.albert_layer_groups.{{}}.albert_layers.0.{theirs}"
        for ours, theirs in {
            "attention.query": "attention.query",
            "attention.key": "attention.key",
            "attention.value": "attention.value",
            "attention.output": "attention.dense",
            "attention_norm": "attention.LayerNorm",
            "feed_forward.up": "ffn",
            "feed_forward.down": "ffn_output",
            "feed_forward_norm": "full_layer_layer_norm",
        }.items()
    },
    "pooler": "pooler",
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `albert` config -> our config."""
    fields.fixed(SHARED)
    architecture = fields.architecture(ARCHITECTURES)
    encoder = post_norm.encoder(fields, DEFAULTS)
    width, token_width = fields.integer("hidden_size", 4096), fields.integer("embedding_size", 128)
    if token_width == width:
        raise ConfigError(
            "transformers projects even between equal widths",
            where="config.json: embedding_size",
            found=token_width,
            wanted="another width than hidden_size",
        )
    encoder = replace(encoder, weights_of=(0,) * len(encoder.blocks))
    rate = {"dropout": fields.rate("classifier_dropout_prob", 0.1)}
    options = dict.fromkeys(("pair", "classifier", "choice"), rate)
    return post_norm.model(
        fields, DEFAULTS, architecture, encoder, options, token_width=token_width
    )


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of an ALBERT."""
    return post_norm.weights(config, PREFIX, NAMES, VOCABULARY_HEAD, HEADS)
