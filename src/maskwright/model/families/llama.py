"""Llama: a causal decoder with rotary positions, RMS norms and a gated feed-forward layer.

Notable: norms stand before each sub-layer and at the end; nothing has a bias unless the config
says so, and the output is a matrix of its own by default. Groups of query heads may share keys and
values (`num_key_value_heads`). The variations of rotary positions that stretch a trained context
(`rope_type` other than default) are outside.

The two generations of transformers say theta in `rope_parameters` or as `rope_theta`; both are
read, and both are written. The question-answering class calls its body `transformer`.
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
from maskwright.model.families.base.weights import Rename, Rule, linear, norm
from maskwright.model.nn.config import (
    Attention,
    Block,
    Embeddings,
    FeedForward,
    Norm,
    Rotary,
    Tokens,
    TransformerConfig,
    VocabularyHead,
    uniform_stack,
)

PAPERS = ["https://arxiv.org/abs/2302.13971", "https://arxiv.org/abs/2307.09288"]
STYLE = "gpt2"
PREFIX = "model."
IGNORED = (".inv_freq",)

ARCHITECTURES = {
    "LlamaModel": Architecture(),
    "LlamaForCausalLM": Architecture(vocabulary=True, generates=True),
    "LlamaForSequenceClassification": Architecture(heads=(("classifier", "sequence"),)),
    "LlamaForTokenClassification": Architecture(heads=(("classifier", "token"),)),
    "LlamaForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
}
HEADS = {"sequence": ("score",), "token": ("score",), "span": ("qa_outputs",)}


def _theta(config: TransformerConfig) -> float | None:
    positions = config.decoder and config.decoder.attention_blocks[0].attention.positions
    return positions.theta if isinstance(positions, Rotary) else None


def _rope(config: TransformerConfig) -> dict[str, Any] | None:
    theta = _theta(config)
    return None if theta is None else {"rope_type": "default", "rope_theta": theta}


COORDINATES: dict[str, Coordinate] = {
    "vocab_size": "tokens.vocabulary",
    "hidden_size": "width",
    "intermediate_size": "decoder.blocks.0.feed_forward.width",
    "num_hidden_layers": "decoder.blocks.#",
    "num_attention_heads": "decoder.blocks.0.attention.heads",
    "num_key_value_heads": "decoder.blocks.0.attention.num_key_heads",
    "head_dim": "decoder.blocks.0.attention.head_width",
    "hidden_act": "decoder.blocks.0.feed_forward.activation",
    "max_position_embeddings": "decoder.blocks.0.attention.positions.length",
    "rms_norm_eps": "decoder.blocks.0.norm.eps",
    "attention_bias": "decoder.blocks.0.attention.bias",
    "attention_dropout": "decoder.blocks.0.attention.dropout",
    "mlp_bias": "decoder.blocks.0.feed_forward.bias",
    "rope_parameters": _rope,
    "rope_theta": _theta,
    "tie_word_embeddings": tied,
    "classifier_dropout": head_field("dropout", "token"),
    "num_labels": head_field("labels", "classifier"),
}
CONSTANTS = {"initializer_range": 0.02, "use_cache": True, "pretraining_tp": 1}


def _sized(
    count: int, width: int, inner: int, num_heads: int, key_heads: int, **keys: Any
) -> dict[str, Any]:
    return {
        "vocab_size": 32_000,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": count,
        "num_attention_heads": num_heads,
        "num_key_value_heads": key_heads,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        **keys,
    }


_SMOL: dict[str, Any] = {
    "vocab_size": 49_152,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
SIZES = {
    "7b": _sized(32, 4096, 11_008, 32, 32),
    "13b": _sized(40, 5120, 13_824, 40, 40),
    "70b": _sized(80, 8192, 28_672, 64, 8),
    "tinyllama-1.1b": _sized(22, 2048, 5632, 32, 4, max_position_embeddings=2048),
    "smollm-135m": _sized(30, 576, 1536, 9, 3, **_SMOL),
    "smollm-360m": _sized(32, 960, 2560, 15, 5, **_SMOL),
    "smollm-1.7b": _sized(24, 2048, 8192, 32, 32, **_SMOL),
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `llama` config -> our config."""
    architecture = fields.architecture(ARCHITECTURES)
    width = fields.integer("hidden_size", 4096)
    num_heads = fields.integer("num_attention_heads", 32)
    key_heads = fields.integer("num_key_value_heads", num_heads)
    turns = fields.table("rope_parameters")
    turns.fixed({"rope_type": "default", "partial_rotary_factor": 1.0})
    theta = turns.number("rope_theta", fields.number("rope_theta", 10_000.0))
    fields.fixed({"rope_theta": theta, "rope_scaling": None, "pretraining_tp": 1})
    attention = Attention(
        heads=num_heads,
        head_width=fields.integer("head_dim", head_width(width, num_heads, "hidden_size")),
        key_heads=None if key_heads == num_heads else key_heads,
        pattern="causal",
        positions=Rotary(theta=theta, length=fields.integer("max_position_embeddings", 2048)),
        bias=fields.flag("attention_bias", False),
        dropout=fields.rate("attention_dropout", 0.0),
    )
    forward = FeedForward(
        width=fields.integer("intermediate_size", 11_008),
        activation=fields.choice("hidden_act", ACTIVATIONS, "silu"),
        gated=True,
        bias=fields.flag("mlp_bias", False),
    )
    norm = Norm(kind="rms", eps=fields.positive("rms_norm_eps", 1e-6), bias=False)
    block = Block(attention=attention, feed_forward=forward, norm=norm, placement="pre")
    count = fields.integer("num_hidden_layers", 32)
    head = VocabularyHead(tied=fields.flag("tie_word_embeddings", False))
    dropout = fields.rate("classifier_dropout", 0.1)
    return TransformerConfig(
        width=width,
        tokens=Tokens(vocabulary=fields.integer("vocab_size", 32_000), width=width),
        decoder=uniform_stack(block, count, Embeddings(), final_norm=True),
        vocabulary_head=head if architecture.vocabulary else None,
        heads=heads(
            architecture, fields, {"sequence": {"bias": False}, "token": {"dropout": dropout}}
        ),
    )


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a Llama; the bare body has no prefix, everything on top of one has."""
    assert config.decoder is not None
    body = "" if bare(config) else PREFIX
    if any(head.kind == "span" for head in config.heads):
        body = "transformer."
    rules: list[Rule] = [Rename(f"{body}embed_tokens.weight", "tokens.weight")]
    for layer, block in enumerate(config.decoder.attention_blocks):
        rules += _block(f"{body}layers.{layer}", f"decoder.blocks.{layer}", block)
    rules += norm(f"{body}norm", "decoder.final_norm", bias=False)
    return [*rules, *projection_rules(config, "lm_head.weight"), *head_rules(config, HEADS)]


def _block(theirs: str, ours: str, block: Block) -> list[Rule]:
    sublayers = {
        "self_attn": ("attention", block.attention.bias, ("q", "k", "v", "o")),
        "mlp": ("feed_forward", block.feed_forward.bias, ("gate", "up", "down")),
    }
    names = {"q": "query", "k": "key", "v": "value", "o": "output"}
    rules: list[Rule] = [
        *norm(f"{theirs}.input_layernorm", f"{ours}.attention_norm", bias=False),
        *norm(f"{theirs}.post_attention_layernorm", f"{ours}.feed_forward_norm", bias=False),
    ]
    for module, (half, bias, projections) in sublayers.items():
        for name in projections:
            end = f"{ours}.{half}.{names.get(name, name)}"
            rules += linear(f"{theirs}.{module}.{name}_proj", end, bias=bias)
    return rules
