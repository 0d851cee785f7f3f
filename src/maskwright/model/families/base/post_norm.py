"""What BERT and its descendants share: bidirectional encoders, normalised after each sub-layer,
with learned positions and a norm on their embeddings.

A family says what is its own in tables and numbers; here is what would otherwise stand in several.
COORDINATES and CONSTANTS are BERT's spelling of config.json, NAMES its names of tensors, which some
of its descendants kept.
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
    look,
    projection_rules,
    tied,
)
from maskwright.model.families.base.weights import Rename, Rule, Tie, linear, norm
from maskwright.model.nn.config import (
    Activation,
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

COORDINATES: dict[str, Coordinate] = {
    "vocab_size": "tokens.vocabulary",
    "hidden_size": "width",
    "num_hidden_layers": "encoder.blocks.#",
    "num_attention_heads": "encoder.blocks.0.attention.heads",
    "intermediate_size": "encoder.blocks.0.feed_forward.width",
    "hidden_act": "encoder.blocks.0.feed_forward.activation",
    "hidden_dropout_prob": "encoder.blocks.0.dropout",
    "attention_probs_dropout_prob": "encoder.blocks.0.attention.dropout",
    "max_position_embeddings": "encoder.embeddings.positions.length",
    "type_vocab_size": "encoder.embeddings.segments",
    "layer_norm_eps": "encoder.blocks.0.norm.eps",
    "num_labels": head_field("labels", "classifier"),
    "tie_word_embeddings": tied,
}
POOLER: dict[str, Coordinate] = {
    "add_pooling_layer": lambda c: None if c.pooler or not bare(c) else False
}
"""One more coordinate for a family whose bare body has a pooler, but may lack it."""

FIXED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
CONSTANTS = {"initializer_range": 0.02, "use_cache": True, **FIXED}

DEFAULTS: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}


# The masked-language head, for `vocabulary_rules`.
HEAD = {
    "transform": "cls.predictions.transform.dense",
    "norm_name": "cls.predictions.transform.LayerNorm",
    "projection": "cls.predictions.decoder",
    "bias": "cls.predictions.bias",
}


# ------------------------------------------------------------------------------ configs
def sized(count: int, width: int, **keys: Any) -> dict[str, Any]:
    """The keys of a BERT with `count` layers, heads of width 64 and four inner units for each of
    the `width`."""
    shape = {"num_hidden_layers": count, "hidden_size": width, "num_attention_heads": width // 64}
    return {**DEFAULTS, **shape, "intermediate_size": 4 * width, **keys}


def encoder(fields: Fields, defaults: Mapping[str, Any], *, offset: int = 0) -> Stack:
    """The stack that a config in BERT's spelling means.

    Args:
        defaults: values of the keys that the config leaves out.
        offset: rows of the table of positions before the first position's.
    """
    fields.fixed(FIXED)
    return stack(
        num_layers=fields.integer("num_hidden_layers", defaults["num_hidden_layers"]),
        attention=attention(
            fields.integer("hidden_size", defaults["hidden_size"]),
            fields.integer("num_attention_heads", defaults["num_attention_heads"]),
            fields.rate("attention_probs_dropout_prob", defaults["attention_probs_dropout_prob"]),
            where="hidden_size",
        ),
        feed_forward=FeedForward(
            width=fields.integer("intermediate_size", defaults["intermediate_size"]),
            activation=fields.choice("hidden_act", ACTIVATIONS, defaults["hidden_act"]),
        ),
        norm=Norm(eps=fields.positive("layer_norm_eps", defaults["layer_norm_eps"])),
        dropout=fields.rate("hidden_dropout_prob", defaults["hidden_dropout_prob"]),
        positions=Learned(
            length=fields.integer("max_position_embeddings", defaults["max_position_embeddings"])
            - offset,
            offset=offset,
        ),
        segments=fields.integer("type_vocab_size", defaults["type_vocab_size"]),
    )


def attention(width: int, num_heads: int, dropout: float, *, where: str) -> Attention:
    """Attention of heads that share `width`, which the key `where` of config.json says."""
    per_head = head_width(width, num_heads, where)
    return Attention(heads=num_heads, head_width=per_head, pattern="bidirectional", dropout=dropout)


def stack(
    *,
    num_layers: int,
    attention: Attention,
    feed_forward: FeedForward,
    norm: Norm,
    dropout: float,
    positions: Learned,
    segments: int = 0,
) -> Stack:
    """Equal layers, with one norm and one rate of dropout throughout."""
    block = Block(
        attention=attention,
        feed_forward=feed_forward,
        norm=norm,
        placement="post",
        dropout=dropout,
    )
    embeddings = Embeddings(positions=positions, segments=segments, norm=norm, dropout=dropout)
    return uniform_stack(block, num_layers, embeddings)


def model(
    fields: Fields,
    defaults: Mapping[str, Any],
    architecture: Architecture,
    encoder: Stack,
    head_options: Mapping[str, Mapping[str, Any]],
    *,
    transform: Activation | None = None,
    token_width: int | None = None,
) -> TransformerConfig:
    """The encoder with its tokens, pooler and heads.

    Args:
        defaults: values of the keys that the config leaves out.
        head_options: fields of the heads, by name or kind.
        transform: the activation of the masked-language head; None: that of the blocks.
        token_width: of the token table; None: that of the model.
    """
    width = fields.integer("hidden_size", defaults["hidden_size"])
    vocabulary = fields.integer("vocab_size", defaults["vocab_size"])
    return TransformerConfig(
        width=width,
        tokens=Tokens(vocabulary=vocabulary, width=token_width or width),
        encoder=encoder,
        vocabulary_head=vocabulary_head(architecture, fields, encoder, transform),
        pooler=pooler(architecture, fields),
        heads=heads(architecture, fields, head_options),
    )


def vocabulary_head(
    architecture: Architecture, fields: Fields, stack: Stack, transform: Activation | None = None
) -> VocabularyHead | None:
    """The masked-language head of an architecture: dense, activation, norm, projection. Its
    activation is `transform`, or the blocks' if that is None."""
    block = stack.attention_blocks[0]
    head = VocabularyHead(
        transform=transform or block.feed_forward.activation,
        norm=block.norm,
        tied=fields.flag("tie_word_embeddings", True),
        bias=True,
    )
    return head if architecture.vocabulary else None


