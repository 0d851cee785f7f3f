"""ModernBERT: a bidirectional encoder with rotary positions, most of its layers looking nearby.

Notable: every n-th layer, from the first, sees all; the others see half of `local_attention` to
either side and turn by a theta of their own. Norms stand before each sub-layer, once more at the
entry (so the first layer has none before attention) and at the end; nothing has a bias by default
but the vocabulary's projection. `attention_dropout` is the rate of the weights and of what
attention gives; the inner half has its own, inside. The file's `Wi` is activation then gate.

The two generations of transformers say the same in other words (`layer_types` and
`rope_parameters`, or a cadence and two thetas), and each takes its defaults in silence where only
the other's are there: both are read, and both are written.
"""

from __future__ import annotations

from typing import Any

from maskwright.base.errors import ConfigError
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
    LARGEST,
    Attention,
    Block,
    Embeddings,
    FeedForward,
    Norm,
    Rotary,
    Stack,
    TextPooling,
    Tokens,
    TransformerConfig,
    VocabularyHead,
)

PAPERS = ["https://arxiv.org/abs/2412.13663"]
STYLE = "bert"
PREFIX = "model."
IGNORED = (".inv_freq",)
TOKEN_IDS = {
    "cls_token_id": "classify",
    "sep_token_id": "separator",
    "bos_token_id": "classify",
    "eos_token_id": "separator",
}

ARCHITECTURES = {
    "ModernBertModel": Architecture(),
    "ModernBertForMaskedLM": Architecture(vocabulary=True),
    "ModernBertForSequenceClassification": Architecture(heads=(("classifier", "sequence"),)),
    "ModernBertForTokenClassification": Architecture(heads=(("classifier", "token"),)),
    "ModernBertForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
    "ModernBertForMultipleChoice": Architecture(heads=(("choice", "choice"),), labels=1),
}
# Dense layer, activation and norm stand before every projection.
DENSE = ("head.dense", "head.norm")
HEADS = {name: ("classifier", *DENSE) for name in ("classifier", "span", "choice")}

POOLINGS: dict[str, TextPooling] = {"cls": "place", "mean": "mean"}
GLOBAL, LOCAL = "full_attention", "sliding_attention"
THETA = {GLOBAL: 160_000.0, LOCAL: 10_000.0}
OLD_THETA = {GLOBAL: "global_rope_theta", LOCAL: "local_rope_theta"}


def _blocks(config: TransformerConfig) -> tuple[Block, ...]:
    return () if config.encoder is None else config.encoder.attention_blocks


def _kinds(config: TransformerConfig) -> list[str]:
    return [GLOBAL if b.attention.window is None else LOCAL for b in _blocks(config)]


def _cadence(kinds: list[str]) -> int:
    """The distance between the layers that see all."""
    return next((i for i, kind in enumerate(kinds) if i and kind == GLOBAL), len(kinds) or 1)


def _theta(config: TransformerConfig, kind: str) -> float:
    """The theta of the layers of a kind; its default where there is none of them."""
    pairs = zip(_kinds(config), _blocks(config), strict=True)
    turning = (block.attention.positions for layer_kind, block in pairs if layer_kind == kind)
    return next(
        (positions.theta for positions in turning if isinstance(positions, Rotary)), THETA[kind]
    )


def _local(config: TransformerConfig) -> int:
    windows = (block.attention.window for block in _blocks(config))
    return next((2 * window[0] for window in windows if window is not None), 128)


def _transform(config: TransformerConfig) -> str | None:
    """The activation before the projection, whichever there is."""
    tops = [config.vocabulary_head, *config.heads]
    return next((top.transform for top in tops if top is not None), None)


def _pooling(config: TransformerConfig) -> str | None:
    """What a head for whole texts reads, as the key calls it."""
    named = {ours: theirs for theirs, ours in POOLINGS.items()}
    return next((named.get(head.pooling) for head in config.heads if head.pools), None)


