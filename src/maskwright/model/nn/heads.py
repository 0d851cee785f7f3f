"""Hidden states -> scores: over the vocabulary, and over a task's labels.

The vocabulary head is split where a loss wants to fuse: `hidden -> transform -> head_hidden`, then
one projection with `weight` and `bias`. A dense transform has a bias where its norm has one.

Of a text that was read in pieces a head makes one vector from those of its pieces:

    vectors of pieces   a0 a1 a2 | b0 | c0 c1        (P, D), a text's pieces in order
    texts                0  0  0 |  1 |  2  2        (P,)
      -> the mean, or the largest of each number     (R, D)

Layers `over` the pieces let these see each other first, as a hierarchical encoder does (Pappagari
et al. 2019, arXiv:1910.10781).
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from maskwright.base.errors import ConfigError
from maskwright.model.nn.config import (
    Block,
    ChunkPooling,
    Embeddings,
    Head,
    Rotary,
    Stack,
    TransformerConfig,
    VocabularyHead,
    layers,
)
from maskwright.model.nn.feed_forward import ACTIVATIONS
from maskwright.model.nn.kernels.dropout import dropout
from maskwright.model.nn.kernels.linear import Linear, spare_rows
from maskwright.model.nn.mask import same_document
from maskwright.model.nn.norm import NormModule
from maskwright.model.nn.stack import StackModule


class VocabularyHeadModule(nn.Module):
    """The transform before the projection, the projection's own weight if untied, and its bias."""

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, config: VocabularyHead, model: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        tokens = model.tokens
        width = model.width if config.transform is None else tokens.width
        if config.tied and width != tokens.width:
            raise ConfigError(
                "a tied head reads vectors as wide as the token table",
                where="vocabulary_head.transform",
                found=f"hidden width {width}, token width {tokens.width}",
                do="give the head a transform, or set tied = false",
            )
        self.scale = model.width**-0.5 if config.scaled else 1.0
        self.transform: nn.Linear | None = None
        self.norm: NormModule | None = None
        if config.transform is not None:
            has_bias = config.norm is None or config.norm.bias
            self.transform = Linear(model.width, width, bias=has_bias)
        if config.norm is not None:
            self.norm = NormModule(config.norm, width)
        weight = None if config.tied else nn.Parameter(torch.empty(tokens.vocabulary, width))
        if weight is not None:
            _draw(weight)
        self.register_parameter("weight", weight)
        bias = nn.Parameter(torch.zeros(tokens.vocabulary)) if config.bias else None
        self.register_parameter("bias", bias)

    def forward(self, hidden: Float[Tensor, "*any D"]) -> Float[Tensor, "*any E"]:
        count, spare = hidden.shape[0], 0
        if self.transform is not None and self.config.transform is not None:
            if hidden.dim() == 2 and (spare := spare_rows(hidden)):
                hidden = F.pad(hidden, (0, 0, 0, spare))
            hidden = ACTIVATIONS[self.config.transform](self.transform(hidden))
        if self.norm is not None:
            hidden = self.norm(hidden)
        hidden = hidden[:count] if spare else hidden
        return hidden if self.scale == 1.0 else hidden * self.scale


class HeadModule(nn.Module):
    """Dropout, a dense layer with its activation and norm where there is one, dropout, and one
    projection to `labels` scores. Of texts in pieces it makes one vector first."""

    bias: nn.Parameter | None

    def __init__(self, config: Head, width: int) -> None:
        super().__init__()
        self.config = config
        self.transform: nn.Linear | None = None
        if config.transform is not None:
            has_bias = config.norm is None or config.norm.bias
            self.transform = Linear(width, width, bias=has_bias)
        self.norm = None if config.norm is None else NormModule(config.norm, width)
        self.weight = nn.Parameter(torch.empty(config.labels, width))
        _draw(self.weight)
        bias = nn.Parameter(torch.zeros(config.labels)) if config.bias else None
        self.register_parameter("bias", bias)
        self.over = None if config.over is None else StackModule(config.over, width, width)

    def together(
        self, vectors: Float[Tensor, "P D"], texts: Int[Tensor, " P"], pooling: ChunkPooling
    ) -> Float[Tensor, "R D"]:
        """A vector of each text from those of its pieces."""
        rows, real = in_rows(vectors, texts)
        if self.over is not None:
            rows = self.over(rows, visible=same_document(real.to(torch.int32)))
        return pooled(rows, real, pooling)

    @torch.no_grad()
    def rescale(self, centre: float, spread: float) -> None:
        """Fold a unit into the weights, in place: scores `s` become `centre + spread * s`."""
        self.weight.mul_(spread)
        if self.bias is not None:
            self.bias.mul_(spread).add_(centre)

    def forward(self, hidden: Float[Tensor, "*any D"]) -> Float[Tensor, "*any L"]:
        config = self.config
        hidden = dropout(hidden, config.input_dropout, self.training)
        if self.transform is not None and config.transform is not None:
            hidden = ACTIVATIONS[config.transform](self.transform(hidden))
        if self.norm is not None:
            hidden = self.norm(hidden)
        return F.linear(dropout(hidden, config.dropout, self.training), self.weight, self.bias)


def in_rows(
    vectors: Float[Tensor, "P D"], texts: Int[Tensor, " P"]
) -> tuple[Float[Tensor, "R N D"], Bool[Tensor, "R N"]]:
    """The pieces of each text as a row, and which places of the rows are pieces.

    Args:
        texts: the number of the text of each piece, 0 … R - 1, rising.
    """
    counts = torch.bincount(texts)
    slots = torch.arange(len(texts), device=texts.device) - (counts.cumsum(0) - counts)[texts]
    real = torch.arange(int(counts.max()), device=texts.device) < counts[:, None]
    rows = vectors.new_zeros(*real.shape, vectors.shape[1])
    return rows.index_put((texts, slots), vectors), real


def pooled(
    rows: Float[Tensor, "R N D"], real: Bool[Tensor, "R N"], pooling: ChunkPooling
) -> Float[Tensor, "R D"]:
    """The mean, or the largest of each number, over the places of a row that are `real`."""
    if pooling == "max":
        return rows.masked_fill(~real[..., None], -torch.inf).amax(1)
    total = rows.masked_fill(~real[..., None], 0.0).float().sum(1)
    return (total / real.sum(1, keepdim=True)).to(rows.dtype)


def layers_over(config: TransformerConfig, count: int = 2) -> Stack:
    """`count` layers over the pieces of a text, shaped as the last layer of the stack, in pre-norm
    order."""
    last_block = list(config.stacks.values())[-1].blocks[-1]
    context = replace(
        last_block.attention, pattern="bidirectional", window=None, positions=Rotary(), scaled=True
    )
    block = Block(
        attention=context,
        feed_forward=last_block.feed_forward,
        norm=last_block.norm,
        placement="pre",
        dropout=last_block.dropout,
    )
    blocks, weights_of = layers(block, count)
    return Stack(embeddings=Embeddings(), blocks=blocks, weights_of=weights_of, final_norm=True)


def _draw(weight: Tensor) -> None:
    """Fill `weight` with normal numbers, if it has memory (`EmbeddingTable` says why)."""
    if not weight.is_meta:
        nn.init.normal_(weight, std=0.02)
