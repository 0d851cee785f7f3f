"""ViT: an encoder that reads an image as a row of patches (Dosovitskiy et al. 2021).

Notable: norms stand before each sub-layer and at the end; a learned vector in front of the patches
stands for the image, and its last state is what is classified, without a pooler; only the bare body
has one. Images are of one size: positions are not interpolated. The head of masked images, there a
convolution of width 1 and a shuffle of pixels, is a linear layer over the states of patches.

transformers 5 has other names of modules in memory (`layers.0.attention.q_proj`) and goes on
writing the old ones; the old ones are written here, and both are read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from maskwright.model.families.base import post_norm
from maskwright.model.families.base.family import (
    ACTIVATIONS,
    Architecture,
    Coordinate,
    Fields,
    bare,
    head_field,
    head_rules,
    heads,
)
from maskwright.model.families.base.weights import Rename, Rule, Tie, linear, norm
from maskwright.model.nn.config import (
    Block,
    Embeddings,
    FeedForward,
    Learned,
    Norm,
    Patches,
    TransformerConfig,
    uniform_stack,
)

PAPERS = ["https://arxiv.org/abs/2010.11929"]
STYLE = "bert"
PREFIX = "vit."
SWITCHES = {"add_pooling_layer": "pooler."}

ARCHITECTURES = {
    "ViTModel": Architecture(pooler=True),
    "ViTForImageClassification": Architecture(heads=(("classifier", "sequence"),)),
    "ViTForMaskedImageModeling": Architecture(heads=(("decoder", "patch"),)),
}
HEADS = {"sequence": ("classifier",)}


def _stride(config: TransformerConfig) -> int | None:
    patches = config.tokens
    return patches.patch_size if isinstance(patches, Patches) and patches.mask else None


COORDINATES: dict[str, Coordinate] = {
    "hidden_size": "width",
    "num_hidden_layers": "encoder.blocks.#",
    "num_attention_heads": "encoder.blocks.0.attention.heads",
    "intermediate_size": "encoder.blocks.0.feed_forward.width",
    "hidden_act": "encoder.blocks.0.feed_forward.activation",
    "hidden_dropout_prob": "encoder.blocks.0.dropout",
    "attention_probs_dropout_prob": "encoder.blocks.0.attention.dropout",
    "layer_norm_eps": "encoder.blocks.0.norm.eps",
    "image_size": "tokens.image_size",
    "patch_size": "tokens.patch_size",
    "num_channels": "tokens.channels",
    "num_labels": head_field("labels", "classifier"),
    "pooler_output_size": lambda config: config.width if config.pooler else None,
    "encoder_stride": _stride,
    **post_norm.POOLER,
}
FIXED = {"qkv_bias": True, "pooler_act": "tanh"}
CONSTANTS = {"initializer_range": 0.02, "encoder_stride": 16, **FIXED}


def _sized(count: int, width: int, num_heads: int, patch: int, image: int = 224) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "num_hidden_layers": count,
        "num_attention_heads": num_heads,
        "intermediate_size": 4 * width,
        "image_size": image,
        "patch_size": patch,
    }


SIZES = {
    "tiny-patch16-224": _sized(12, 192, 3, 16),
    "small-patch16-224": _sized(12, 384, 6, 16),
    "base-patch16-224": _sized(12, 768, 12, 16),
    "base-patch16-384": _sized(12, 768, 12, 16, 384),
    "base-patch32-224": _sized(12, 768, 12, 32),
    "base-patch32-384": _sized(12, 768, 12, 32, 384),
    "large-patch16-224": _sized(24, 1024, 16, 16),
    "large-patch16-384": _sized(24, 1024, 16, 16, 384),
    "large-patch32-384": _sized(24, 1024, 16, 32, 384),
    "huge-patch14-224": {**_sized(32, 1280, 16, 14), "intermediate_size": 5120},
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `vit` config -> our config."""
    architecture = fields.architecture(ARCHITECTURES)
    width = fields.integer("hidden_size", 768)
    fields.fixed({**FIXED, "pooler_output_size": width})
    dropout = fields.rate("hidden_dropout_prob", 0.0)
    attention = post_norm.attention(
        width,
        fields.integer("num_attention_heads", 12),
        fields.rate("attention_probs_dropout_prob", 0.0),
        where="hidden_size",
    )
    forward = FeedForward(
        width=fields.integer("intermediate_size", 3072),
        activation=fields.choice("hidden_act", ACTIVATIONS, "gelu"),
    )
    norm = Norm(eps=fields.positive("layer_norm_eps", 1e-12))
    block = Block(
        attention=attention, feed_forward=forward, norm=norm, placement="pre", dropout=dropout
    )
    count = fields.integer("num_hidden_layers", 12)
    patches = Patches(
        image_size=fields.integer("image_size", 224),
        patch_size=fields.integer("patch_size", 16),
        channels=fields.integer("num_channels", 3),
        width=width,
        mask=("decoder", "patch") in architecture.heads,
    )
    top = heads(architecture, fields)
    if patches.mask:
        fields.fixed({"encoder_stride": patches.patch_size})
        top = (replace(top[0], labels=patches.num_values),)
    entry = Embeddings(positions=Learned(length=patches.length), dropout=dropout)
    return TransformerConfig(
        width=width,
        tokens=patches,
        encoder=uniform_stack(block, count, entry, final_norm=True),
        pooler=post_norm.pooler(architecture, fields),
        heads=top,
    )


