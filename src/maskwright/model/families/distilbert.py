"""DistilBERT: a BERT of half the layers, without segments and without a pooler.

Notable: config.json has a spelling of its own. Whole texts are classified by a dense layer with
`relu`, and each task has its own key for dropout. A table of positions that began as sines and
cosines is a learned one like any other here, as it is in the file.
"""

from __future__ import annotations

from typing import Any

from maskwright.model.families.base import post_norm
from maskwright.model.families.base.family import (
    ACTIVATIONS,
    Architecture,
    Coordinate,
    Fields,
    head_field,
    heads,
)
from maskwright.model.families.base.weights import Rule
from maskwright.model.nn.config import FeedForward, Learned, Norm, Tokens, TransformerConfig

PAPERS = ["https://arxiv.org/abs/1910.01108"]
STYLE = "bert"
PREFIX = "distilbert."
IGNORED = (".position_ids",)

ARCHITECTURES = {
    "DistilBertModel": Architecture(),
    "DistilBertForMaskedLM": Architecture(vocabulary=True),
    "DistilBertForSequenceClassification": Architecture(heads=(("classifier", "sequence"),)),
    "DistilBertForTokenClassification": Architecture(heads=(("classifier", "token"),)),
    "DistilBertForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
    "DistilBertForMultipleChoice": Architecture(heads=(("choice", "choice"),), labels=1),
}
HEADS = {
    "sequence": ("classifier", "pre_classifier"),
    "token": ("classifier",),
    "span": ("qa_outputs",),
    "choice": ("classifier", "pre_classifier"),
}
VOCABULARY_HEAD = {
    "transform": "vocab_transform",
    "norm_name": "vocab_layer_norm",
    "projection": "vocab_projector",
}

COORDINATES: dict[str, Coordinate] = {
    "vocab_size": "tokens.vocabulary",
    "dim": "width",
    "n_layers": "encoder.blocks.#",
    "n_heads": "encoder.blocks.0.attention.heads",
    "hidden_dim": "encoder.blocks.0.feed_forward.width",
    "activation": "encoder.blocks.0.feed_forward.activation",
    "dropout": "encoder.blocks.0.dropout",
    "attention_dropout": "encoder.blocks.0.attention.dropout",
    "max_position_embeddings": "encoder.embeddings.positions.length",
    "seq_classif_dropout": head_field("dropout", "sequence", "choice"),
    "qa_dropout": head_field("dropout", "span"),
    "num_labels": post_norm.COORDINATES["num_labels"],
    "tie_word_embeddings": post_norm.COORDINATES["tie_word_embeddings"],
}
CONSTANTS = {"initializer_range": 0.02, "sinusoidal_pos_embds": False}

BASE: dict[str, Any] = {
    "vocab_size": 30522,
    "dim": 768,
    "n_layers": 6,
    "n_heads": 12,
    "hidden_dim": 3072,
    "activation": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "max_position_embeddings": 512,
}
SIZES = {
    "base": BASE,
    "base-cased": {**BASE, "vocab_size": 28996},
    "base-multilingual-cased": {**BASE, "vocab_size": 119547},
}

NAMES = {
    "tokens": "embeddings.word_embeddings",
    "encoder.embeddings.position": "embeddings.position_embeddings",
    "encoder.embeddings.norm": "embeddings.LayerNorm",
    "encoder.blocks.{}.attention.query": "transformer.layer.{}.attention.q_lin",
    "encoder.blocks.{}.attention.key": "transformer.layer.{}.attention.k_lin",
    "encoder.blocks.{}.attention.value": "transformer.layer.{}.attention.v_lin",
    "encoder.blocks.{}.attention.output": "transformer.layer.{}.attention.out_lin",
    "encoder.blocks.{}.attention_norm": "transformer.layer.{}.sa_layer_norm",
    "encoder.blocks.{}.feed_forward.up": "transformer.layer.{}.ffn.lin1",
    "encoder.blocks.{}.feed_forward.down": "transformer.layer.{}.ffn.lin2",
    "encoder.blocks.{}.feed_forward_norm": "transformer.layer.{}.output_layer_norm",
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `distilbert` config -> our config."""
    architecture = fields.architecture(ARCHITECTURES)
    width, dropout = fields.integer("dim", 768), fields.rate("dropout", 0.1)
    encoder = post_norm.stack(
        num_layers=fields.integer("n_layers", 6),
        attention=post_norm.attention(
            width, fields.integer("n_heads", 12), fields.rate("attention_dropout", 0.1), where="dim"
        ),
        feed_forward=FeedForward(
            width=fields.integer("hidden_dim", 3072),
            activation=fields.choice("activation", ACTIVATIONS, "gelu"),
        ),
        norm=Norm(eps=1e-12),
        dropout=dropout,
        positions=Learned(length=fields.integer("max_position_embeddings", 512)),
    )
    dense = {"transform": "relu", "dropout": fields.rate("seq_classif_dropout", 0.2)}
    options: dict[str, dict[str, Any]] = {
        "sequence": dense,
        "token": {"dropout": dropout},
        "span": {"dropout": fields.rate("qa_dropout", 0.1)},
        "choice": dense,
    }
    return TransformerConfig(
        width=width,
        tokens=Tokens(vocabulary=fields.integer("vocab_size", 30522), width=width),
        encoder=encoder,
        vocabulary_head=post_norm.vocabulary_head(architecture, fields, encoder),
        heads=heads(architecture, fields, options),
    )


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a DistilBERT."""
    return post_norm.weights(config, PREFIX, NAMES, VOCABULARY_HEAD, HEADS)
