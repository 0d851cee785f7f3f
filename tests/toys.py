"""Small things that tests share: rows in memory, tiny models, a vocabulary."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from maskwright.model.families.base.family import family
from maskwright.model.nn.config import Tokens
from maskwright.model.nn.initialise import build
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Vocabulary
from maskwright.text.store.rows import Rows
from maskwright.text.store.store import TokenStore
from nn.points import POINTS

VOCABULARY = Vocabulary(
    size=50, mask=4, special=(0, 1, 2, 3, 4), begin=2, end=3, sentinels=(1, 49, 48, 47)
)
PAD, CLS, SEP = 0, 2, 3


class FixedRows:
    """A row source of random ordinary tokens: two framed documents per row, some padding."""

    def __init__(self, count: int = 64, length: int = 16, *, pairs: bool = False) -> None:
        generator = np.random.default_rng(count * length)
        self.length = length
        self.fingerprint = f"toy-{count}-{length}"
        self.description = "toy rows"
        tokens = generator.integers(5, VOCABULARY.size, (count, length))
        documents = np.ones((count, length), dtype=np.int32)
        cut = length // 2
        documents[:, cut:] = 2
        tokens[:, [0, cut]] = CLS
        tokens[:, [cut - 1, length - 2]] = SEP
        tokens[:, -1] = PAD
        documents[:, -1] = 0
        positions = np.concatenate([np.arange(cut), np.arange(length - cut)])
        self.all = Rows(
            tokens=tokens,
            positions=np.broadcast_to(positions, tokens.shape).copy(),
            documents=documents,
            special=tokens < 5,
            starts_word=generator.random(tokens.shape) < 0.7,
            ids=np.arange(count),
            starts_sentence=(tokens >= 5) & (generator.random(tokens.shape) < 0.4),
            segments=(documents == 2).astype(np.int64) if pairs else None,
            pair_label=generator.integers(0, 2, count) if pairs else None,
        )

    def __len__(self) -> int:
        return len(self.all)

    def rows(self, indices: np.ndarray, epoch: int) -> Rows:
        return self.all.take(np.asarray(indices))


class FixedStore(TokenStore):
    """The rows of `tokens` (B, T) as documents."""

    def __init__(self, tokens: np.ndarray) -> None:
        self.tokens, self.num_documents = tokens.reshape(-1), len(tokens)
        self.offsets = np.arange(len(tokens) + 1) * tokens.shape[1]


def bert(architecture: str = "BertForMaskedLM", dropout: float = 0.0, seed: int = 0) -> Transformer:
    keys = {
        "vocab_size": VOCABULARY.size,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 32,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "architectures": [architecture],
    }
    return build(family("bert").config(keys), torch.Generator().manual_seed(seed))


def gpt2(dropout: float = 0.0, seed: int = 0) -> Transformer:
    keys = {
        "vocab_size": VOCABULARY.size,
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 2,
        "n_positions": 32,
        "embd_pdrop": dropout,
        "attn_pdrop": dropout,
        "resid_pdrop": dropout,
        "architectures": ["GPT2LMHeadModel"],
    }
    return build(family("gpt2").config(keys), torch.Generator().manual_seed(seed))


def images(seed: int = 0) -> Transformer:
    """Reads as many bytes of pixels as `FixedRows` has tokens."""
    keys = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "image_size": 4,
        "patch_size": 2,
        "num_channels": 1,
        "architectures": ["ViTForMaskedImageModeling"],
    }
    return build(family("vit").config(keys), torch.Generator().manual_seed(seed))


def static_vectors(seed: int = 0) -> Transformer:
    keys = {"vocab_size": VOCABULARY.size, "hidden_size": 16}
    return build(family("static-vectors").config(keys), torch.Generator().manual_seed(seed))


def elmo(seed: int = 0) -> Transformer:
    keys = {"vocab_size": VOCABULARY.size, "projection_size": 8, "cell_size": 10}
    keys |= {"filter_widths": 2, "filters": [5, 6], "max_characters": 5}
    return build(family("elmo").config(keys), torch.Generator().manual_seed(seed))


def encoder_decoder(seed: int = 0) -> Transformer:
    """Two stacks with learned positions, which notice where a document begins."""
    point = POINTS["post-norm encoder-decoder"]
    config = replace(point, tokens=Tokens(vocabulary=VOCABULARY.size, width=point.width))
    return build(config, torch.Generator().manual_seed(seed))
