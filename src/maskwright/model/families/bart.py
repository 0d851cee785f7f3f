"""BART: an encoder and a decoder, normalised after each sub-layer, with learned positions.

Notable: one token table, but a table of positions and a norm of the entry for each stack; both look
positions up two rows further on, so the tables have two rows more than `max_position_embeddings`.
Norms have a fixed eps. The decoder starts with the end token; a text is classified by the decoder's
state at its last one. `final_logits_bias` is a buffer that is zero in every BART; a file where it
is not is refused.
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
    layers,
)

MODEL_TYPE = "bart"
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
HEADS = {
    "classifier": ("classification_head.out_proj", "classification_head.dense"),
    "span": ("qa_outputs",),
}

EPS, OFFSET = 1e-5, 2

COORDINATES: dict[str, Coordinate] = {
    "vocab_size": "tokens.vocabulary",
    "d_model": "width",
    "encoder_layers": "encoder.blocks.#",
    "encoder_attention_heads": "encoder.blocks.0.attention.heads",
    "encoder_ffn_dim": "encoder.blocks.0.feed_forward.width",
    "decoder_layers": "decoder.blocks.#",
    "decoder_attention_heads": "decoder.blocks.0.attention.heads",
    "decoder_ffn_dim": "decoder.blocks.0.feed_forward.width",
    "max_position_embeddings": "encoder.embeddings.positions.length",
    "activation_function": "encoder.blocks.0.feed_forward.activation",
    "dropout": "encoder.blocks.0.dropout",
    "attention_dropout": "encoder.blocks.0.attention.dropout",
    "activation_dropout": "encoder.blocks.0.feed_forward.dropout",
    "scale_embedding": "encoder.embeddings.scaled",
    "classifier_dropout": head_field("dropout", "classifier"),
    "num_labels": head_field("labels", "classifier"),
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
CONSTANTS = {
    "tie_word_embeddings": True,
    "is_encoder_decoder": True,
    "init_std": 0.02,
    "use_cache": True,
}


def _sized(count: int, width: int) -> dict[str, Any]:
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
        "max_position_embeddings": 1024,
        "activation_function": "gelu",
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
        "scale_embedding": False,
    }


SIZES = {"base": _sized(6, 768), "large": _sized(12, 1024)}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `bart` config -> our config."""
    fields.fixed(FIXED)
    architecture = fields.architecture(ARCHITECTURES)
    width, dropout = fields.integer("d_model", 1024), fields.rate("dropout", 0.1)
    entry = Embeddings(
        positions=Learned(length=fields.integer("max_position_embeddings", 1024), offset=OFFSET),
        norm=Norm(eps=EPS),
        scaled=fields.flag("scale_embedding", False),
        dropout=dropout,
    )

    def stack(side: str, *, causal: bool) -> Stack:
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
        block = Block(
            attention=attention(causal=causal),
            cross_attention=attention(causal=False) if causal else None,
            feed_forward=forward,
            norm=Norm(eps=EPS),
            placement="post",
            dropout=dropout,
        )
        blocks, weights_of = layers(block, fields.integer(f"{side}_layers", 12))
        return Stack(embeddings=entry, blocks=blocks, weights_of=weights_of)

    rate = fields.rate("classifier_dropout", 0.0)
    options = {"classifier": {"transform": "tanh", "input_dropout": rate, "dropout": rate}}
    return TransformerConfig(
        width=width,
        tokens=Tokens(vocabulary=fields.integer("vocab_size", 50265), width=width),
        encoder=stack("encoder", causal=False),
        decoder=stack("decoder", causal=True),
        vocabulary_head=VocabularyHead() if architecture.vocabulary else None,
        heads=heads(architecture, fields, options),
    )


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a BART; the bare body has no prefix, everything on top of one has."""
    body = "" if bare(config) else PREFIX
    rules: list[Rule] = [Rename(f"{body}shared.weight", "tokens.weight")]
    for side, stack in config.stacks.items():
        entry = f"{side}.embeddings"
        rules += [
            Tie(f"{body}{side}.embed_tokens.weight", "tokens.weight"),
            Rename(f"{body}{side}.embed_positions.weight", f"{entry}.position.weight"),
            *norm(f"{body}{side}.layernorm_embedding", f"{entry}.norm"),
        ]
        for layer, block in enumerate(stack.blocks):
            rules += _block(f"{body}{side}.layers.{layer}", f"{side}.blocks.{layer}", block)
    if config.vocabulary_head is not None:
        rules.append(Tie("lm_head.weight", "tokens.weight"))
        rules.append(Zeros("final_logits_bias", "tokens.weight"))
    return [*rules, *head_rules(config, HEADS)]


def _block(theirs: str, ours: str, block: Block) -> list[Rule]:
    halves = {"attention": "self_attn"}
    if block.cross_attention is not None:
        halves["cross_attention"] = "encoder_attn"
    rules: list[Rule] = []
    for half, name in halves.items():
        for projection, short in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "out")):
            rules += linear(f"{theirs}.{name}.{short}_proj", f"{ours}.{half}.{projection}")
        rules += norm(f"{theirs}.{name}_layer_norm", f"{ours}.{half}_norm")
    return [
        *rules,
        *linear(f"{theirs}.fc1", f"{ours}.feed_forward.up"),
        *linear(f"{theirs}.fc2", f"{ours}.feed_forward.down"),
        *norm(f"{theirs}.final_layer_norm", f"{ours}.feed_forward_norm"),
    ]
