"""GPT, the first: a causal decoder, normalised after each sub-layer, with learned positions.

Notable: what this model type calls `gelu` is the tanh form; the exact form cannot be said. The
inner width is always four times the width, there is no norm at the entry or the end, and
projections are stored as (in, out), with query, key and value as one matrix. A text is classified
by the state of its last token, which alone has seen all of it.
"""

from __future__ import annotations

from typing import Any

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
    Stack,
    Tokens,
    TransformerConfig,
    VocabularyHead,
    layers,
)

MODEL_TYPE = "openai-gpt"
PAPERS = [
    "https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf"
]
STYLE = "gpt2"
PREFIX = "transformer."
# Buffers that older files carry: the causal triangle, and the numbers 0, 1, 2, …
IGNORED = (".attn.bias", "position_ids")

ARCHITECTURES = {
    "OpenAIGPTModel": Architecture(),
    "OpenAIGPTLMHeadModel": Architecture(vocabulary=True, generates=True),
    "OpenAIGPTForSequenceClassification": Architecture(heads=(("classifier", "sequence"),)),
}

ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}
THEIRS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}

COORDINATES: dict[str, Coordinate] = {
    "vocab_size": "tokens.vocabulary",
    "n_embd": "width",
    "n_layer": "decoder.blocks.#",
    "n_head": "decoder.blocks.0.attention.heads",
    "n_positions": "decoder.embeddings.positions.length",
    "afn": lambda c: (
        c.decoder and THEIRS.get(c.decoder.attention_blocks[0].feed_forward.activation)
    ),
    "resid_pdrop": "decoder.blocks.0.dropout",
    "attn_pdrop": "decoder.blocks.0.attention.dropout",
    "embd_pdrop": "decoder.embeddings.dropout",
    "layer_norm_epsilon": "decoder.blocks.0.norm.eps",
    "num_labels": head_field("labels", "classifier"),
    "tie_word_embeddings": tied,
}
CONSTANTS = {
    "initializer_range": 0.02,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_activation": None,
    "summary_proj_to_labels": True,
    "summary_first_dropout": 0.1,
}

SIZES: dict[str, dict[str, Any]] = {
    "base": {
        "vocab_size": 40478,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_positions": 512,
        "afn": "gelu",
        "resid_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "layer_norm_epsilon": 1e-5,
    }
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `openai-gpt` config -> our config."""
    architecture = fields.architecture(ARCHITECTURES)
    width, num_heads = fields.integer("n_embd", 768), fields.integer("n_head", 12)
    attention = Attention(
        heads=num_heads,
        head_width=head_width(width, num_heads, "n_embd"),
        pattern="causal",
        dropout=fields.rate("attn_pdrop", 0.1),
    )
    block = Block(
        attention=attention,
        feed_forward=FeedForward(
            width=4 * width, activation=fields.choice("afn", ACTIVATIONS, "gelu")
        ),
        norm=Norm(eps=fields.positive("layer_norm_epsilon", 1e-5)),
        placement="post",
        dropout=fields.rate("resid_pdrop", 0.1),
    )
    blocks, weights_of = layers(block, fields.integer("n_layer", 12))
    embeddings = Embeddings(
        positions=Learned(length=fields.integer("n_positions", 512)),
        dropout=fields.rate("embd_pdrop", 0.1),
    )
    head = VocabularyHead(tied=fields.flag("tie_word_embeddings", True))
    return TransformerConfig(
        width=width,
        tokens=Tokens(vocabulary=fields.integer("vocab_size", 40478), width=width),
        decoder=Stack(embeddings=embeddings, blocks=blocks, weights_of=weights_of),
        vocabulary_head=head if architecture.vocabulary else None,
        heads=heads(architecture, fields, {"classifier": {"bias": False}}),
    )


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a GPT; the bare body has no prefix, everything on top of one has."""
    body = "" if bare(config) else PREFIX
    rules: list[Rule] = [
        Rename(f"{body}tokens_embed.weight", "tokens.weight"),
        Rename(f"{body}positions_embed.weight", "decoder.embeddings.position.weight"),
    ]
    assert config.decoder is not None
    for layer in range(len(config.decoder.blocks)):
        rules += _block(f"{body}h.{layer}", f"decoder.blocks.{layer}")
    rules += projection_rules(config, "lm_head.weight")
    return [*rules, *head_rules(config, {"classifier": ("score",)})]


def _block(theirs: str, ours: str) -> list[Rule]:
    projections = [f"{ours}.attention.{name}" for name in ("query", "key", "value")]
    return [
        *fused(f"{theirs}.attn.c_attn", projections, transpose=True),
        *linear(f"{theirs}.attn.c_proj", f"{ours}.attention.output", transpose=True),
        *norm(f"{theirs}.ln_1", f"{ours}.attention_norm"),
        *linear(f"{theirs}.mlp.c_fc", f"{ours}.feed_forward.up", transpose=True),
        *linear(f"{theirs}.mlp.c_proj", f"{ours}.feed_forward.down", transpose=True),
        *norm(f"{theirs}.ln_2", f"{ours}.feed_forward_norm"),
    ]
