"""BigBird: BERT whose tokens see blocks of their text: neighbours, first, last, some drawn.

Notable: short texts (704 tokens as published) are read in full. transformers draws random blocks in
training alone, and in evaluation reads the first block so many times more; `random` of config.json
says whether to do so too (`nn/block_sparse.py`). Not as there: blocks are those of the text and not
of its padded row, a short text does not turn the blocks off for those that follow, dropout of
embeddings stands behind their norm, and `use_bias` false is not built. All classes but that for
answers have BERT's pooler, which the one for whole texts does not read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from maskwright.model.families.base import post_norm
from maskwright.model.families.base.family import Architecture, Coordinate, Fields, head_field
from maskwright.model.families.base.sliding_window import with_blocks
from maskwright.model.families.base.weights import Rule
from maskwright.model.nn.config import BlockSparse, RandomBlocks, TransformerConfig

PAPERS = ["https://arxiv.org/abs/2007.14062"]
STYLE = "bert"
PREFIX = "bert."
IGNORED = (".position_ids",)
SWITCHES = {"add_pooling_layer": "pooler."}
TOKEN_IDS = {"sep_token_id": "separator"}

ARCHITECTURES = {
    "BigBirdModel": Architecture(pooler=True),
    "BigBirdForMaskedLM": Architecture(pooler=True, vocabulary=True),
    "BigBirdForPreTraining": Architecture(
        pooler=True, vocabulary=True, heads=(("pair", "sequence"),), labels=2
    ),
    "BigBirdForSequenceClassification": Architecture(True, heads=(("classifier", "sequence"),)),
    "BigBirdForTokenClassification": Architecture(pooler=True, heads=(("classifier", "token"),)),
    "BigBirdForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
    "BigBirdForMultipleChoice": Architecture(pooler=True, heads=(("choice", "choice"),), labels=1),
}
OUTPUT = ("output.dense", "output.LayerNorm")
HEADS = {
    "pair": ("cls.seq_relationship",),
    "sequence": ("classifier.out_proj", "classifier.dense"),
    "token": ("classifier",),
    "span": tuple(f"qa_classifier.{n}" for n in ("qa_outputs", "intermediate.dense", *OUTPUT)),
    "choice": ("classifier",),
}

BLOCKS = "encoder.blocks.0.attention.blocks"
TYPES = {"block_sparse": True, "original_full": False}
RULES: dict[str, RandomBlocks] = {rule: rule for rule in get_args(RandomBlocks)}


def _blocks(config: TransformerConfig) -> BlockSparse:
    """Those of the first layer, if it has some."""
    layers = () if config.encoder is None else config.encoder.attention_blocks
    return (layers[0].attention.blocks if layers else None) or BlockSparse()


COORDINATES: dict[str, Coordinate] = {
    **post_norm.COORDINATES,
    **post_norm.POOLER,
    "classifier_dropout": head_field("dropout", "classifier"),
    "rescale_embeddings": "encoder.embeddings.scaled",
    "attention_type": lambda c: "block_sparse" if _blocks(c).sparse else "original_full",
    "block_size": f"{BLOCKS}.size",
    "num_random_blocks": f"{BLOCKS}.num_random",
    "random": lambda c: None if _blocks(c).random == "reference" else _blocks(c).random,
}
CONSTANTS = {**post_norm.CONSTANTS, "use_bias": True}
LONG = {"vocab_size": 50358, "hidden_act": "gelu_new", "max_position_embeddings": 4096}
BASE = post_norm.sized(12, 768, **LONG)
SIZES = {
    "base": BASE,
    "large": post_norm.sized(24, 1024, **LONG),
    "base-trivia": post_norm.sized(12, 768, **LONG, type_vocab_size=16),
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `big_bird` config -> our config."""
    architecture = fields.architecture(ARCHITECTURES)
    fields.fixed({"use_bias": True})
    encoder = post_norm.encoder(fields, BASE)
    blocks = BlockSparse(
        size=fields.integer("block_size", 64),
        num_random=fields.integer("num_random_blocks", 3, smallest=0),
        random=fields.choice("random", RULES, "reference"),
        sparse=fields.choice("attention_type", TYPES, "block_sparse"),
    )
    embeddings = replace(encoder.embeddings, scaled=fields.flag("rescale_embeddings", False))
    block, rate = encoder.attention_blocks[0], encoder.embeddings.dropout
    inner, head_rate = block.feed_forward, fields.rate("classifier_dropout", rate)
    dense = {"transform": inner.activation, "reads_pooler": False}
    layer = {"transform": inner.activation, "inner": inner.width, "norm": block.norm}
    options: dict[str, dict[str, Any]] = {
        "sequence": {**dense, "input_dropout": head_rate, "dropout": head_rate},
        "pair": {},
        "token": {"dropout": head_rate},
        "span": {**layer, "input_dropout": rate},
        "choice": {"dropout": rate},
    }
    encoder = with_blocks(replace(encoder, embeddings=embeddings), blocks)
    return post_norm.model(fields, BASE, architecture, encoder, options)


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a BigBird."""
    names = {**post_norm.NAMES, "pooler": "pooler"}
    return post_norm.weights(config, PREFIX, names, post_norm.HEAD, HEADS)
