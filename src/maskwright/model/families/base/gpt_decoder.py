"""What GPT and GPT-2 share: a causal decoder with learned positions; projections are stored as (in,
out), with query, key and value as one matrix.

COORDINATES and CONSTANTS are their spelling of config.json; a family adds its activation and heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from maskwright.model.families.base.family import (
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
    Tokens,
    TransformerConfig,
    VocabularyHead,
    uniform_stack,
)

PREFIX = "transformer."

COORDINATES: dict[str, Coordinate] = {
    "vocab_size": "tokens.vocabulary",
    "n_embd": "width",
    "n_layer": "decoder.blocks.#",
    "n_head": "decoder.blocks.0.attention.heads",
    "n_positions": "decoder.embeddings.positions.length",
    "resid_pdrop": "decoder.blocks.0.dropout",
    "attn_pdrop": "decoder.blocks.0.attention.dropout",
    "embd_pdrop": "decoder.embeddings.dropout",
    "layer_norm_epsilon": "decoder.blocks.0.norm.eps",
    "tie_word_embeddings": tied,
    "num_labels": head_field("labels", "classifier"),
}
CONSTANTS = {
    "initializer_range": 0.02,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_activation": None,
    "summary_proj_to_labels": True,
    "summary_first_dropout": 0.1,
}
RATES = {"resid_pdrop": 0.1, "attn_pdrop": 0.1, "embd_pdrop": 0.1, "layer_norm_epsilon": 1e-5}


def decoder_model(
    fields: Fields,
    *,
    architecture: Architecture,
    vocabulary: int,
    positions: int,
    feed_forward: FeedForward,
    placement: Literal["pre", "post"],
    scaled: bool = True,
    head_options: Mapping[str, Mapping[str, Any]],
) -> TransformerConfig:
    """The decoder with the head of an architecture; a final norm stands behind layers that are
    normalised before their sub-layers.

    Args:
        vocabulary, positions: their numbers where the config leaves them out.
        scaled: whether the scores of attention are divided by the root of the width of a head.
        head_options: fields of the heads, by name or kind.
    """
    width, num_heads = fields.integer("n_embd", 768), fields.integer("n_head", 12)
    attention = Attention(
        heads=num_heads,
        head_width=head_width(width, num_heads, "n_embd"),
        pattern="causal",
        scaled=scaled,
        dropout=fields.rate("attn_pdrop", 0.1),
    )
    block = Block(
        attention=attention,
        feed_forward=feed_forward,
        norm=Norm(eps=fields.positive("layer_norm_epsilon", 1e-5)),
        placement=placement,
        dropout=fields.rate("resid_pdrop", 0.1),
    )
    embeddings = Embeddings(
        positions=Learned(length=fields.integer("n_positions", positions)),
        dropout=fields.rate("embd_pdrop", 0.1),
    )
    head = VocabularyHead(tied=fields.flag("tie_word_embeddings", True))
    return TransformerConfig(
        width=width,
        tokens=Tokens(vocabulary=fields.integer("vocab_size", vocabulary), width=width),
        decoder=uniform_stack(
            block, fields.integer("n_layer", 12), embeddings, final_norm=placement == "pre"
        ),
        vocabulary_head=head if architecture.vocabulary else None,
        heads=heads(architecture, fields, head_options),
    )


def weights(
    config: TransformerConfig,
    tokens: str,
    positions: str,
    head_names: Mapping[str, tuple[str, ...]],
) -> list[Rule]:
    """Every tensor; the bare body has no prefix, everything on top of one has.

    Args:
        tokens, positions: the names of their tables.
        head_names: the names of the layers of each head, as `head_rules` takes them.
    """
    body = "" if bare(config) else PREFIX
    rules: list[Rule] = [
        Rename(f"{body}{tokens}.weight", "tokens.weight"),
        Rename(f"{body}{positions}.weight", "decoder.embeddings.position.weight"),
    ]
    assert config.decoder is not None
    for layer in range(len(config.decoder.blocks)):
        theirs, ours = f"{body}h.{layer}", f"decoder.blocks.{layer}"
        projections = [f"{ours}.attention.{name}" for name in ("query", "key", "value")]
        rules += [
            *norm(f"{theirs}.ln_1", f"{ours}.attention_norm"),
            *fused(f"{theirs}.attn.c_attn", projections, transpose=True),
            *linear(f"{theirs}.attn.c_proj", f"{ours}.attention.output", transpose=True),
            *norm(f"{theirs}.ln_2", f"{ours}.feed_forward_norm"),
            *linear(f"{theirs}.mlp.c_fc", f"{ours}.feed_forward.up", transpose=True),
            *linear(f"{theirs}.mlp.c_proj", f"{ours}.feed_forward.down", transpose=True),
        ]
    if config.decoder.final_norm:
        rules += norm(f"{body}ln_f", "decoder.final_norm")
    return [*rules, *projection_rules(config, "lm_head.weight"), *head_rules(config, head_names)]
