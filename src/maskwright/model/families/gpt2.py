"""GPT-2: a causal decoder, normalised before each sub-layer and once more at the end.

Notable: the reference stores projections as (in, out) and query, key and value as one matrix, so
the rules transpose and split. `n_inner` null means four times the width. The variation that scales
scores by the layer's number is outside; unscaled scores are a coordinate.
"""

from __future__ import annotations

from typing import Any

from maskwright.model.families.base import gpt_decoder
from maskwright.model.families.base.family import (
    ACTIVATIONS,
    Architecture,
    Coordinate,
    Fields,
    head_field,
)
from maskwright.model.families.base.weights import Rule
from maskwright.model.nn.config import FeedForward, TransformerConfig

PAPERS = [
    "https://cdn.openai.com/better-language-models/"
    "language_models_are_unsupervised_multitask_learners.pdf"
]
STYLE = "gpt2"
PREFIX = gpt_decoder.PREFIX
# Buffers that older files carry: the causal triangle and the number it was filled with.
IGNORED = (".attn.bias", ".attn.masked_bias")

ARCHITECTURES = {
    "GPT2Model": Architecture(),
    "GPT2LMHeadModel": Architecture(vocabulary=True, generates=True),
    "GPT2ForSequenceClassification": Architecture(heads=(("classifier", "sequence"),)),
    "GPT2ForTokenClassification": Architecture(heads=(("classifier", "token"),)),
    "GPT2ForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
}
HEADS = {"sequence": ("score",), "token": ("classifier",), "span": ("qa_outputs",)}

COORDINATES: dict[str, Coordinate] = {
    **gpt_decoder.COORDINATES,
    "n_inner": "decoder.blocks.0.feed_forward.width",
    "activation_function": "decoder.blocks.0.feed_forward.activation",
    "scale_attn_weights": "decoder.blocks.0.attention.scaled",
    "classifier_dropout": head_field("dropout", "token"),
}
FIXED = {"scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
CONSTANTS = {
    **gpt_decoder.CONSTANTS,
    **FIXED,
    "reorder_and_upcast_attn": False,
    "use_cache": True,
}


def _sized(count: int, width: int, num_heads: int) -> dict[str, Any]:
    return {
        "vocab_size": 50257,
        "n_embd": width,
        "n_layer": count,
        "n_head": num_heads,
        "n_inner": 4 * width,
        "n_positions": 1024,
        "activation_function": "gelu_new",
        **gpt_decoder.RATES,
    }


SIZES = {
    "small": _sized(12, 768, 12),
    "medium": _sized(24, 1024, 16),
    "large": _sized(36, 1280, 20),
    "xl": _sized(48, 1600, 25),
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `gpt2` config -> our config."""
    fields.fixed(FIXED)
    feed_forward = FeedForward(
        width=fields.integer("n_inner", 4 * fields.integer("n_embd", 768)),
        activation=fields.choice("activation_function", ACTIVATIONS, "gelu_new"),
    )
    dropout = fields.rate("classifier_dropout", 0.1)
    return gpt_decoder.decoder_model(
        fields,
        architecture=fields.architecture(ARCHITECTURES),
        vocabulary=50257,
        positions=1024,
        feed_forward=feed_forward,
        placement="pre",
        scaled=fields.flag("scale_attn_weights", True),
        head_options={"sequence": {"bias": False}, "token": {"dropout": dropout}},
    )


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a GPT-2."""
    return gpt_decoder.weights(config, "wte", "wpe", HEADS)
