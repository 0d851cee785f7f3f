"""Objectives on networks without weights, and the masks of families and objectives.

Whether an objective fits a network, and how it corrupts rows, is tried on networks without weights;
this module knows no objective by name. The random numbers of an objective depend on row and
position, never on tokens. So rows of numbered tokens are corrupted like rows of text, and each
number tells the original position of its token.

Attention masks of every family and objective, as rules that the page draws (data/masks.json).

    rows        families in their published base size, and the models of the site: patterns and
                windows of the layers; for each objective indices of examples, or the reason of its
                refusal; under READING examples of a text that is encoded without an objective
    examples    the special tokens of a row, and the row after corruption (`describe_row`)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maskwright.base import catalogue
from maskwright.base.errors import IncompatibleError, MaskwrightError
from maskwright.model.batch import Batch
from maskwright.model.families.base.family import Family, family
from maskwright.model.nn.config import Block, Patches, Recurrent, Stack, TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Objective, Vocabulary
from maskwright.model.objectives.base.spec import Member, Spec, member_of
from maskwright.model.opening import folders
from maskwright.text.store.rows import Rows, spread

# ------------------------------------------------------------------------------ trials
# The token at position n of a numbered row is NUMBERED + n, which is above every token id.
NUMBERED = 1 << 40


def is_leak(error: MaskwrightError) -> bool:
    """Whether an objective refuses a network because a position would see its own target."""
    return ".attention" in str(error.where)


def refusal(error: MaskwrightError) -> dict[str, Any]:
    """Return the parts of an error as a JSON object, and whether it is a leak."""
    parts = {name: getattr(error, name) for name in ("what", "where", "found", "wanted", "do")}
    parts = {name: None if part is None else str(part) for name, part in parts.items()}
    return {**parts, "leak": is_leak(error)}


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
        blocks: list[Block | Recurrent] = []
        for block in stack.blocks:
            if isinstance(block, Recurrent):
                blocks.append(replace(block, cells=4, width=4 // block.directions))
                continue
            over = block.cross_attention
            blocks.append(
                replace(
                    block,
                    attention=replace(block.attention, heads=1, head_width=4, key_heads=None),
                    cross_attention=None if over is None else replace(over, heads=1, head_width=4),
                    feed_forward=replace(block.feed_forward, width=8),
                )
            )
        return replace(stack, blocks=tuple(blocks))

    directions = [getattr(b, "directions", 1) for s in config.stacks.values() for b in s.blocks]
    return replace(
        config,
        width=4,
        tokens=replace(
            config.tokens, width=min(4 // max(directions, default=1), config.tokens.width)
        ),
        encoder=thin(config.encoder),
        decoder=thin(config.decoder),
    )


def architectures(family: Family, vocabulary: int) -> list[TransformerConfig]:
    """Return a family's architectures in their base size, with `vocabulary` token ids; none of a
    family that reads images."""
    size = "base" if "base" in family.sizes else next(iter(family.sizes))
    configs = [family.size(size, name) for name in family.architectures]
    return [
        replace(config, tokens=replace(config.tokens, vocabulary=vocabulary))
        for config in configs
        if not isinstance(config.tokens, Patches)
    ]


def first_fitting(
    member: Member,
    configs: Sequence[TransformerConfig],
    vocabulary: Vocabulary,
    options: Any = None,
) -> tuple[TransformerConfig, Objective]:
    """Return the first config that the objective fits, with the objective.

    Args:
        options: validated options of the objective; None: the defaults.

    Raises:
        IncompatibleError: why none fits, preferably a leak, then that of a config with a vocabulary
            head.
    """
    if options is None:
        options = defaults(member)
    refusals: list[tuple[bool, bool, IncompatibleError]] = []
    for config in configs:
        network = outline(config)
        networks = {name: network for name in member.spec.networks}
        try:
            objective = member.build(network, options, vocabulary, **networks)
            _require_drawn(config)
            return config, objective
        except IncompatibleError as error:
            refusals.append((not is_leak(error), config.vocabulary_head is None, error))
    raise min(refusals, key=lambda refusal: refusal[:2])[2]


def _require_drawn(config: TransformerConfig) -> None:
    """Refuse a config whose masks depend on the tokens, which the page does not draw."""
    rules = (stack.global_tokens for stack in config.stacks.values())
    rule = next((rule.which for rule in rules if rule is not None), "none")
    if rule != "none":
        raise IncompatibleError(
            "global tokens are not drawn on this page", where="global_attention", found=rule
        )


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


# ------------------------------------------------------------------------------ masks
PAD, BEGIN, END, MASK = range(4)
SENTINELS = (31, 30, 29, 28)
VOCABULARY = Vocabulary(
    size=32,
    mask=MASK,
    special=(PAD, BEGIN, END, MASK, *SENTINELS),
    pad=PAD,
    begin=BEGIN,
    end=END,
    sentinels=SENTINELS,
)
START = VOCABULARY.size  # first token of a decoder, outside the vocabulary
SIGNS = {
    PAD: "pad",
    BEGIN: "begin",
    END: "end",
    MASK: "mask",
    START: "start",
    **{sentinel: f"gap {n + 1}" for n, sentinel in enumerate(SENTINELS)},
}
READING = "none: reading a text"
LENGTH, PACKED = 16, (6, 5, 5)
LENGTHS = {"single": (LENGTH,), "packed": PACKED}
# Number of rows in which each kind of corruption is searched; preferred length of a prefix.
ROWS, PREFIX = 128, 6


def masks(models: Iterable[tuple[Path, list[int], TransformerConfig]]) -> bytes:
    """Return the file `data/masks.json`.

    Args:
        models: path, numbers and config of each model; the checkpoints of a run count as one.
    """
    every_member = map(member_of, catalogue.names("objectives"))
    members = [member for member in every_member if member.spec.rows != "images"]
    family_names = tuple(catalogue.names("families"))
    family_rows, family_examples = _family_rows(family_names, tuple(m.name for m in members))
    examples = [*family_examples]
    content = {
        "rows": [*family_rows, *model_rows(models, members, examples)],
        "reading": READING,
        "objectives": [
            {"name": name, "about": about, "usual": usual}
            for name, about, usual in (
                (READING, "The mask of reading: nothing is hidden or predicted.", False),
                *((m.name, about_of(m), m.spec.usual_for is not None) for m in members),
            )
        ],
        "examples": examples,
        "signs": {str(id): sign for id, sign in SIGNS.items()},
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


@cache
def _family_rows(
    families: tuple[str, ...], objectives: tuple[str, ...]
) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return the rows of families that read texts, and their examples."""
    examples: list[Any] = []
    members = list(map(member_of, objectives))
    rows = [
        matrix_row(name, configs, members, examples)
        for name in families
        if (configs := architectures(family(name), VOCABULARY.size))
    ]
    return rows, examples


