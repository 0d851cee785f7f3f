"""Objectives on networks without weights: whether an objective fits a network, and how it corrupts
rows.

The random numbers of an objective depend on row and position, never on tokens. So rows of numbered
tokens are corrupted like rows of text, and each number tells the original position of its token.
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

# The token at position n of a numbered row is NUMBERED + n, which is above every token id.
NUMBERED = 1 << 40


@dataclass(frozen=True)
class RefusalReason:
    """The error with which an objective refuses a network; fields as of `MaskwrightError`.

    Attributes:
        leak: whether a position would see its own target.
    """

    what: str
    where: str | None
    found: str | None
    wanted: str | None
    do: str | None
    leak: bool

    @classmethod
    def of(cls, error: MaskwrightError) -> RefusalReason:
        values = (error.where, error.found, error.wanted, error.do)
        where, actual, expected, do = (None if value is None else str(value) for value in values)
        leak = ".attention" in str(where)
        return cls(error.what, where, actual, expected, do, leak)


@cache
def outline(config: TransformerConfig) -> Transformer:
    """Build a network on the meta device, without weights; equal layers share one module."""
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
    """Return the config with a width of 4, but the same layers, attention patterns and heads."""

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
    """Return a family's architectures in their base size, with `vocabulary` token ids."""
    size = "base" if "base" in family.sizes else next(iter(family.sizes))
    configs = (family.size(size, name) for name in family.architectures)
    return [replace(c, tokens=replace(c.tokens, vocabulary=vocabulary)) for c in configs]


def first_fitting(
    member: Member,
    configs: Sequence[TransformerConfig],
    vocabulary: Vocabulary,
    options: Any = None,
) -> tuple[TransformerConfig, Objective] | RefusalReason:
    """Return the first config that the objective fits, with the objective; or a reason why none
    fits, preferably one about attention masks, then one about a missing head.

    Args:
        options: validated options of the objective; None: the defaults.
    """
    if options is None:
        options = defaults(member)
    refusals: list[tuple[bool, bool, RefusalReason]] = []
    for config in configs:
        network = outline(config)
        networks = {name: network for name in member.spec.networks}
        try:
            return config, member.build(network, options, vocabulary, **networks)
        except IncompatibleError as error:
            reason = RefusalReason.of(error)
            refusals.append((not reason.leak, config.vocabulary_head is None, reason))
    return min(refusals, key=lambda refusal: refusal[:2])[2]


def defaults(member: Member, options: dict[str, Any] | None = None) -> Any:
    """Return validated options of an objective, with placeholders for names of networks."""
    return member.read({**dict.fromkeys(member.spec.networks, "-"), **(options or {})})


def numbered(rows: Rows) -> Rows:
    """Return the rows with every token replaced by `NUMBERED` plus its position."""
    numbers = np.arange(rows.tokens.shape[1], dtype=np.int64) + NUMBERED
    return replace(rows, tokens=np.broadcast_to(numbers, rows.tokens.shape).copy())


def describe_row(batch: Batch, row: int) -> dict[str, Any]:
    """Describe a row of a batch that was built from `numbered` rows, as a JSON object.

    A token is given by its original position, or as -1 - id if the objective inserted it.

        tokens, documents   input of the model or of its encoder; document 0 is padding
        read, wanted        positions of the targets (in the decoder if any), and the target tokens
        prefix              length of the bidirectional prefix; null: the attention of the model
        decoder             tokens and documents of the decoder; null: there is none
        label, pooled       class label, and the position that predicts it; null: none
        drawn               whether another network samples the tokens at the masks
    """
    width = batch.tokens.shape[1]
    decoder = None
    if batch.decoder_tokens is not None:
        width = batch.decoder_tokens.shape[1]
        decoder = {
            "tokens": _source_positions(batch.decoder_tokens[row]),
            "documents": _documents(batch.decoder_documents, row, width),
        }
    facts: dict[str, Any] = {
        "tokens": _source_positions(batch.tokens[row]),
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
        in_row = index // width == row
        facts["read"] = (index[in_row] % width).tolist()
        facts["wanted"] = _source_positions(batch.targets[in_row])
    return facts


def _source_positions(tokens: torch.Tensor) -> list[int]:
    """Return the original position of each numbered token; -1 - id for inserted tokens."""
    return torch.where(tokens >= NUMBERED, tokens - NUMBERED, -1 - tokens).tolist()


def _documents(documents: torch.Tensor | None, row: int, width: int) -> list[int]:
    return [1] * width if documents is None else [int(n) for n in documents[row]]
