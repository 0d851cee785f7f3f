"""Who may see whom, for every family and objective, as rules that the page draws (data/masks.json).

    rows        families in their published base size, and the models of the site: layers with
                pattern and window; with each objective an example, or why it is refused
                beside them, under READING, a text that is only read
    examples    a row, and what the objective's own code makes of it: `told`

Whether an objective is refused is asked of its own `build`: nothing is known here of any of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from maskwright.base import catalogue
from maskwright.base.errors import MaskwrightError
from maskwright.model.families.base.family import family
from maskwright.model.nn.config import Stack, TransformerConfig
from maskwright.model.objectives.base.objective import Objective, Vocabulary
from maskwright.model.objectives.base.spec import Member, Spec, member_of
from maskwright.model.opening import folders
from maskwright.ship.explore.trial import Refused, architectures, numbered, told, tried
from maskwright.text.store.rows import Rows, spread

if TYPE_CHECKING:
    from maskwright.ship.explore.site import Site

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
START = VOCABULARY.size  # what a second stack begins with, beside all tokens that are drawn
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
# Rows among which one of each kind is looked for: kinds may be rare.
ROWS, PREFIX = 128, 6


def masks(site: Site) -> bytes:
    """The file `data/masks.json`."""
    members = [member_of(name) for name in catalogue.names("objectives")]
    examples: list[Any] = []
    rows = [
        row(name, architectures(family(name), VOCABULARY.size), members, examples)
        for name in catalogue.names("families")
    ]
    found = {
        "rows": rows + models(site, members, examples),
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
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


def models(site: Site, members: Sequence[Member], examples: list[Any]) -> list[dict[str, Any]]:
    """A row for each model of the site that can be opened; the checkpoints of a run are one."""
    found: list[dict[str, Any]] = []
    for path, numbers in site.groups().items():
        try:
            config = site.ready(numbers[-1]).model.config
        except MaskwrightError:
            continue  # the pages about this model say what is wrong with it
        name = f"{folders.called(path)} (here)"
        if name in [each["name"] for each in found]:
            name = f"{folders.called(path)} (here, number {numbers[0] + 1})"
        found.append({**row(name, [config], members, examples), "models": numbers})
    return found


def row(
    name: str,
    configs: Sequence[TransformerConfig],
    members: Sequence[Member],
    examples: list[Any],
) -> dict[str, Any]:
    """A family or a model with every objective; new examples are added to `examples`."""
    widest = max(configs, key=lambda config: len(config.stacks))
    cells: dict[str, Any] = {
        READING: {
            kind: [_number(plain(example("labelled", lengths), widest), examples)]
            for kind, lengths in LENGTHS.items()
        }
    }
    for member in members:
        found = tried(member, configs, VOCABULARY)
        if isinstance(found, Refused):
            cells[member.name] = {"refused": asdict(found)}
            continue
        config, objective = found
        cells[member.name] = {
            kind: [
                _number(case, examples) for case in cases(objective, config, member.spec, lengths)
            ]
            for kind, lengths in LENGTHS.items()
        }
    stacks = {side: layers(stack) for side, stack in widest.stacks.items()}
    return {"name": name, "stacks": stacks, "cells": cells, "models": []}


def layers(stack: Stack) -> list[list[Any]]:
    """[pattern, window to the left, window to the right] of each layer; null without a window."""
    attentions = [block.attention for block in stack.blocks]
    return [[a.pattern, *(a.window or (None, None))] for a in attentions]


def about_of(member: Member) -> str:
    """What an objective says of itself in its first sentence."""
    module = catalogue.load("objectives", member.name)
    return " ".join((module.__doc__ or "").split("\n\n")[0].split())


def example(kind: str, lengths: Sequence[int]) -> Rows:
    """`ROWS` equal rows with documents of these lengths, framed as rows of that kind are.

    Rows of next-token prediction have a token more than is read; pairs and blocks of text are one
    document however long.
    """
    whole = kind in ("pairs", "swapped-pairs", "blocks")
    sizes = np.array([sum(lengths)] if whole else lengths)
    if kind == "stream":
        sizes[-1] += 1
    total = int(sizes.sum())
    place, last = spread(sizes), np.repeat(sizes, sizes) - 1
    special = np.zeros(total, dtype=bool)
    segments = None
    tokens = np.full(total, PAD)
    if kind == "stream":
        special, tokens = place == 0, np.full(total, END)
    elif kind != "blocks":
        special = (place == 0) | (place == last)
        tokens = np.where(place == 0, BEGIN, END)
    if kind in ("pairs", "swapped-pairs", "parallel"):
        middle = last // 2
        segments = place > middle
        special = special | (place == middle)
    return Rows(
        tokens=_rows(tokens).astype(np.int64),
        positions=_rows(place),
        documents=_rows(np.repeat(np.arange(len(sizes)) + 1, sizes)).astype(np.int32),
        special=_rows(special),
        starts_word=_rows((place % 3 != 2) & ~special),
        ids=np.arange(ROWS),
        segments=None if segments is None else _rows(segments).astype(np.int64),
        starts_sentence=_rows((place % 4 == 1) & ~special),
        pair_label=np.arange(ROWS) % 2 if kind in ("pairs", "swapped-pairs") else None,
    )


def cases(
    objective: Objective, config: TransformerConfig, spec: Spec, lengths: Sequence[int]
) -> list[dict[str, Any]]:
    """An example of each kind of row that the objective makes of documents of these lengths: of
    rows that are read both ways, to the left only, or with a prefix."""
    rows = example(spec.rows, lengths)
    if spec.rows == "labelled":  # labels lie beside the text, and all rows are as they were
        return [plain(rows, config)]
    batch = objective.corrupt(numbered(rows), np.zeros(len(rows), dtype=np.int64), seed=0)
    row = {"row": signs(rows)}
    if batch.prefix is None:
        return [row | told(batch, 0)]
    prefix, length = batch.prefix.numpy(), batch.tokens.shape[1]
    kinds = np.sign(prefix) + (prefix >= length)
    found = []
    for kind in np.unique(kinds):
        alike = np.flatnonzero(kinds == kind)
        found.append(row | told(batch, int(alike[np.abs(prefix[alike] - PREFIX).argmin()])))
    return found


def plain(rows: Rows, config: TransformerConfig) -> dict[str, Any]:
    """A row without targets; a second stack reads the text, too, a place later."""
    tokens, documents = list(range(rows.tokens.shape[1])), rows.documents[0].tolist()
    shifted = [-1 - START if place == 0 else n - 1 for n, place in enumerate(rows.positions[0])]
    second = {"tokens": shifted, "documents": documents} if len(config.stacks) > 1 else None
    nothing = dict.fromkeys(("segments", "prefix", "label", "pooled"))
    return {
        "row": signs(rows),
        "tokens": tokens,
        "documents": documents,
        "decoder": second,
        "read": [],
        "wanted": [],
        "drawn": False,
        **nothing,
    }


def signs(rows: Rows) -> list[str | None]:
    """What stands at each place of the first row: a special token by its sign; null for text."""
    return [
        SIGNS[int(token)] if special else None
        for token, special in zip(rows.tokens[0], rows.special[0], strict=True)
    ]


def _rows(values: np.ndarray) -> np.ndarray:
    return np.tile(values, (ROWS, 1))


def _number(case: dict[str, Any], examples: list[Any]) -> int:
    if case not in examples:
        examples.append(case)
    return examples.index(case)
