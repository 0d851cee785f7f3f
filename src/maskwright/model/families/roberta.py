"""RoBERTa: BERT's encoder, trained longer on more text, without segments or sentence pairs.

Notable: positions are counted from the row after the padding token's id, so the table has
`pad_token_id` + 1 rows before the first position's, and `max_position_embeddings` counts them too.
transformers finds padding by that id, so a tokenizer with another one is refused. Whole
texts are classified by a dense layer with tanh of its own instead of the pooler; the activation of
the masked-language head is always `gelu`.
"""

from __future__ import annotations

from maskwright.model.families.base import post_norm
from maskwright.model.families.base.family import Architecture, Coordinate, Fields, head_field
from maskwright.model.families.base.weights import Rule
from maskwright.model.nn.config import TransformerConfig

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
COORDINATES: dict[str, Coordinate] = {
    **post_norm.ROBERTA_COORDINATES,
    "classifier_dropout": head_field("dropout", "classifier"),
}
CONSTANTS = post_norm.CONSTANTS
DEFAULTS = {**post_norm.DEFAULTS, "vocab_size": 50265}
LONG = {**post_norm.ROBERTA_SIZE, "max_position_embeddings": 514}
SIZES = {
    "base": post_norm.sized(12, 768, **LONG),
    "large": post_norm.sized(24, 1024, **LONG),
    "distil": post_norm.sized(6, 768, **LONG),
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `roberta` config -> our config."""
    architecture = fields.architecture(ARCHITECTURES)
    encoder = post_norm.roberta_encoder(fields, DEFAULTS)
    dropout = encoder.embeddings.dropout
    options = post_norm.roberta_head_options(fields.rate("classifier_dropout", dropout), dropout)
    return post_norm.model(fields, DEFAULTS, architecture, encoder, options, transform="gelu")


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a RoBERTa."""
    heads = post_norm.ROBERTA_HEAD, post_norm.ROBERTA_HEADS
    return post_norm.weights(config, PREFIX, post_norm.NAMES, *heads)
