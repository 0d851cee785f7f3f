"""BERT: a bidirectional encoder, normalised after each sub-layer, with learned positions.

Notable: `gelu` is the exact (erf) form here, as in the reference library; the first TensorFlow code
used the tanh form. The masked-language head has a transform (dense, activation, norm), the token
table as its projection, and a bias of its own. Where the table is not tied, the bias is written
under both names that the two generations of the reference library read. The bare body may lack its
pooler.
"""

from __future__ import annotations

from typing import Any

from maskwright.errors import ConfigError
from maskwright.families.family import ACTIVATIONS, Coordinate, Fields, Kit, heads
from maskwright.families.weights import Rename, Rule, Tie, linear, norm
from maskwright.nn.config import (
    Attention,
    Block,
    Embeddings,
    FeedForward,
    Head,
    Learned,
    Norm,
    Stack,
    Tokens,
    TransformerConfig,
    VocabularyHead,
    layers,
)

MODEL_TYPE = "bert"
PAPERS = ["https://arxiv.org/abs/1810.04805", "https://arxiv.org/abs/1908.08962"]
STYLE = "bert"
PREFIX = "bert."
IGNORED = (".position_ids",)
SWITCHES = {"add_pooling_layer": "pooler."}

ARCHITECTURES = {
    "BertModel": Kit(pooler=True),
    "BertForMaskedLM": Kit(vocabulary=True),
    "BertForPreTraining": Kit(
        pooler=True, vocabulary=True, heads=(("pair", "sequence"),), labels=2
    ),
    "BertForSequenceClassification": Kit(pooler=True, heads=(("classifier", "sequence"),)),
    "BertForTokenClassification": Kit(heads=(("classifier", "token"),)),
    "BertForQuestionAnswering": Kit(heads=(("span", "span"),), labels=2),
    "BertForNextSentencePrediction": Kit(pooler=True, heads=(("pair", "sequence"),), labels=2),
}
HEAD_NAMES = {"pair": "cls.seq_relationship", "classifier": "classifier", "span": "qa_outputs"}

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
    "classifier_dropout": lambda c: _classifiers(c)[0].dropout if _classifiers(c) else None,
    "num_labels": lambda c: _classifiers(c)[0].labels if _classifiers(c) else None,
    "add_pooling_layer": lambda c: None if c.pooler or not _bare(c) else False,
    "tie_word_embeddings": lambda c: c.vocabulary_head is None or c.vocabulary_head.tied,
}
CONSTANTS = {
    "initializer_range": 0.02,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "use_cache": True,
}

