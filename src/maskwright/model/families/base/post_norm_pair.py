"""What BART and LED share: an encoder and a decoder, normalised after each sub-layer, with one
token table, a table of positions and a norm of the entry for each stack, and norms of a fixed eps.

COORDINATES and CONSTANTS are BART's spelling of config.json; the families add their positions.
"""

from __future__ import annotations

from collections.abc import Mapping
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
)
from maskwright.model.families.base.weights import Rename, Rule, Tie, Zeros, linear, norm
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
    uniform_stack,
)

HEADS = {
    "classifier": ("classification_head.out_proj", "classification_head.dense"),
    "span": ("qa_outputs",),
}
EPS = 1e-5

COORDINATES: dict[str, Coordinate] = {
    "vocab_size": "tokens.vocabulary",
    "d_model": "width",
    "encoder_layers": "encoder.blocks.#",
    "encoder_attention_heads": "encoder.blocks.0.attention.heads",
    "encoder_ffn_dim": "encoder.blocks.0.feed_forward.width",
    "decoder_layers": "decoder.blocks.#",
    "decoder_attention_heads": "decoder.blocks.0.attention.heads",
    "decoder_ffn_dim": "decoder.blocks.0.feed_forward.width",
    "activation_function": "encoder.blocks.0.feed_forward.activation",
    "dropout": "encoder.blocks.0.dropout",
    "attention_dropout": "encoder.blocks.0.attention.dropout",
    "activation_dropout": "encoder.blocks.0.feed_forward.dropout",
    "num_labels": head_field("labels", "classifier"),
}
CONSTANTS = {
    "tie_word_embeddings": True,
    "is_encoder_decoder": True,
    "init_std": 0.02,
    "use_cache": True,
}


def sized(count: int, width: int) -> dict[str, Any]:
    """The keys of a published shape but for its positions."""
    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in (
            ("layers", count),
            ("attention_heads", width // 64),
            ("ffn_dim", 4 * width),
        )
    }
    return {
        "vocab_size": 50265,
        "d_model": width,
        **sides,
        "activation_function": "gelu",
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
    }


def stack(fields: Fields, side: str, positions: Learned, *, scaled: bool = False) -> Stack:
    """The stack of a `side`, "encoder" or "decoder"."""
    width, dropout = fields.integer("d_model", 1024), fields.rate("dropout", 0.1)
    num_heads = fields.integer(f"{side}_attention_heads", 16)
    per_head = head_width(width, num_heads, "d_model")

    def attention(*, causal: bool) -> Attention:
        return Attention(
            heads=num_heads,
            head_width=per_head,
            pattern="causal" if causal else "bidirectional",
            dropout=fields.rate("attention_dropout", 0.0),
        )

    forward = FeedForward(
        width=fields.integer(f"{side}_ffn_dim", 4096),
        activation=fields.choice("activation_function", ACTIVATIONS, "gelu"),
        dropout=fields.rate("activation_dropout", 0.0),
    )
    writes = side == "decoder"
    block = Block(
        attention=attention(causal=writes),
        cross_attention=attention(causal=False) if writes else None,
        feed_forward=forward,
        norm=Norm(eps=EPS),
        placement="post",
        dropout=dropout,
    )
    entry = Embeddings(positions=positions, norm=Norm(eps=EPS), scaled=scaled, dropout=dropout)
    return uniform_stack(block, fields.integer(f"{side}_layers", 12), entry)


def model(
    fields: Fields, architecture: Architecture, encoder: Stack, decoder: Stack
) -> TransformerConfig:
    """Both stacks, with the head of an architecture."""
    width, rate = fields.integer("d_model", 1024), fields.rate("classifier_dropout", 0.0)
    options = {"classifier": {"transform": "tanh", "input_dropout": rate, "dropout": rate}}
    return TransformerConfig(
        width=width,
        tokens=Tokens(vocabulary=fields.integer("vocab_size", 50265), width=width),
        encoder=encoder,
        decoder=decoder,
        vocabulary_head=VocabularyHead() if architecture.vocabulary else None,
        heads=heads(architecture, fields, options),
    )


NAMES = {
    f"{ours}.{projection}": f"{theirs}.{short}_proj"
    for ours, theirs in (("attention", "self_attn"), ("cross_attention", "encoder_attn"))
    for projection, short in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "out"))
}


def weights(
    config: TransformerConfig, prefix: str, encoder_names: Mapping[str, str] = NAMES
) -> list[Rule]:
    """Every tensor; the bare body has no prefix, everything on top of one has.

    Args:
        encoder_names: the projections of attention in the encoder, ours -> theirs.
    """
    body = "" if bare(config) else prefix
    rules: list[Rule] = [Rename(f"{body}shared.weight", "tokens.weight")]
    for side, member in config.stacks.items():
        entry, names = f"{side}.embeddings", encoder_names if side == "encoder" else NAMES
        rules += [
            Tie(f"{body}{side}.embed_tokens.weight", "tokens.weight"),
            Rename(f"{body}{side}.embed_positions.weight", f"{entry}.position.weight"),
            *norm(f"{body}{side}.layernorm_embedding", f"{entry}.norm"),
        ]
        for layer, block in enumerate(member.attention_blocks):
            theirs, ours = f"{body}{side}.layers.{layer}", f"{side}.blocks.{layer}"
            rules += _block(theirs, ours, block, names)
    if config.vocabulary_head is not None:
        rules.append(Tie("lm_head.weight", "tokens.weight"))
        rules.append(Zeros("final_logits_bias", "tokens.weight"))
    return [*rules, *head_rules(config, HEADS)]


def _block(theirs: str, ours: str, block: Block, names: Mapping[str, str]) -> list[Rule]:
    halves = {"attention": "self_attn"}
    if block.cross_attention is not None:
        halves["cross_attention"] = "encoder_attn"
    rules: list[Rule] = []
    for half, half_name in halves.items():
        for projection, name in names.items():
            if projection.startswith(f"{half}."):
                rules += linear(f"{theirs}.{name}", f"{ours}.{projection}")
        rules += norm(f"{theirs}.{half_name}_layer_norm", f"{ours}.{half}_norm")
    return [
        *rules,
        *linear(f"{theirs}.fc1", f"{ours}.feed_forward.up"),
        *linear(f"{theirs}.fc2", f"{ours}.feed_forward.down"),
        *norm(f"{theirs}.final_layer_norm", f"{ours}.feed_forward_norm"),
    ]
