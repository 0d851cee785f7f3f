"""Small models for tests, built from a seed: every published shape in miniature; and their folders,
as others write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from maskwright.model.checkpoint import files, pretrained
from maskwright.model.checkpoint.layout import About
from maskwright.model.families.base.family import Family, family
from maskwright.model.nn import initialise
from maskwright.model.nn.config import (
    Attention,
    Block,
    Embeddings,
    FeedForward,
    Norm,
    Patches,
    Sinusoidal,
    Stack,
    Tokens,
    TransformerConfig,
    VocabularyHead,
    layers,
)
from maskwright.model.nn.transformer import Transformer
from maskwright.text.tokenizer.tokenizer import Tokenizer

Tensors = dict[str, torch.Tensor]

NAMES = {"id2label": {"0": "no", "1": "yes", "2": "perhaps"}}
ENCODER: dict[str, Any] = {
    **{"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4},
    **{"intermediate_size": 40, "max_position_embeddings": 32, **NAMES},
}
DECODER = {"vocab_size": 61, "n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 32}
ROPE = {
    "full_attention": {"rope_type": "default", "rope_theta": 500.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
}
SMALL: dict[str, dict[str, Any]] = {
    "bert": ENCODER,
    "roberta": {
        **{**ENCODER, "max_position_embeddings": 34, "type_vocab_size": 1},
        **{"layer_norm_eps": 1e-5, "pad_token_id": 1},
    },
    "longformer": {
        **{**ENCODER, "max_position_embeddings": 34, "type_vocab_size": 1},
        **{"layer_norm_eps": 1e-5, "pad_token_id": 1, "attention_window": 6},
    },
    "big_bird": {**ENCODER, "block_size": 4, "num_random_blocks": 2},
    "electra": {**ENCODER, "embedding_size": 16},
    "albert": {**ENCODER, "embedding_size": 16},
    "distilbert": {
        **{"vocab_size": 61, "dim": 24, "n_layers": 3, "n_heads": 4, "hidden_dim": 40},
        **{"max_position_embeddings": 32, **NAMES},
    },
    "gpt2": {**DECODER, "n_inner": 40},
    "openai-gpt": {**DECODER, **NAMES},
    "llama": {
        **{**ENCODER, "num_key_value_heads": 2, "head_dim": 10, "rope_theta": 50.0},
        "rope_parameters": {"rope_type": "default", "rope_theta": 50.0},
    },
    "modernbert": {
        **{**ENCODER, "num_hidden_layers": 5, "num_attention_heads": 3, "intermediate_size": 20},
        "layer_types": [["full_attention", "sliding_attention"][i % 2] for i in range(5)],
        **{"local_attention": 4, "global_attn_every_n_layers": 2, "rope_parameters": ROPE},
        **{"global_rope_theta": 500.0, "local_rope_theta": 50.0},
    },
    "static-vectors": {"vocab_size": 61, "hidden_size": 24, **NAMES},
    "elmo": {
        **{"vocab_size": 61, "projection_size": 12, "cell_size": 30, "num_hidden_layers": 3},
        **{"max_characters": 6, "character_size": 5, "filter_widths": 2, "filters": [7, 9]},
        **{"num_highways": 1, **NAMES},
    },
    "ulmfit": {
        **{"vocab_size": 61, "embedding_size": 24, "hidden_size": 40, "num_hidden_layers": 3},
        **{"classifier_pooling": "mean", **NAMES},
    },
    "t5": {
        **{"vocab_size": 61, "d_model": 24, "d_kv": 10, "d_ff": 40, "num_heads": 4},
        **{"num_layers": 3, "num_decoder_layers": 2},
        **{"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10},
    },
    "vit": {
        **{k: ENCODER[k] for k in ENCODER if k not in ("vocab_size", "max_position_embeddings")},
        **{"image_size": 8, "patch_size": 4, "num_channels": 2, "encoder_stride": 4},
    },
    "bart": {
        **{"vocab_size": 61, "d_model": 24, "max_position_embeddings": 32, **NAMES},
        **{"encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 40},
        **{"decoder_layers": 2, "decoder_attention_heads": 3, "decoder_ffn_dim": 36},
    },
}
SMALL["led"] = {
    **{k: v for k, v in SMALL["bart"].items() if k != "max_position_embeddings"},
    **{"max_encoder_position_embeddings": 34, "max_decoder_position_embeddings": 32},
    "attention_window": 6,
}
# The families that transformers has, too.
THEIRS = [name for name in SMALL if family(name).in_transformers]


TEXTS = [name for name in SMALL if name != "vit"]
RECURRENT = [name for name in SMALL if name in ("elmo", "ulmfit")]


def readable(model: Transformer, tokens: torch.Tensor) -> torch.Tensor:
    """As many rows as `tokens` of what the model reads: these, or values of patches."""
    patches = model.config.tokens
    if not isinstance(patches, Patches):
        return tokens
    shape = (len(tokens), patches.length, patches.num_values)
    values = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    if patches.mask:
        values[0, 1:3] = torch.nan  # hidden
    return values


def small(family: Family, architecture: str | None = None, **keys: Any) -> TransformerConfig:
    """A member of the family that is small and has no two sizes alike."""
    chosen = {} if architecture is None else {"architectures": [architecture]}
    return family.config({**SMALL[family.name], **chosen, **keys})


def twin(*, causal: bool) -> TransformerConfig:
    """The twins of row A2: equal but for who may see whom, and the bias of the vocabulary head."""
    pattern = "causal" if causal else "bidirectional"
    block = Block(
        attention=Attention(heads=4, head_width=24, pattern=pattern, dropout=0.1),
        feed_forward=FeedForward(width=256, activation="relu"),
        norm=Norm(eps=1e-5),
        placement="pre",
        dropout=0.1,
    )
    blocks, weights_of = layers(block, 2)
    entry = Embeddings(positions=Sinusoidal(length=48), dropout=0.1)
    stack = Stack(embeddings=entry, blocks=blocks, weights_of=weights_of, final_norm=True)
    return TransformerConfig(
        width=96,
        tokens=Tokens(vocabulary=62, width=96),
        encoder=None if causal else stack,
        decoder=stack if causal else None,
        vocabulary_head=VocabularyHead(tied=False, bias=not causal),
    )


@torch.no_grad()
def model_of(config: TransformerConfig, seed: int = 0) -> Transformer:
    """A model whose every parameter is random, biases and norms too."""
    generator = torch.Generator().manual_seed(seed)
    model = initialise.build(config, generator)
    for parameter in model.parameters():
        if parameter is getattr(model.tokens, "spelling", None):
            continue
        parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def member_of(kind: str) -> Family:
    return next(member for member in map(family, SMALL) if kind in member.architectures)


def same(one: Transformer, other: Transformer) -> bool:
    theirs = dict(other.named_parameters())
    ours = dict(one.named_parameters())
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


def saved(
    folder: Path, model: Transformer, tokenizer: Tokenizer | None = None, name: str | None = None
) -> Path:
    """The folder of a model, without a manifest."""
    pretrained.save(model, tokenizer, folder, About(family=name))
    (folder / "MANIFEST.json").unlink()
    return folder


def tensors_of(folder: Path) -> Tensors:
    opened = files.open_folder(folder)
    return {name: opened.read(name) for name in opened.entries}


def rewritten(folder: Path, change: Callable[[Tensors], object]) -> Path:
    tensors = tensors_of(folder)
    change(tensors)
    (folder / files.WEIGHTS).write_bytes(b"".join(files.chunks(tensors)))
    return folder


def config_json(folder: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return value


def changed(folder: Path, **keys: Any) -> Path:
    (folder / "config.json").write_text(json.dumps({**config_json(folder), **keys}))
    return folder