def model_rows(
    models: Iterable[tuple[Path, list[int], TransformerConfig]],
    members: Sequence[Member],
    examples: list[Any],
) -> list[dict[str, Any]]:
    """Return a row for each model; the checkpoints of a run count as one."""
    rows: dict[str, dict[str, Any]] = {}
    for path, numbers, config in models:
        name = f"{folders.called(path)} (here)"
        if name in rows:
            name = f"{folders.called(path)} (here, number {numbers[0] + 1})"
        row = matrix_row(name, [config], members, examples)
        rows[name] = {**row, "models": numbers}
    return list(rows.values())


def matrix_row(
    name: str,
    configs: Sequence[TransformerConfig],
    members: Sequence[Member],
    examples: list[Any],
) -> dict[str, Any]:
    """Return the row of a family or model, with the first config that fits for each objective; new
    examples are appended to `examples`."""
    widest = max(configs, key=lambda config: len(config.stacks))
    cells: dict[str, Any] = {
        READING: {
            kind: [_number(plain(example("labelled", lengths), widest), examples)]
            for kind, lengths in LENGTHS.items()
        }
    }
    for member in members:
        try:
            config, objective = first_fitting(member, configs, VOCABULARY)
        except IncompatibleError as error:
            cells[member.name] = {"refused": refusal(error)}
            continue
        cells[member.name] = {
            kind: [
                _number(case, examples) for case in cases(objective, config, member.spec, lengths)
            ]
            for kind, lengths in LENGTHS.items()
        }
    stacks = {side: layers(stack) for side, stack in widest.stacks.items()}
    return {"name": name, "stacks": stacks, "cells": cells, "models": []}


def layers(stack: Stack) -> list[list[Any]]:
    """Return [pattern, left window, right window, blocks] of each layer; windows are None if
    unlimited, blocks the size of one and how many a text has that is read in full, or None. The
    pattern of layers whose halves read in two directions is `apart`."""
    rows = []
    for block in stack.blocks:
        pattern = "apart" if getattr(block, "directions", 1) == 2 else block.pattern
        cut = None if isinstance(block, Recurrent) else block.attention.blocks
        sizes = [cut.size, cut.full_blocks] if cut is not None and cut.sparse else None
        rows.append([pattern, *(block.window or (None, None)), sizes])
    return rows


