"""GPT-2: a causal decoder, normalised before each sub-layer and once more at the end.

Notable: the reference stores projections as (in, out) and query, key and value as one matrix, so
the rules transpose and split. `n_inner` null means four times the width. The variation that scales
scores by the layer's number is outside; unscaled scores are a coordinate.
"""

from __future__ import annotations

from typing import Any

from maskwright.model.families.base.family import (
    ACTIVATIONS,
    Architecture,
    Coordinate,
    Fields,
    bare,
    head_field,
    head_rules,
    head_width,
    heads,
    projection_rules,
    tied,
)
from maskwright.model.families.base.weights import Rename, Rule, fused, linear, norm
from maskwright.model.nn.config import (
    Attention,
    Block,
    Embeddings,
    FeedForward,
    Learned,
    Norm,
    Stack,
    Tokens,
    TransformerConfig,
    VocabularyHead,
    layers,
)

MODEL_TYPE = "gpt2"
PAPERS = [
    "https://cdn.openai.com/better-language-models/"
    "language_models_are_unsupervised_multitask_learners.pdf"
]
STYLE = "gpt2"
PREFIX = "transformer."
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
    "vocab_size": "tokens.vocabulary",
    "n_embd": "width",
    "n_layer": "decoder.blocks.#",
    "n_head": "decoder.blocks.0.attention.heads",
    "n_inner": "decoder.blocks.0.feed_forward.width",
    "n_positions": "decoder.embeddings.positions.length",
    "activation_function": "decoder.blocks.0.feed_forward.activation",
    "resid_pdrop": "decoder.blocks.0.dropout",
    "attn_pdrop": "decoder.blocks.0.attention.dropout",
    "embd_pdrop": "decoder.embeddings.dropout",
    "layer_norm_epsilon": "decoder.blocks.0.norm.eps",
    "scale_attn_weights": "decoder.blocks.0.attention.scaled",
    "tie_word_embeddings": tied,
    "classifier_dropout": head_field("dropout", "token"),
    "num_labels": head_field("labels", "classifier"),
}
CONSTANTS = {
    "initializer_range": 0.02,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_activation": None,
    "summary_proj_to_labels": True,
    "summary_first_dropout": 0.1,
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
        "resid_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "layer_norm_epsilon": 1e-5,
    }


SIZES = {
    "small": _sized(12, 768, 12),
    "medium": _sized(24, 1024, 16),
    "large": _sized(36, 1280, 20),
    "xl": _sized(48, 1600, 25),
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `gpt2` config -> our config."""
    fields.fixed({"scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False})
    architecture = fields.architecture(ARCHITECTURES)
    width, num_heads = fields.integer("n_embd", 768), fields.integer("n_head", 12)
    attention = Attention(
        heads=num_heads,
        head_width=head_width(width, num_heads, "n_embd"),
        pattern="causal",
        scaled=fields.flag("scale_attn_weights", True),
        dropout=fields.rate("attn_pdrop", 0.1),
    )
    forward = FeedForward(
        width=fields.integer("n_inner", 4 * width),
        activation=fields.choice("activation_function", ACTIVATIONS, "gelu_new"),
    )
    block = Block(
        attention=attention,
        feed_forward=forward,
        norm=Norm(eps=fields.positive("layer_norm_epsilon", 1e-5)),
        placement="pre",
        dropout=fields.rate("resid_pdrop", 0.1),
    )
    blocks, weights_of = layers(block, fields.integer("n_layer", 12))
    embeddings = Embeddings(
        positions=Learned(length=fields.integer("n_positions", 1024)),
        dropout=fields.rate("embd_pdrop", 0.1),
    )
    head = VocabularyHead(tied=fields.flag("tie_word_embeddings", True))
    dropout = fields.rate("classifier_dropout", 0.1)
    options: dict[str, dict[str, Any]] = {
        "sequence": {"bias": False},
        "token": {"dropout": dropout},
    }
    return TransformerConfig(
        width=width,
        tokens=Tokens(vocabulary=fields.integer("vocab_size", 50257), width=width),
        decoder=Stack(embeddings=embeddings, blocks=blocks, weights_of=weights_of, final_norm=True),
        vocabulary_head=head if architecture.vocabulary else None,
        heads=heads(architecture, fields, options),
    )


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a GPT-2; the bare body has no prefix, everything on top of one has."""
    body = "" if bare(config) else PREFIX
    rules: list[Rule] = [
        Rename(f"{body}wte.weight", "tokens.weight"),
        Rename(f"{body}wpe.weight", "decoder.embeddings.position.weight"),
    ]
    assert config.decoder is not None
    for layer in range(len(config.decoder.blocks)):
        rules += _block(f"{body}h.{layer}", f"decoder.blocks.{layer}")
    rules += norm(f"{body}ln_f", "decoder.final_norm")
    return [*rules, *projection_rules(config, "lm_head.weight"), *head_rules(config, HEADS)]


def _block(theirs: str, ours: str) -> list[Rule]:
    projections = [f"{ours}.attention.{name}" for name in ("query", "key", "value")]
    return [
        *norm(f"{theirs}.ln_1", f"{ours}.attention_norm"),
        *fused(f"{theirs}.attn.c_attn", projections, transpose=True),
        *linear(f"{theirs}.attn.c_proj", f"{ours}.attention.output", transpose=True),
        *norm(f"{theirs}.ln_2", f"{ours}.feed_forward_norm"),
        *linear(f"{theirs}.mlp.c_fc", f"{ours}.feed_forward.up", transpose=True),
        *linear(f"{theirs}.mlp.c_proj", f"{ours}.feed_forward.down", transpose=True),
    ]
