"""Points of the configuration space that tests walk over: tiny, together they touch every axis."""

from __future__ import annotations

from dataclasses import replace

import torch

from maskwright.model.nn.config import (
    Attention,
    Block,
    BlockSparse,
    Embeddings,
    FeedForward,
    GlobalTokens,
    Head,
    Learned,
    Norm,
    Relative,
    Rotary,
    Sinusoidal,
    Stack,
    Tokens,
    TransformerConfig,
    VocabularyHead,
)
from maskwright.model.nn.initialise import build
from maskwright.model.nn.mask import AttentionMask
from maskwright.model.nn.transformer import Transformer

WIDTH, VOCABULARY, LENGTH = 16, 31, 24
LAYER_NORM, RMS = Norm(eps=1e-5), Norm(kind="rms", eps=1e-6)


def sees_all(marked: torch.Tensor) -> AttentionMask:
    """The mask of queries that are global tokens (B, Q): each sees every key."""
    return AttentionMask(
        lambda row, query, key: marked[row, query] & (key >= 0), "sees_all", marked.shape[0]
    )


def attention(pattern: str = "bidirectional", **fields: object) -> Attention:
    return Attention(heads=2, head_width=8, pattern=pattern, **fields)


def block(mixer: Attention, placement: str = "post", **fields: object) -> Block:
    defaults = {"feed_forward": FeedForward(width=32), "norm": LAYER_NORM}
    return Block(attention=mixer, placement=placement, **(defaults | fields))


def stack(*blocks: Block, **fields: object) -> Stack:
    defaults = {
        "embeddings": Embeddings(positions=Learned(length=LENGTH)),
        "weights_of": tuple(range(len(blocks))),
    }
    return Stack(blocks=blocks, **(defaults | fields))


def config(**fields: object) -> TransformerConfig:
    defaults = {
        "width": WIDTH,
        "tokens": Tokens(vocabulary=VOCABULARY, width=WIDTH),
        "vocabulary_head": VocabularyHead(),
    }
    return TransformerConfig(**(defaults | fields))


def _two_stacks(positions: Relative | None, placement: str, norm: Norm, final: bool) -> dict:
    learned = positions is None
    plain = {"bias": learned, "scaled": learned}
    table = Learned(length=LENGTH, offset=2) if learned else None
    entry = Embeddings(positions=table, norm=norm if learned else None)
    parts = {"norm": norm, "feed_forward": FeedForward(width=32, bias=learned)}
    encoder = block(attention(positions=positions, **plain), placement, **parts)
    reading = attention("causal", positions=positions, **plain)
    decoder = block(reading, placement, cross_attention=attention(**plain), **parts)
    return {
        "encoder": stack(encoder, encoder, embeddings=entry, final_norm=final),
        "decoder": stack(decoder, decoder, embeddings=entry, final_norm=final),
    }


PAIRED = Embeddings(positions=Learned(length=LENGTH), segments=2, norm=LAYER_NORM)
GATED = FeedForward(width=24, gated=True, bias=False)
TURNING = Rotary(theta=100.0)
BARE = Norm(eps=1e-5, bias=False)
LOCAL = attention(window=(2, 2), positions=Rotary(theta=10.0), bias=False)
GLOBAL = attention(positions=TURNING, bias=False)
POST = block(attention())
FIRST = block(attention(window=(2, 2), global_tokens=GlobalTokens(which="first")))
# Of 12 tokens in 12 blocks, each sees at most 6 others; texts of 7 and less are read in full.
BLOCKS = BlockSparse(size=1, num_random=1, random="fresh")
BLOCKED = [block(attention(blocks=replace(BLOCKS, layer=layer))) for layer in (0, 1)]
CAUSAL = block(
    attention("causal"), "pre", feed_forward=FeedForward(width=32, activation="gelu_new")
)
ALTERNATING = (
    block(GLOBAL, "pre", norm=BARE, feed_forward=GATED, attention_norm=False),
    block(LOCAL, "pre", norm=BARE, feed_forward=GATED),
    block(LOCAL, "pre", norm=BARE, feed_forward=GATED),
)

POINTS: dict[str, TransformerConfig] = {
    "post-norm encoder": config(
        encoder=stack(POST, POST, embeddings=PAIRED),
        vocabulary_head=VocabularyHead(transform="gelu", norm=LAYER_NORM, bias=True),
        pooler=True,
        heads=(
            Head(name="pair", kind="sequence", labels=2),
            Head(name="tag", kind="token", labels=5),
            Head(name="dense", kind="sequence", labels=3, transform="tanh"),
            Head(name="normed", kind="token", labels=2, transform="gelu", norm=BARE, bias=False),
            Head(name="choice", kind="choice", labels=1),
        ),
    ),
    "pre-norm decoder": config(decoder=stack(CAUSAL, CAUSAL, final_norm=True)),
    "sinusoidal decoder": config(
        decoder=stack(CAUSAL, embeddings=Embeddings(positions=Sinusoidal(length=LENGTH))),
        vocabulary_head=VocabularyHead(tied=False, bias=True),
    ),
    "shared narrow encoder": config(
        encoder=stack(POST, POST, POST, weights_of=(0, 0, 0), embeddings=PAIRED),
        tokens=Tokens(vocabulary=VOCABULARY, width=8),
        vocabulary_head=VocabularyHead(transform="gelu_new", norm=LAYER_NORM, bias=True),
    ),
    "global tokens encoder": config(encoder=stack(FIRST, FIRST)),
    "block-sparse encoder": config(encoder=stack(*BLOCKED)),
    "rotary alternating encoder": config(
        encoder=stack(*ALTERNATING, embeddings=Embeddings(norm=BARE), final_norm=True),
        vocabulary_head=VocabularyHead(transform="gelu", norm=BARE, bias=True),
    ),
    "rotary decoder": config(
        decoder=stack(
            *(
                replace(b, attention=replace(b.attention, pattern="causal", key_heads=shared))
                for b, shared in zip(ALTERNATING, (None, 1, 1), strict=True)
            ),
            embeddings=Embeddings(),
        )
    ),
    "relative encoder-decoder": config(
        **_two_stacks(Relative(buckets=8, max_distance=16), "pre", RMS, True),
        vocabulary_head=VocabularyHead(scaled=True),
    ),
    "post-norm encoder-decoder": config(**_two_stacks(None, "post", LAYER_NORM, False)),
}
ENCODERS = [n for n, c in POINTS.items() if c.decoder is None]
DECODERS = [n for n, c in POINTS.items() if c.encoder is None]
PAIRS = [n for n, c in POINTS.items() if len(c.stacks) == 2]


def model_of(name: str, seed: int = 0, deviation: float = 0.2, **options: object) -> Transformer:
    """The point as a model whose weights are large enough for its parts to matter."""
    generator = torch.Generator().manual_seed(seed)
    return build(
        POINTS[name], generator, distribution="normal", deviation=deviation, **options
    ).eval()


def tokens(rows: int = 3, length: int = 12, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (rows, length), generator=generator)
