"""The shapes of all parameters of a config, computed without allocation.

So a hostile or mistyped `config.json` can be rejected by its memory requirement before any tensor
exists, and the header of a file can be checked before its data is read.
"""

from __future__ import annotations

import math

from maskwright.model.nn.config import (
    Attention,
    Block,
    FeedForward,
    Learned,
    Norm,
    Relative,
    Stack,
    TransformerConfig,
)

Shape = tuple[int, ...]
Shapes = dict[str, Shape]


def parameters(config: TransformerConfig) -> Shapes:
    """Return {name: shape} of all parameters of `Transformer(config)`."""
    tokens = config.tokens
    shapes: Shapes = {"tokens.weight": (tokens.vocabulary, tokens.width)}
    for name, stack in config.stacks.items():
        shapes |= _stack(name, stack, tokens.width, config.width)
    if config.pooler:
        shapes |= _linear("pooler", config.width, config.width, True)
    shapes |= _vocabulary_head(config)
    for head in config.heads:
        name, width = f"heads.{head.name}", config.width
        if head.transform is not None:
            has_bias = head.norm is None or head.norm.bias
            shapes |= _linear(f"{name}.transform", width, width, has_bias)
        if head.norm is not None:
            shapes |= _norm(f"{name}.norm", width, head.norm)
        shapes |= _linear(name, head.labels, width, head.bias)
        if head.over is not None:
            shapes |= _stack(f"{name}.over", head.over, width, width)
    return shapes


def num_parameters(config: TransformerConfig) -> int:
    return sum(math.prod(shape) for shape in parameters(config).values())


def _stack(name: str, stack: Stack, token_width: int, width: int) -> Shapes:
    entry = stack.embeddings
    shapes: Shapes = {}
    if isinstance(entry.positions, Learned):
        rows = entry.positions.length + entry.positions.offset
        shapes[f"{name}.embeddings.position.weight"] = (rows, token_width)
    if entry.segments:
        shapes[f"{name}.embeddings.segment.weight"] = (entry.segments, token_width)
    if entry.norm is not None:
        shapes |= _norm(f"{name}.embeddings.norm", token_width, entry.norm)
    if token_width != width:
        shapes |= _linear(f"{name}.embeddings.project", width, token_width, True)
    for layer in sorted(set(stack.weights_of)):
        shapes |= _block(f"{name}.blocks.{layer}", stack.blocks[layer], width)
    for block in stack.blocks:  # all layers share one table (`model/nn/stack.py`)
        if isinstance(relative := block.attention.positions, Relative):
            shapes[f"{name}.relative.weight"] = (relative.buckets, block.attention.heads)
    if stack.final_norm:
        shapes |= _norm(f"{name}.final_norm", width, stack.blocks[-1].norm)
    return shapes


def _block(name: str, block: Block, width: int) -> Shapes:
    shapes = _attention(f"{name}.attention", block.attention, width)
    if block.attention_norm:
        shapes |= _norm(f"{name}.attention_norm", width, block.norm)
    if block.cross_attention is not None:
        shapes |= _attention(f"{name}.cross_attention", block.cross_attention, width)
        shapes |= _norm(f"{name}.cross_attention_norm", width, block.norm)
    shapes |= _feed_forward(f"{name}.feed_forward", block.feed_forward, width)
    return shapes | _norm(f"{name}.feed_forward_norm", width, block.norm)


def _attention(name: str, attention: Attention, width: int) -> Shapes:
    inner = attention.heads * attention.head_width
    shapes: Shapes = {}
    for projection in ("query", "key", "value"):
        shapes |= _linear(f"{name}.{projection}", inner, width, attention.bias)
    return shapes | _linear(f"{name}.output", width, inner, attention.bias)


def _feed_forward(name: str, forward: FeedForward, width: int) -> Shapes:
    shapes = _linear(f"{name}.up", forward.width, width, forward.bias)
    if forward.gated:
        shapes |= _linear(f"{name}.gate", forward.width, width, forward.bias)
    return shapes | _linear(f"{name}.down", width, forward.width, forward.bias)


def _vocabulary_head(config: TransformerConfig) -> Shapes:
    head, tokens = config.vocabulary_head, config.tokens
    shapes: Shapes = {}
    if head is None:
        return shapes
    width = config.width if head.transform is None else tokens.width
    if head.transform is not None:
        has_bias = head.norm is None or head.norm.bias
        shapes |= _linear("vocabulary_head.transform", width, config.width, has_bias)
    if head.norm is not None:
        shapes |= _norm("vocabulary_head.norm", width, head.norm)
    if not head.tied:
        shapes["vocabulary_head.weight"] = (tokens.vocabulary, width)
    if head.bias:
        shapes["vocabulary_head.bias"] = (tokens.vocabulary,)
    return shapes


def _linear(name: str, rows: int, columns: int, bias: bool) -> Shapes:
    shapes: Shapes = {f"{name}.weight": (rows, columns)}
    if bias:
        shapes[f"{name}.bias"] = (rows,)
    return shapes


def _norm(name: str, width: int, norm: Norm) -> Shapes:
    shapes: Shapes = {f"{name}.weight": (width,)}
    if norm.kind == "layer" and norm.bias:
        shapes[f"{name}.bias"] = (width,)
    return shapes