COORDINATES: dict[str, Coordinate] = {
    "vocab_size": "tokens.vocabulary",
    "hidden_size": "width",
    "intermediate_size": "encoder.blocks.0.feed_forward.width",
    "num_hidden_layers": "encoder.blocks.#",
    "num_attention_heads": "encoder.blocks.0.attention.heads",
    "hidden_activation": "encoder.blocks.0.feed_forward.activation",
    "max_position_embeddings": "encoder.blocks.0.attention.positions.length",
    "norm_eps": "encoder.blocks.0.norm.eps",
    "norm_bias": "encoder.blocks.0.norm.bias",
    "attention_bias": "encoder.blocks.0.attention.bias",
    "mlp_bias": "encoder.blocks.0.feed_forward.bias",
    "classifier_bias": "encoder.blocks.0.norm.bias",
    "decoder_bias": lambda c: c.vocabulary_head and c.vocabulary_head.bias,
    "classifier_activation": _transform,
    "classifier_dropout": head_field("dropout", "classifier", "span", "choice"),
    "classifier_pooling": _pooling,
    "num_labels": head_field("labels", "classifier"),
    "attention_dropout": "encoder.blocks.0.attention.dropout",
    "embedding_dropout": "encoder.embeddings.dropout",
    "mlp_dropout": "encoder.blocks.0.feed_forward.dropout",
    "local_attention": _local,
    "layer_types": _kinds,
    "global_attn_every_n_layers": lambda c: _cadence(_kinds(c)),
    "rope_parameters": lambda c: {
        kind: {"rope_type": "default", "rope_theta": _theta(c, kind)} for kind in THETA
    },
    "global_rope_theta": lambda c: _theta(c, GLOBAL),
    "local_rope_theta": lambda c: _theta(c, LOCAL),
    "tie_word_embeddings": tied,
}
CONSTANTS = {
    "initializer_range": 0.02,
    "initializer_cutoff_factor": 2.0,
    "deterministic_flash_attn": False,
}


def _sized(count: int, width: int, inner: int) -> dict[str, Any]:
    return {
        "vocab_size": 50368,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": count,
        "num_attention_heads": width // 64,
        "hidden_activation": "gelu",
        "max_position_embeddings": 8192,
        "norm_eps": 1e-5,
        "local_attention": 128,
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160_000.0,
        "local_rope_theta": 10_000.0,
    }