BASE: dict[str, Any] = {
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


def _sized(count: int, width: int, **keys: Any) -> dict[str, Any]:
    shape = {"num_hidden_layers": count, "hidden_size": width, "num_attention_heads": width // 64}
    return {**BASE, **shape, "intermediate_size": 4 * width, **keys}


SIZES = {
    "tiny": _sized(2, 128),
    "mini": _sized(4, 256),
    "small": _sized(4, 512),
    "medium": _sized(8, 512),
    "base": BASE,
    "base-cased": _sized(12, 768, vocab_size=28996),
    "large": _sized(24, 1024),
}


def point(fields: Fields) -> TransformerConfig:
    """Hugging Face `bert` config -> our point."""
    fields.fixed({key: CONSTANTS[key] for key in ("position_embedding_type", "is_decoder",
                                                  "add_cross_attention")})  # fmt: skip
    kit = fields.kit(ARCHITECTURES)
    width, num_heads = fields.whole("hidden_size", 768), fields.whole("num_attention_heads", 12)
    if width % num_heads:
        raise ConfigError("the heads do not divide the width", where="config.json: hidden_size",
                          found=width, wanted=f"a multiple of {num_heads}")  # fmt: skip
    activation = fields.choice("hidden_act", ACTIVATIONS, "gelu")
    dropout = fields.rate("hidden_dropout_prob", 0.1)
    eps = Norm(eps=fields.positive("layer_norm_eps", 1e-12))
    attention = Attention(
        heads=num_heads,
        head_width=width // num_heads,
        pattern="bidirectional",
        dropout=fields.rate("attention_probs_dropout_prob", 0.1),
    )
    forward = FeedForward(width=fields.whole("intermediate_size", 3072), activation=activation)
    block = Block(
        attention=attention, feed_forward=forward, norm=eps, placement="post", dropout=dropout
    )
    blocks, weights_of = layers(block, fields.whole("num_hidden_layers", 12))
    embeddings = Embeddings(
        positions=Learned(length=fields.whole("max_position_embeddings", 512)),
        segments=fields.whole("type_vocab_size", 2),
        norm=eps,
        dropout=dropout,
    )
    tied = fields.flag("tie_word_embeddings", True)
    head = VocabularyHead(transform=activation, norm=eps, tied=tied, bias=True)
    bare = not kit.vocabulary and not kit.heads
    return TransformerConfig(
        width=width,
        tokens=Tokens(vocabulary=fields.whole("vocab_size", 30522), width=width),
        encoder=Stack(embeddings=embeddings, blocks=blocks, weights_of=weights_of),
        vocabulary_head=head if kit.vocabulary else None,
        pooler=kit.pooler and (not bare or fields.flag("add_pooling_layer", True)),
        heads=heads(kit, fields, fields.rate("classifier_dropout", dropout)),
    )


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a BERT; the bare body has no prefix, everything on top of one has."""
    body = "" if _bare(config) else PREFIX
    rules: list[Rule] = [
        Rename(f"{body}embeddings.word_embeddings.weight", "tokens.weight"),
        Rename(
            f"{body}embeddings.position_embeddings.weight", "encoder.embeddings.position.weight"
        ),
        Rename(
            f"{body}embeddings.token_type_embeddings.weight", "encoder.embeddings.segment.weight"
        ),
        *norm(f"{body}embeddings.LayerNorm", "encoder.embeddings.norm"),
    ]
    assert config.encoder is not None
    for layer in range(len(config.encoder.blocks)):
        rules += _block(f"{body}encoder.layer.{layer}", f"encoder.blocks.{layer}")
    if config.pooler:
        rules += linear(f"{body}pooler.dense", "pooler")
    if config.vocabulary_head is not None:
        rules += _vocabulary_head(config.vocabulary_head)
    for head in config.heads:
        rules += linear(HEAD_NAMES[head.name], f"heads.{head.name}")
    return rules


def _block(theirs: str, ours: str) -> list[Rule]:
    return [
        *linear(f"{theirs}.attention.self.query", f"{ours}.attention.query"),
        *linear(f"{theirs}.attention.self.key", f"{ours}.attention.key"),
        *linear(f"{theirs}.attention.self.value", f"{ours}.attention.value"),
        *linear(f"{theirs}.attention.output.dense", f"{ours}.attention.output"),
        *norm(f"{theirs}.attention.output.LayerNorm", f"{ours}.attention_norm"),
        *linear(f"{theirs}.intermediate.dense", f"{ours}.feed_forward.up"),
        *linear(f"{theirs}.output.dense", f"{ours}.feed_forward.down"),
        *norm(f"{theirs}.output.LayerNorm", f"{ours}.feed_forward_norm"),
    ]


def _vocabulary_head(head: VocabularyHead) -> list[Rule]:
    theirs, ours = "cls.predictions", "vocabulary_head"
    rules = [
        *linear(f"{theirs}.transform.dense", f"{ours}.transform"),
        *norm(f"{theirs}.transform.LayerNorm", f"{ours}.norm"),
    ]
    if head.tied:
        bias = Rename(f"{theirs}.bias", f"{ours}.bias")
        tied = Tie(f"{theirs}.decoder.weight", "tokens.weight")
        return [*rules, bias, tied, Tie(f"{theirs}.decoder.bias", f"{ours}.bias")]
    # Untied, the newer generation adds `decoder.bias` and the older one `bias`: both are written.
    return [
        *rules,
        Rename(f"{theirs}.decoder.bias", f"{ours}.bias", copies=(f"{theirs}.bias",)),
        Rename(f"{theirs}.decoder.weight", f"{ours}.weight"),
    ]


def _bare(config: TransformerConfig) -> bool:
    return config.vocabulary_head is None and not config.heads


def _classifiers(config: TransformerConfig) -> list[Head]:
    return [head for head in config.heads if head.name == "classifier"]
