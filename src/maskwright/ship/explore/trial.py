"""An objective tried on networks that have shapes alone: whether it learns with one, and what its
own code makes of rows.

Where every token comes from is found by the objective itself: its draws are keyed by row and place,
never by token, so rows of numbered tokens are corrupted exactly as the rows of words are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from maskwright.base.errors import IncompatibleError, MaskwrightError
from maskwright.model.batch import Batch
from maskwright.model.families.base.family import Family
from maskwright.model.nn.config import Stack, TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Objective, Vocabulary
from maskwright.model.objectives.base.spec import Member
from maskwright.text.store.rows import Rows

# Above every id: the token that stands at place n of the row is NUMBERED + n.
NUMBERED = 1 << 40


@dataclass(frozen=True)
class Refused:
    """Why an objective does not learn with a network, in the words of its own refusal.

    Attributes:
        leak: a position would see its own target.
    """

    what: str
    where: str | None
    found: str | None
    wanted: str | None
    do: str | None
    leak: bool

    @classmethod
    def by(cls, error: MaskwrightError) -> Refused:
        parts = (error.where, error.found, error.wanted, error.do)
        where, found, wanted, do = (None if part is None else str(part) for part in parts)
        leak = ".attention" in str(where)
        return cls(error.what, where, found, wanted, do, leak)


@cache
def outline(config: TransformerConfig) -> Transformer:
    """A network of that config without memory for its weights; equal layers are one module."""
    with torch.device("meta"):
        return Transformer(
            replace(
                config,
                encoder=None if config.encoder is None else _shared(config.encoder),
                decoder=None if config.decoder is None else _shared(config.decoder),
            )
        )


def _shared(stack: Stack) -> Stack:
    return replace(stack, weights_of=tuple(stack.blocks.index(block) for block in stack.blocks))


def slender(config: TransformerConfig) -> TransformerConfig:
    """The same layers, patterns, windows and heads, a few numbers wide."""

    def thin(stack: Stack | None) -> Stack | None:
        if stack is None:
            return None
        blocks = []
        for block in stack.blocks:
            over = block.cross_attention
            blocks.append(
                replace(
                    block,
                    attention=replace(block.attention, heads=1, head_width=4),
                    cross_attention=None if over is None else replace(over, heads=1, head_width=4),
                    feed_forward=replace(block.feed_forward, width=8),
                )
            )
        return replace(stack, blocks=tuple(blocks))

    return replace(
        config,
        width=4,
        tokens=replace(config.tokens, width=min(4, config.tokens.width)),
        encoder=thin(config.encoder),
        decoder=thin(config.decoder),
    )


def architectures(family: Family, vocabulary: int) -> list[TransformerConfig]:
    """The published base size of a family as each of its architectures, with that many tokens."""
    size = "base" if "base" in family.sizes else next(iter(family.sizes))
    configs = (family.size(size, name) for name in family.architectures)
    return [replace(c, tokens=replace(c.tokens, vocabulary=vocabulary)) for c in configs]


def tried(
    member: Member,
    configs: Sequence[TransformerConfig],
    vocabulary: Vocabulary,
    options: Any = None,
) -> tuple[TransformerConfig, Objective] | Refused:
    """The first of the networks with which the objective learns, or why none will do: the reason
    that lies in a mask before one that lies in a head.

    Args:
        options: of the objective, checked; None: as they are by default.
    """
    if options is None:
        options = defaults(member)
    refusals: list[tuple[bool, bool, Refused]] = []
    for config in configs:
        network = outline(config)
        others = {name: network for name in member.spec.networks}
        try:
            return config, member.build(network, options, vocabulary, **others)
        except IncompatibleError as error:
            refused = Refused.by(error)
            refusals.append((not refused.leak, config.vocabulary_head is None, refused))
    return min(refusals, key=lambda each: each[:2])[2]


def defaults(member: Member, given: dict[str, Any] | None = None) -> Any:
    """The options of an objective; where one names a network, a name that stands for it."""
    return member.read({**dict.fromkeys(member.spec.networks, "-"), **(given or {})})


def numbered(rows: Rows) -> Rows:
    """The rows with every token replaced by the number of its place."""
    places = np.arange(rows.tokens.shape[1], dtype=np.int64) + NUMBERED
    return replace(rows, tokens=np.broadcast_to(places, rows.tokens.shape).copy())


def told(batch: Batch, row: int) -> dict[str, Any]:
    """A row of a batch that was made of `numbered` rows, to be drawn.

    A token is the place it comes from, or -1 - id where it comes from none: it was put there.

        tokens, documents   what the model reads; of two stacks the encoder; document 0 is padding
        read, wanted        places that predict, and the token wanted there
        prefix              how many of the first tokens all see each other; null: as the model does
        decoder             null, or tokens and documents of the decoder, in which `read` counts
        label, pooled       a class and the place that tells it; null: none
        drawn               the tokens of the holes are drawn anew by another network
    """
    width = batch.tokens.shape[1]
    decoder = None
    if batch.decoder_tokens is not None:
        width = batch.decoder_tokens.shape[1]
        decoder = {
            "tokens": _places(batch.decoder_tokens[row]),
            "documents": _documents(batch.decoder_documents, row, width),
        }
    found: dict[str, Any] = {
        "tokens": _places(batch.tokens[row]),
        "documents": _documents(batch.documents, row, batch.tokens.shape[1]),
        "segments": None if batch.segments is None else batch.segments[row].tolist(),
        "read": [],
        "wanted": [],
        "prefix": None if batch.prefix is None else int(batch.prefix[row]),
        "decoder": decoder,
        "label": None if batch.labels is None else int(batch.labels[row]),
        "pooled": None if batch.pooled is None else int(batch.pooled[row]) % width,
        "drawn": batch.uniforms is not None,
    }
    if batch.targets is not None:
        index = torch.arange(len(batch.targets)) if batch.index is None else batch.index
        mine = index // width == row
        found["read"] = (index[mine] % width).tolist()
        found["wanted"] = _places(batch.targets[mine])
    return found


def _places(tokens: torch.Tensor) -> list[int]:
    return torch.where(tokens >= NUMBERED, tokens - NUMBERED, -1 - tokens).tolist()


def _documents(documents: torch.Tensor | None, row: int, width: int) -> list[int]:
    return [1] * width if documents is None else [int(n) for n in documents[row]]
