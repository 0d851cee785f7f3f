"""BERT: a bidirectional encoder, normalised after each sub-layer, with learned positions.

Notable: `gelu` is the exact (erf) form here, as in transformers; the first TensorFlow code
used the tanh form. The masked-language head has a transform (dense, activation, norm), the token
table as its projection, and a bias of its own. Where the table is not tied, the bias is written
under both names that the two generations of transformers read. The bare body may lack its
pooler. Only classifiers have dropout before their projection.
"""

from __future__ import annotations

from maskwright.model.families.base import post_norm
from maskwright.model.families.base.family import Architecture, Coordinate, Fields, head_field
from maskwright.model.families.base.weights import Rule
from maskwright.model.nn.config import TransformerConfig

PAPERS = ["https://arxiv.org/abs/1810.04805", "https://arxiv.org/abs/1908.08962"]
STYLE = "bert"
PREFIX = "bert."
IGNORED = (".position_ids",)
SWITCHES = {"add_pooling_layer": "pooler."}

ARCHITECTURES = {
    "BertModel": Architecture(pooler=True),
    "BertForMaskedLM": Architecture(vocabulary=True),
    "BertForPreTraining": Architecture(
        pooler=True, vocabulary=True, heads=(("pair", "sequence"),), labels=2
    ),
    "BertForSequenceClassification": Architecture(pooler=True, heads=(("classifier", "sequence"),)),
    "BertForTokenClassification": Architecture(heads=(("classifier", "token"),)),
    "BertForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
    "BertForNextSentencePrediction": Architecture(
        pooler=True, heads=(("pair", "sequence"),), labels=2
    ),
    "BertForMultipleChoice": Architecture(pooler=True, heads=(("choice", "choice"),), labels=1),
}
HEADS = {
    "pair": ("cls.seq_relationship",),
    "classifier": ("classifier",),
    "span": ("qa_outputs",),
    "choice": ("classifier",),
}

COORDINATES: dict[str, Coordinate] = {
    **post_norm.COORDINATES,
    **post_norm.POOLER,
    "classifier_dropout": head_field("dropout", "classifier", "choice"),
}
CONSTANTS = post_norm.CONSTANTS
BASE = post_norm.DEFAULTS


SIZES = {
    "tiny": post_norm.sized(2, 128),
    "mini": post_norm.sized(4, 256),
    "small": post_norm.sized(4, 512),
    "medium": post_norm.sized(8, 512),
    "base": BASE,
    "base-cased": post_norm.sized(12, 768, vocab_size=28996),
    "large": post_norm.sized(24, 1024),
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `bert` config -> our config."""
    architecture = fields.architecture(ARCHITECTURES)
    encoder = post_norm.encoder(fields, BASE)
    rate = {"dropout": fields.rate("classifier_dropout", encoder.embeddings.dropout)}
    options = {"classifier": rate, "choice": rate}
    return post_norm.model(fields, BASE, architecture, encoder, options)


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a BERT."""
    return post_norm.weights(config, PREFIX, post_norm.NAMES, post_norm.HEAD, HEADS)