def about_of(member: Member) -> str:
    """Return the first paragraph of the docstring of an objective."""
    module = catalogue.load("objectives", member.name)
    return " ".join((module.__doc__ or "").split("\n\n")[0].split())


def example(kind: str, lengths: Sequence[int]) -> Rows:
    """Return `ROWS` equal rows whose documents have these lengths, with special tokens of `kind`.

    Rows of kind "stream" (next-token prediction) have one extra token, the last target; pairs and
    blocks consist of a single document.
    """
    is_one_document = kind in ("pairs", "swapped-pairs", "blocks")
    sizes = np.array([sum(lengths)] if is_one_document else lengths)
    if kind == "stream":
        sizes[-1] += 1
    total = int(sizes.sum())
    positions, last_positions = spread(sizes), np.repeat(sizes, sizes) - 1
    special = np.zeros(total, dtype=bool)
    segments = None
    tokens = np.full(total, PAD)
    if kind == "stream":
        special, tokens = positions == 0, np.full(total, END)
    elif kind != "blocks":
        special = (positions == 0) | (positions == last_positions)
        tokens = np.where(positions == 0, BEGIN, END)
    if kind in ("pairs", "swapped-pairs", "parallel"):
        middles = last_positions // 2
        segments = positions > middles
        special = special | (positions == middles)
    return Rows(
        tokens=_rows(tokens).astype(np.int64),
        positions=_rows(positions),
        documents=_rows(np.repeat(np.arange(len(sizes)) + 1, sizes)).astype(np.int32),
        special=_rows(special),
        starts_word=_rows((positions % 3 != 2) & ~special),
        ids=np.arange(ROWS),
        segments=None if segments is None else _rows(segments).astype(np.int64),
        starts_sentence=_rows((positions % 4 == 1) & ~special),
        pair_label=np.arange(ROWS) % 2 if kind in ("pairs", "swapped-pairs") else None,
    )


def cases(
    objective: Objective, config: TransformerConfig, spec: Spec, lengths: Sequence[int]
) -> list[dict[str, Any]]:
    """Return an example of each kind of attention that the objective samples for documents of
    these lengths: causal, bidirectional, or with a bidirectional prefix."""
    rows = example(spec.rows, lengths)
    if spec.rows == "labelled":  # rows are not corrupted
        return [plain(rows, config)]
    batch = objective.corrupt(numbered(rows), np.zeros(len(rows), dtype=np.int64), seed=0)
    row = {"row": signs(rows)}
    if batch.prefix is None:
        return [row | describe_row(batch, 0)]
    prefix, length = batch.prefix.numpy(), batch.tokens.shape[1]
    kinds = np.sign(prefix) + (prefix >= length)
    row_cases = []
    for kind in np.unique(kinds):
        indices = np.flatnonzero(kinds == kind)
        row_cases.append(
            row | describe_row(batch, int(indices[np.abs(prefix[indices] - PREFIX).argmin()]))
        )
    return row_cases


def plain(rows: Rows, config: TransformerConfig) -> dict[str, Any]:
    """Return a row without targets; the decoder of an encoder-decoder reads the shifted text."""
    tokens = torch.from_numpy(numbered(rows).tokens)
    documents = torch.from_numpy(rows.documents)
    batch = Batch(tokens=tokens, documents=documents)
    if len(config.stacks) > 1:
        shifted = torch.where(torch.from_numpy(rows.positions) == 0, START, tokens - 1)
        batch = replace(batch, decoder_tokens=shifted, decoder_documents=documents)
    return {"row": signs(rows)} | describe_row(batch, 0)


def signs(rows: Rows) -> list[str | None]:
    """Return the name of the special token at each position of the first row; None for text."""
    return [
        SIGNS[int(token)] if special else None
        for token, special in zip(rows.tokens[0], rows.special[0], strict=True)
    ]


def _rows(values: np.ndarray) -> np.ndarray:
    return np.tile(values, (ROWS, 1))


def _number(case: dict[str, Any], examples: list[Any]) -> int:
    """Return the index of an example in `examples`; append it if it is new."""
    if case not in examples:
        examples.append(case)
    return examples.index(case)
