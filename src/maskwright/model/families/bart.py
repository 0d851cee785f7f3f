"""BART: an encoder and a decoder, normalised after each sub-layer, with learned positions.

Notable: one token table, but a table of positions and a norm of the entry for each stack; both look
positions up two rows further on, so the tables have two rows more than `max_position_embeddings`.
Norms have a fixed eps. The decoder starts with the end token; a text is classified by the decoder's
state at its last one. `final_logits_bias` is a buffer that is zero in every BART; a file where it
is not is refused.
"""

from __future__ import annotations

from maskwright.model.families.base import post_norm_pair
from maskwright.model.families.base.family import Architecture, Coordinate, Fields, head_field
from maskwright.model.families.base.weights import Rule
from maskwright.model.nn.config import Learned, TransformerConfig

PAPERS = ["https://arxiv.org/abs/1910.13461"]
STYLE = "roberta"
PREFIX = "model."
IGNORED = ("encoder.version", "decoder.version")
TOKEN_IDS = {"decoder_start_token_id": "end", "forced_eos_token_id": "end"}

ARCHITECTURES = {
    "BartModel": Architecture(),
    "BartForConditionalGeneration": Architecture(vocabulary=True, generates=True),
    "BartForSequenceClassification": Architecture(
        heads=(("classifier", "sequence"),), default_labels=3
    ),
    "BartForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
}
FORMERLY = {"BartForMaskedLM": "BartForConditionalGeneration"}  # until 2020
OFFSET = 2

COORDINATES: dict[str, Coordinate] = {
    **post_norm_pair.COORDINATES,
    "max_position_embeddings": "encoder.embeddings.positions.length",
    "scale_embedding": "encoder.embeddings.scaled",
    "classifier_dropout": head_field("dropout", "classifier"),
}
# Variations of the first exports, and what other model types of this shape do.
FIXED = {
    "tie_word_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": True,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
    "static_position_embeddings": False,
    "is_decoder": False,
    "is_encoder_decoder": True,
}
CONSTANTS = post_norm_pair.CONSTANTS
SIZES = {
    name: {
        **post_norm_pair.sized(*shape),
        "max_position_embeddings": 1024,
        "scale_embedding": False,
    }
    for name, shape in {"base": (6, 768), "large": (12, 1024)}.items()
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `bart` config -> our config."""
    fields.fixed(FIXED)
    architecture = fields.architecture(ARCHITECTURES)
    positions = Learned(length=fields.integer("max_position_embeddings", 1024), offset=OFFSET)
    scaled = fields.flag("scale_embedding", False)
    encoder, decoder = (
        post_norm_pair.stack(fields, side, positions, scaled=scaled)
        for side in ("encoder", "decoder")
    )
    return post_norm_pair.model(fields, architecture, encoder, decoder)


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a BART."""
    return post_norm_pair.weights(config, PREFIX)
