"""What families for long texts share: a window in each layer with global tokens beside it, as in
Longformer and LED, or blocks, as in BigBird.

`attention_window` is the number of neighbours that a token sees, half of them to either side, for
all layers or in a list for each. Which tokens are global is no key of transformers: its classes for
whole texts and for answers choose by themselves, others are told in each call. Here it is a rule,
`global_attention`, which config.json says where it is not the one of the architecture.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from maskwright.base.errors import ConfigError
from maskwright.model.families.base.family import Architecture, Coordinate, Fields
from maskwright.model.nn.config import (
    BlockSparse,
    GlobalRule,
    GlobalTokens,
    Stack,
    TransformerConfig,
)

# What a head reads is global: the first token, the question, or the answer to choose.
RULE_OF_HEAD = {"sequence": "first", "span": "question", "choice": "answer"}
RULES: dict[str, Any] = {rule: rule for rule in get_args(GlobalRule)}


def global_tokens(fields: Fields, architecture: Architecture, default: str) -> GlobalTokens:
    """The rule of an architecture, which `global_attention` may replace.

    Raises:
        ConfigError: a head that reads global tokens would have none.
    """
    needed = next((RULE_OF_HEAD[k] for _, k in architecture.heads if k in RULE_OF_HEAD), None)
    which = fields.choice("global_attention", RULES, needed or default)
    if needed is not None and which == "none":
        raise ConfigError(
            "the head reads tokens that must be global",
            where="config.json: global_attention",
            found=which,
            wanted=f"{needed}, or another rule",
            do="leave global_attention out",
        )
    return GlobalTokens(which=which, separator=fields.integer("sep_token_id", 2, smallest=0))


def with_windows(stack: Stack, sizes: list[int], rule: GlobalTokens) -> Stack:
    """`stack` with a window of each size in its layers, and the global tokens of `rule`.

    Raises:
        ConfigError: a window is odd.
    """
    for layer, size in enumerate(sizes):
        if size % 2:
            raise ConfigError(
                "a window has two halves of equal size",
                where=f"attention_window, layer {layer}",
                found=size,
                wanted="an even number",
            )
    blocks = tuple(
        replace(
            block,
            attention=replace(block.attention, window=(size // 2, size // 2), global_tokens=rule),
        )
        for block, size in zip(stack.attention_blocks, sizes, strict=True)
    )
    return replace(stack, blocks=blocks)


def with_blocks(stack: Stack, blocks: BlockSparse) -> Stack:
    """`stack` with `blocks` in its layers, each of which draws its own."""
    layers = tuple(
        replace(block, attention=replace(block.attention, blocks=replace(blocks, layer=layer)))
        for layer, block in enumerate(stack.attention_blocks)
    )
    return replace(stack, blocks=layers)


def coordinates(default: str) -> dict[str, Coordinate]:
    """The keys of windows and global tokens; `default` is the rule without a head."""

    def read_rule(config: TransformerConfig) -> str | None:
        rule = config.encoder.global_tokens if config.encoder is not None else None
        needed = rule_of_heads(config) or default
        return None if rule is None or rule.which == needed else rule.which

    return {"attention_window": _windows, "global_attention": read_rule}


def rule_of_heads(config: TransformerConfig) -> str | None:
    """The rule that the heads of a config need; None without such heads."""
    kinds = (head.kind for head in config.heads)
    return next((RULE_OF_HEAD[kind] for kind in kinds if kind in RULE_OF_HEAD), None)


def _windows(config: TransformerConfig) -> int | list[int]:
    blocks = () if config.encoder is None else config.encoder.attention_blocks
    sizes = [sum(block.attention.window or ()) for block in blocks]
    return sizes[0] if len(set(sizes)) == 1 else sizes