SIZES = {"base": _sized(22, 768, 1152), "large": _sized(28, 1024, 2624)}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `modernbert` config -> our config."""
    architecture = fields.architecture(ARCHITECTURES)
    width, num_heads = fields.integer("hidden_size", 768), fields.integer("num_attention_heads", 12)
    norm = Norm(eps=fields.positive("norm_eps", 1e-5), bias=fields.flag("norm_bias", False))
    fields.fixed({"rope_scaling": None})
    forward = FeedForward(
        width=fields.integer("intermediate_size", 1152),
        activation=fields.choice("hidden_activation", ACTIVATIONS, "gelu"),
        gated=True,
        bias=fields.flag("mlp_bias", False),
        dropout=fields.rate("mlp_dropout", 0.0),
    )
    per_head = head_width(width, num_heads, "hidden_size")
    mixers = {kind: _attention(fields, kind, num_heads, per_head) for kind in THETA}
    blocks = tuple(
        Block(
            attention=mixers[kind],
            feed_forward=forward,
            norm=norm,
            placement="pre",
            attention_norm=layer > 0,
        )
        for layer, kind in enumerate(_layer_types(fields))
    )
    embeddings = Embeddings(norm=norm, dropout=fields.rate("embedding_dropout", 0.0))
    stack = Stack(
        embeddings=embeddings,
        blocks=blocks,
        weights_of=tuple(range(len(blocks))),
        final_norm=True,
    )
    return TransformerConfig(
        width=width,
        tokens=Tokens(vocabulary=fields.integer("vocab_size", 50368), width=width),
        encoder=stack,
        **_tops(architecture, fields, norm),
    )


def _attention(fields: Fields, kind: str, num_heads: int, head_width: int) -> Attention:
    turns = fields.table("rope_parameters").table(kind)
    turns.fixed({"rope_type": "default"})
    # Null is not the default here: the older generation then turns all layers alike.
    alike = kind == LOCAL and fields.null(OLD_THETA[LOCAL])
    stated = GLOBAL if alike else kind
    old_theta = fields.number(OLD_THETA[stated], THETA[stated])
    theta = turns.number("rope_theta", old_theta)
    fields.fixed({OLD_THETA[kind]: theta})
    if alike:
        turns.fixed({"rope_theta": old_theta})
    # Below 2 there is no half of it to either side.
    half = fields.integer("local_attention", 128, smallest=2) // 2
    dropout = fields.rate("attention_dropout", 0.0)
    return Attention(
        heads=num_heads,
        head_width=head_width,
        pattern="bidirectional",
        window=(half, half) if kind == LOCAL else None,
        positions=Rotary(theta=theta, length=fields.integer("max_position_embeddings", 8192)),
        bias=fields.flag("attention_bias", False),
        dropout=dropout,
        output_dropout=dropout,
    )


def _layer_types(fields: Fields) -> list[str]:
    """What each layer sees: the list, or a cadence; where both are there, both must say the same,
    because each generation of transformers reads only one of them."""
    count, every = fields.integer("num_hidden_layers", 22), "global_attn_every_n_layers"
    stated = fields.names("layer_types", tuple(THETA))
    cadence = fields.integer(every, _cadence(stated) if stated else 3)
    # More than the largest number of layers is refused by the stack, so one more is enough here.
    count = min(count, LARGEST["layers"] + 1)
    kinds = [LOCAL if layer % cadence else GLOBAL for layer in range(count)]
    if stated not in ([], kinds):
        raise ConfigError(
            "layer_types contradicts global_attn_every_n_layers",
            where="config.json: layer_types",
            found=f"{len(stated)} layers, {stated.count(GLOBAL)} of them {GLOBAL}",
            wanted=f"{count} layers, {GLOBAL} at each that {cadence} divides ({every})",
        )
    return kinds


def _tops(architecture: Architecture, fields: Fields, norm: Norm) -> dict[str, Any]:
    """The heads: each a dense layer with activation and norm, then its projection."""
    if architecture == Architecture():
        return {}
    # One axis says whether dense layer and norm have biases, so the two keys must agree.
    fields.fixed({"classifier_bias": norm.bias})
    pooling = fields.choice("classifier_pooling", POOLINGS, "cls")
    transform = fields.choice("classifier_activation", ACTIVATIONS, "gelu")
    rate = fields.rate("classifier_dropout", 0.0)
    dense = {"transform": transform, "norm": norm, "dropout": rate}
    options = {
        name: {**dense, "pooling": pooling} if kind in ("sequence", "choice") else dense
        for name, kind in architecture.heads
    }
    head = VocabularyHead(
        transform=transform,
        norm=norm,
        tied=fields.flag("tie_word_embeddings", True),
        bias=fields.flag("decoder_bias", True),
    )
    return {
        "vocabulary_head": head if architecture.vocabulary else None,
        "heads": heads(architecture, fields, options),
    }


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a ModernBERT; the bare body has no prefix, everything on top of one has."""
    assert config.encoder is not None
    head = config.vocabulary_head
    body = "" if bare(config) else PREFIX
    bias = config.encoder.attention_blocks[0].norm.bias
    rules: list[Rule] = [
        Rename(f"{body}embeddings.tok_embeddings.weight", "tokens.weight"),
        *norm(f"{body}embeddings.norm", "encoder.embeddings.norm", bias=bias),
        *norm(f"{body}final_norm", "encoder.final_norm", bias=bias),
    ]
    for layer, block in enumerate(config.encoder.attention_blocks):
        rules += _block(f"{body}layers.{layer}", f"encoder.blocks.{layer}", block)
    if head is not None:
        rules += linear("head.dense", "vocabulary_head.transform", bias=bias)
        rules += norm("head.norm", "vocabulary_head.norm", bias=bias)
        rules += [Rename("decoder.bias", "vocabulary_head.bias")] if head.bias else []
    return [*rules, *projection_rules(config, "decoder.weight"), *head_rules(config, HEADS)]


def _block(theirs: str, ours: str, block: Block) -> list[Rule]:
    mixer, inner, bias = block.attention, block.feed_forward, block.norm.bias
    attention_norm = norm(f"{theirs}.attn_norm", f"{ours}.attention_norm", bias=bias)
    projections = [f"{ours}.attention.{name}" for name in ("query", "key", "value")]
    gate_and_up = [f"{ours}.feed_forward.{name}" for name in ("gate", "up")]
    return [
        *(attention_norm if block.attention_norm else []),
        *fused(f"{theirs}.attn.Wqkv", projections, bias=mixer.bias),
        *linear(f"{theirs}.attn.Wo", f"{ours}.attention.output", bias=mixer.bias),
        *norm(f"{theirs}.mlp_norm", f"{ours}.feed_forward_norm", bias=bias),
        *fused(f"{theirs}.mlp.Wi", gate_and_up, bias=inner.bias),
        *linear(f"{theirs}.mlp.Wo", f"{ours}.feed_forward.down", bias=inner.bias),
    ]