def pooler(architecture: Architecture, fields: Fields) -> bool:
    """Whether an architecture has its pooler; only the bare body may lack it."""
    optional = not architecture.vocabulary and not architecture.heads
    return architecture.pooler and (not optional or fields.flag("add_pooling_layer", True))


# ------------------------------------------------------------------------------ tensors
NAMES = {
    "tokens": "embeddings.word_embeddings",
    "encoder.embeddings.position": "embeddings.position_embeddings",
    "encoder.embeddings.segment": "embeddings.token_type_embeddings",
    "encoder.embeddings.norm": "embeddings.LayerNorm",
    "encoder.embeddings.project": "embeddings_project",
    "encoder.blocks.{}.attention.query": "encoder.layer.{}.attention.self.query",
    "encoder.blocks.{}.attention.key": "encoder.layer.{}.attention.self.key",
    "encoder.blocks.{}.attention.value": "encoder.layer.{}.attention.self.value",
    "encoder.blocks.{}.attention.output": "encoder.layer.{}.attention.output.dense",
    "encoder.blocks.{}.attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
    "encoder.blocks.{}.feed_forward.up": "encoder.layer.{}.intermediate.dense",
    "encoder.blocks.{}.feed_forward.down": "encoder.layer.{}.output.dense",
    "encoder.blocks.{}.feed_forward_norm": "encoder.layer.{}.output.LayerNorm",
    "pooler": "pooler.dense",
}
TABLES = ("tokens", "encoder.embeddings.position", "encoder.embeddings.segment")


