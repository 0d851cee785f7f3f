"""T5: an encoder and a decoder that know positions only by a learned bias per distance.

Notable: no biases, RMS norms before each sub-layer and at the end (with dropout after it), scores
not scaled, one rate for all dropout. Version 1.0 ties the vocabulary's projection to the token
table and scales hidden states by width^-0.5; version 1.1 does neither, and its inner half is gated,
where `gelu` is the tanh form. The table of distances belongs to a stack but is stored in its first
layer. The decoder starts with the padding token.

The two generations of transformers disagree about `tie_word_embeddings`: the newer ties
always, reads the key as "scaled", and moves it to `scale_decoder_outputs` when it saves. Both forms
are read; written is the older form, which both read alike: a projection that is not scaled stands
in the file even where it is shared (`lm_head_is_shared` is ours, so that we know again).
"""

from __future__ import annotations

from typing import Any

from maskwright.model.families.base.family import (
    ACTIVATIONS,
    Architecture,
    Coordinate,
    Fields,
    head_field,
    head_rules,
    heads,
)
from maskwright.model.families.base.weights import Rename, Rule, Tie, linear, norm
from maskwright.model.nn.config import (
    Attention,
    Block,
    Embeddings,
    FeedForward,
    Norm,
    Relative,
    Stack,
    Tokens,
    TransformerConfig,
    VocabularyHead,
    uniform_stack,
)

PAPERS = ["https://arxiv.org/abs/1910.10683", "https://arxiv.org/abs/2002.05202"]
STYLE = "t5"
PREFIX = "transformer."
# The first exports carry a table of distances for cross-attention, which nothing reads.
IGNORED = (".EncDecAttention.relative_attention_bias.weight",)
SWITCHES = {"lm_head_is_stored": "lm_head."}
TOKEN_IDS = {"decoder_start_token_id": "pad"}

ARCHITECTURES = {
    "T5Model": Architecture(decoder=True),
    "T5EncoderModel": Architecture(decoder=False),
    "T5ForConditionalGeneration": Architecture(vocabulary=True, generates=True, decoder=True),
    "T5ForSequenceClassification": Architecture(heads=(("classifier", "sequence"),), decoder=True),
    "T5ForTokenClassification": Architecture(heads=(("classifier", "token"),), decoder=False),
    "T5ForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2, decoder=True),
}
FORMERLY = {"T5WithLMHeadModel": "T5ForConditionalGeneration"}  # until 2020
HEADS = {
    "sequence": ("classification_head.out_proj", "classification_head.dense"),
    "token": ("classifier",),
    "span": ("qa_outputs",),
}


def _projection(config: TransformerConfig) -> str | None:
    forward = config.encoder and config.encoder.attention_blocks[0].feed_forward
    if not forward:
        return None
    if forward.gated:
        return "gated-gelu" if forward.activation == "gelu_new" else f"gated-{forward.activation}"
    return forward.activation


def _tied(config: TransformerConfig) -> bool:
    """What `tie_word_embeddings` says; a bare body says what its version does."""
    if config.vocabulary_head is not None:
        return config.vocabulary_head.scaled
    return not next(iter(config.stacks.values())).attention_blocks[0].feed_forward.gated


COORDINATES: dict[str, Coordinate] = {
    "vocab_size": "tokens.vocabulary",
    "d_model": "width",
    "d_kv": "encoder.blocks.0.attention.head_width",
    "d_ff": "encoder.blocks.0.feed_forward.width",
    "num_layers": "encoder.blocks.#",
    "num_decoder_layers": lambda c: len([*c.stacks.values()][-1].blocks),
    "num_heads": "encoder.blocks.0.attention.heads",
    "relative_attention_num_buckets": "encoder.blocks.0.attention.positions.buckets",
    "relative_attention_max_distance": "encoder.blocks.0.attention.positions.max_distance",
    "dropout_rate": "encoder.blocks.0.dropout",
    "layer_norm_epsilon": "encoder.blocks.0.norm.eps",
    "feed_forward_proj": _projection,
    "dense_act_fn": "encoder.blocks.0.feed_forward.activation",
    "is_gated_act": "encoder.blocks.0.feed_forward.gated",
    "tie_word_embeddings": _tied,
    "lm_head_is_shared": lambda c: (
        bool(c.vocabulary_head and c.vocabulary_head.tied and not c.vocabulary_head.scaled) or None
    ),
    "classifier_dropout": head_field("dropout", "classifier"),
    "num_labels": head_field("labels", "classifier"),
}
CONSTANTS = {
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "is_decoder": False,
    "use_cache": True,
}


def _sized(count: int, width: int, num_heads: int, inner: int, **keys: Any) -> dict[str, Any]:
    return {
        "vocab_size": 32128,
        "d_model": width,
        "d_kv": 64,
        "d_ff": inner,
        "num_layers": count,
        "num_decoder_layers": count,
        "num_heads": num_heads,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "dropout_rate": 0.1,
        "layer_norm_epsilon": 1e-6,
        "feed_forward_proj": "relu",
        **keys,
    }


GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
SIZES = {
    "small": _sized(6, 512, 8, 2048),
    "base": _sized(12, 768, 12, 3072),
    "large": _sized(24, 1024, 16, 4096),
    "3b": _sized(24, 1024, 32, 16384, d_kv=128),
    "11b": _sized(24, 1024, 128, 65536, d_kv=128),
    "v1.1-small": _sized(8, 512, 6, 1024, **GATED),
    "v1.1-base": _sized(12, 768, 12, 2048, **GATED),
    "v1.1-large": _sized(24, 1024, 16, 2816, **GATED),
    "v1.1-xl": _sized(24, 2048, 32, 5120, **GATED),
    "v1.1-xxl": _sized(24, 4096, 64, 10240, **GATED),
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `t5` config -> our config."""
    architecture = fields.architecture(ARCHITECTURES)
    fields.fixed({"is_decoder": False})
    if architecture.decoder:
        fields.fixed({"is_encoder_decoder": True})
    width, dropout = fields.integer("d_model", 512), fields.rate("dropout_rate", 0.1)
    forward = _feed_forward(fields, dropout)
    table = Relative(
        buckets=fields.integer("relative_attention_num_buckets", 32, smallest=4),
        max_distance=fields.integer("relative_attention_max_distance", 128, smallest=2),
    )

    def attention(**keys: Any) -> Attention:
        return Attention(
            heads=fields.integer("num_heads", 8),
            head_width=fields.integer("d_kv", 64),
            bias=False,
            scaled=False,
            dropout=dropout,
            **keys,
        )

    def stack(count: int, mixer: Attention, crossing: Attention | None = None) -> Stack:
        norm = Norm(kind="rms", eps=fields.positive("layer_norm_epsilon", 1e-6))
        block = Block(
            attention=mixer,
            cross_attention=crossing,
            feed_forward=forward,
            norm=norm,
            placement="pre",
            dropout=dropout,
        )
        entry = Embeddings(dropout=dropout)
        return uniform_stack(block, count, entry, final_norm=True, final_dropout=dropout)

    count = fields.integer("num_layers", 6)
    encoder = stack(count, attention(pattern="bidirectional", positions=table))
    decoder = stack(
        fields.integer("num_decoder_layers", count),
        attention(pattern="causal", positions=table),
        attention(pattern="bidirectional"),
    )
    rate = fields.rate("classifier_dropout", 0.0)
    options: dict[str, dict[str, Any]] = {
        "sequence": {"transform": "tanh", "input_dropout": rate, "dropout": rate},
        "token": {"dropout": rate},
    }
    return TransformerConfig(
        width=width,
        tokens=Tokens(vocabulary=fields.integer("vocab_size", 32128), width=width),
        encoder=encoder,
        decoder=decoder if architecture.decoder else None,
        vocabulary_head=_vocabulary_head(fields) if architecture.vocabulary else None,
        heads=heads(architecture, fields, options),
    )


def _feed_forward(fields: Fields, dropout: float) -> FeedForward:
    """`feed_forward_proj`, unless `dense_act_fn` says more exactly what the function is."""
    functions = {**ACTIVATIONS, **{f"gated-{name}": ours for name, ours in ACTIVATIONS.items()}}
    functions["gated-gelu"] = "gelu_new"
    activation = fields.choice("feed_forward_proj", functions, "relu")
    gated = fields.choice("feed_forward_proj", {n: "-" in n for n in functions}, "relu")
    fields.fixed({"is_gated_act": gated})
    if fields.has("dense_act_fn"):
        activation = fields.choice("dense_act_fn", ACTIVATIONS, "relu")
    width = fields.integer("d_ff", 2048)
    return FeedForward(width=width, activation=activation, gated=gated, bias=False, dropout=dropout)


def _vocabulary_head(fields: Fields) -> VocabularyHead:
    tied = fields.flag("tie_word_embeddings", True)
    scaled = fields.flag("scale_decoder_outputs", tied)
    shared = tied and not fields.flag("lm_head_is_stored", True)
    return VocabularyHead(scaled=scaled, tied=scaled or fields.flag("lm_head_is_shared", shared))


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a T5; only under a classifier have names a prefix."""
    body = PREFIX if any(head.name == "classifier" for head in config.heads) else ""
    rules: list[Rule] = [Rename(f"{body}shared.weight", "tokens.weight")]
    for side, stack in config.stacks.items():
        first_attention = f"{body}{side}.block.0.layer.0.SelfAttention"
        rules += [
            Tie(f"{body}{side}.embed_tokens.weight", "tokens.weight"),
            Rename(f"{first_attention}.relative_attention_bias.weight", f"{side}.relative.weight"),
            *norm(f"{body}{side}.final_layer_norm", f"{side}.final_norm", bias=False),
        ]
        for layer, block in enumerate(stack.attention_blocks):
            rules += _block(f"{body}{side}.block.{layer}.layer", f"{side}.blocks.{layer}", block)
    head = config.vocabulary_head
    if head is not None and head.tied:
        rules.append(Tie("lm_head.weight", "tokens.weight", written=not head.scaled))
    elif head is not None:
        rules.append(Rename("lm_head.weight", "vocabulary_head.weight"))
    return [*rules, *head_rules(config, HEADS)]


def _block(theirs: str, ours: str, block: Block) -> list[Rule]:
    crosses = block.cross_attention is not None
    halves = {"attention": "0.SelfAttention"}
    halves |= {"cross_attention": "1.EncDecAttention"} if crosses else {}
    rules: list[Rule] = []
    for half, published in halves.items():
        for projection in ("query", "key", "value", "output"):
            rules += linear(
                f"{theirs}.{published}.{projection[0]}", f"{ours}.{half}.{projection}", bias=False
            )
        rules += norm(f"{theirs}.{published[0]}.layer_norm", f"{ours}.{half}_norm", bias=False)
    last_layer = f"{theirs}.{len(halves)}"
    inner = {"up": "wi_1", "gate": "wi_0"} if block.feed_forward.gated else {"up": "wi"}
    for projection, name in {**inner, "down": "wo"}.items():
        rules += linear(
            f"{last_layer}.DenseReluDense.{name}", f"{ours}.feed_forward.{projection}", bias=False
        )
    return [*rules, *norm(f"{last_layer}.layer_norm", f"{ours}.feed_forward_norm", bias=False)]