# Of a layer: our module, the name that is written, the name in the memory of transformers 5.
LAYER = (
    ("attention_norm", "layernorm_before", "layernorm_before"),
    ("attention.query", "attention.attention.query", "attention.q_proj"),
    ("attention.key", "attention.attention.key", "attention.k_proj"),
    ("attention.value", "attention.attention.value", "attention.v_proj"),
    ("attention.output", "attention.output.dense", "attention.o_proj"),
    ("feed_forward_norm", "layernorm_after", "layernorm_after"),
    ("feed_forward.up", "intermediate.dense", "mlp.fc1"),
    ("feed_forward.down", "output.dense", "mlp.fc2"),
)


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a ViT."""
    patches, body = config.tokens, "" if bare(config) else PREFIX
    assert config.encoder is not None and isinstance(patches, Patches)
    embeddings, width = f"{body}embeddings", patches.width
    kernel = (width, patches.channels, patches.patch_size, patches.patch_size)
    projection = f"{embeddings}.patch_embeddings.projection"
    shapes = {
        ("cls_token", "tokens.cls.weight"): ((1, 1, width), (1, width)),
        ("position_embeddings", "encoder.embeddings.position.weight"): (
            (1, patches.length, width),
            (patches.length, width),
        ),
    }
    if patches.mask:
        shapes["mask_token", "tokens.mask.weight"] = shapes["cls_token", "tokens.cls.weight"]
    rules: list[Rule] = [
        *(Rename(f"{embeddings}.{t}", ours, shapes=pair) for (t, ours), pair in shapes.items()),
        Rename(
            f"{projection}.weight", "tokens.weight", shapes=(kernel, (width, patches.num_values))
        ),
        Rename(f"{projection}.bias", "tokens.bias"),
    ]
    for layer in config.encoder.weights_of:
        for module, written, in_memory in LAYER:
            ours = f"encoder.blocks.{layer}.{module}"
            rules += linear(f"{body}encoder.layer.{layer}.{written}", ours)
            rules += [
                Tie(f"{body}layers.{layer}.{in_memory}.{end}", f"{ours}.{end}")
                for end in ("weight", "bias")
            ]
    rules += norm(f"{body}layernorm", "encoder.final_norm")
    rules += linear(f"{body}pooler.dense", "pooler") if config.pooler else []
    if not patches.mask:
        return [*rules, *head_rules(config, HEADS)]
    matrix = (patches.num_values, width)
    weight = Rename("decoder.0.weight", "heads.decoder.weight", shapes=((*matrix, 1, 1), matrix))
    return [*rules, weight, Rename("decoder.0.bias", "heads.decoder.bias")]