def body(config: TransformerConfig, prefix: str, names: Mapping[str, str]) -> list[Rule]:
    """The rules for everything below the heads; names have the prefix unless the model is the bare
    body.

    Args:
        names: ours -> theirs; `{}` is the number of a layer that has weights of its own.
    """
    assert config.encoder is not None
    prefix = "" if bare(config) else prefix
    present = {
        "encoder.embeddings.segment": config.encoder.embeddings.segments > 0,
        "encoder.embeddings.project": config.tokens.width != config.width,
        "pooler": config.pooler,
    }
    rules: list[Rule] = []
    for ours, theirs in names.items():
        if present.get(ours, True):
            numbers = sorted(set(config.encoder.weights_of)) if "{}" in ours else [0]
            for number in numbers:
                name, bias = prefix + theirs.format(number), ours not in TABLES
                rules += linear(name, ours.format(number), bias=bias)
    return rules


def weights(
    config: TransformerConfig,
    prefix: str,
    names: Mapping[str, str],
    head: Mapping[str, str],
    head_names: Mapping[str, tuple[str, ...]],
) -> list[Rule]:
    """Every tensor.

    Args:
        prefix, names: see `body`.
        head: the arguments of `vocabulary_rules`.
        head_names: the names of the layers of each head, as `head_rules` takes them.
    """
    rules = [*body(config, prefix, names), *vocabulary_rules(config, **head)]
    return [*rules, *head_rules(config, head_names)]


def vocabulary_rules(
    config: TransformerConfig,
    *,
    transform: str,
    norm_name: str,
    projection: str,
    bias: str | None = None,
) -> list[Rule]:
    """The rules for the masked-language head, where the config has one.

    Args:
        bias: the name transformers gives the projection's bias beside its own.
    """
    head, ours = config.vocabulary_head, "vocabulary_head"
    if head is None:
        return []
    rules = [*linear(transform, f"{ours}.transform"), *norm(norm_name, f"{ours}.norm")]
    own_bias = f"{projection}.bias"
    if bias is None:
        rules.append(Rename(own_bias, f"{ours}.bias"))
    elif head.tied:
        rules += [Rename(bias, f"{ours}.bias"), Tie(own_bias, f"{ours}.bias")]
    else:
        # Untied, the newer generation adds its own and the older one `bias`: both are written.
        rules.append(Rename(own_bias, f"{ours}.bias", copies=(bias,)))
    return [*rules, *projection_rules(config, f"{projection}.weight")]


# ------------------------------------------------------------------------------ RoBERTa
# What RoBERTa changed, and Longformer kept: positions are counted from the row after the padding
# token's id, and whole texts are classified by a dense layer of their own.
ROBERTA_HEADS = {
    "sequence": ("classifier.out_proj", "classifier.dense"),
    "token": ("classifier",),
    "span": ("qa_outputs",),
    "choice": ("classifier",),
}
ROBERTA_HEAD = {
    "transform": "lm_head.dense",
    "norm_name": "lm_head.layer_norm",
    "projection": "lm_head.decoder",
    "bias": "lm_head.bias",
}
POSITIONS = "encoder.embeddings.positions"
ROBERTA_COORDINATES: dict[str, Coordinate] = {
    **COORDINATES,
    **POOLER,
    "max_position_embeddings": lambda c: (
        look(c, f"{POSITIONS}.offset") + look(c, f"{POSITIONS}.length")
    ),
    "pad_token_id": lambda c: look(c, f"{POSITIONS}.offset") - 1,
}
ROBERTA_SIZE = {
    "vocab_size": 50265,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}


def roberta_encoder(fields: Fields, defaults: Mapping[str, Any]) -> Stack:
    """`encoder` with the rows of positions that stand before the first one."""
    return encoder(fields, defaults, offset=fields.integer("pad_token_id", 1, smallest=0) + 1)


def roberta_head_options(head_rate: float, choice_rate: float) -> dict[str, dict[str, Any]]:
    """The fields of the heads with a rate of dropout for most, and one for choices."""
    return {
        "sequence": {"transform": "tanh", "input_dropout": head_rate, "dropout": head_rate},
        "token": {"dropout": head_rate},
        "choice": {"dropout": choice_rate},
    }
