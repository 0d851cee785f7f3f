"""One vector for a text that was read in pieces, from the vectors of its pieces.

    vectors of pieces   a0 a1 a2 | b0 | c0 c1        (P, D), a text's pieces in order
    texts                0  0  0 |  1 |  2  2        (P,)
      -> the mean, or the largest of each number     (R, D)

A head with layers `over` the pieces lets these see each other first, as a hierarchical encoder does
(Pappagari et al. 2019, arXiv:1910.10781).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from maskwright.model.nn.config import (
    Block,
    ChunkPooling,
    Embeddings,
    Rotary,
    Stack,
    TransformerConfig,
    layers,
)


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
