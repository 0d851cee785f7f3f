"""ELECTRA: a discriminator that tells replaced tokens from original ones, and its generator.

Both are BERT's encoder without a pooler, and may have a token table narrower than the model. The
discriminator's head is a dense layer with the blocks' activation and one score per position; the
generator's is a masked-language head whose activation is always `gelu`. The published generators
are folders of their own; in training they share the discriminator's embeddings. Whole texts are
classified by a dense layer with `gelu`. With a token table as wide as the model, and where no head
differs, a config is a BERT too.
"""

from __future__ import annotations

from typing import Any

from maskwright.model.families.base import post_norm
from maskwright.model.families.base.family import Architecture, Coordinate, Fields, head_field
from maskwright.model.families.base.weights import Rule
from maskwright.model.nn.config import TransformerConfig

PAPERS = ["https://arxiv.org/abs/2003.10555"]
STYLE = "bert"
PREFIX = "electra."
IGNORED = (".position_ids",)

ARCHITECTURES = {
    "ElectraModel": Architecture(),
    "ElectraForPreTraining": Architecture(heads=(("replaced", "token"),), labels=1),
    "ElectraForMaskedLM": Architecture(vocabulary=True),
    "ElectraForSequenceClassification": Architecture(heads=(("classifier", "sequence"),)),
    "ElectraForTokenClassification": Architecture(heads=(("classifier", "token"),)),
    "ElectraForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
    "ElectraForMultipleChoice": Architecture(heads=(("choice", "choice"),), labels=1),
}
HEADS = {
    "replaced": ("discriminator_predictions.dense_prediction", "discriminator_predictions.dense"),
    "sequence": ("classifier.out_proj", "classifier.dense"),
    "token": ("classifier",),
    "span": ("qa_outputs",),
    "choice": ("classifier", "sequence_summary.summary"),
}
VOCABULARY_HEAD = {
    "transform": "generator_predictions.dense",
    "norm_name": "generator_predictions.LayerNorm",
    "projection": "generator_lm_head",
}

COORDINATES: dict[str, Coordinate] = {
    **post_norm.COORDINATES,
    "embedding_size": "tokens.width",
    "classifier_dropout": head_field("dropout", "classifier"),
    "summary_last_dropout": head_field("dropout", "choice"),
}
SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
CONSTANTS = {**post_norm.CONSTANTS, **SUMMARY}
DEFAULTS = {
    **post_norm.DEFAULTS,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}


SIZES = {
    "small": post_norm.sized(12, 256, embedding_size=128),
    "base": post_norm.sized(12, 768, embedding_size=768),
    "large": post_norm.sized(24, 1024, embedding_size=1024),
    "small-generator": post_norm.sized(12, 256, embedding_size=128),
    "base-generator": post_norm.sized(12, 256, embedding_size=768),
    "large-generator": post_norm.sized(24, 256, embedding_size=1024),
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `electra` config -> our config."""
    architecture = fields.architecture(ARCHITECTURES)
    if any(kind == "choice" for _, kind in architecture.heads):
        fields.fixed(SUMMARY, null=False)  # null would be no projection, or no activation
    encoder = post_norm.encoder(fields, DEFAULTS)
    rate = fields.rate("classifier_dropout", encoder.embeddings.dropout)
    options: dict[str, dict[str, Any]] = {
        "replaced": {"transform": encoder.attention_blocks[0].feed_forward.activation},
        "sequence": {"transform": "gelu", "input_dropout": rate, "dropout": rate},
        "token": {"dropout": rate},
        "choice": {"transform": "gelu", "dropout": fields.rate("summary_last_dropout", 0.1)},
    }
    token_width = fields.integer("embedding_size", 128)
    return post_norm.model(
        fields, DEFAULTS, architecture, encoder, options, transform="gelu", token_width=token_width
    )


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of an ELECTRA."""
    return post_norm.weights(config, PREFIX, post_norm.NAMES, VOCABULARY_HEAD, HEADS)
