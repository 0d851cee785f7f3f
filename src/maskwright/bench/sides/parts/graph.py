"""A graph in a file, asked by the plain loop: our tokenizer before it, its scores or states behind.

A graph reads `input_ids` and `attention_mask` (B, T) int64, and `token_type_ids` where it has them;
its first output is `logits` (B, L) or the states (B, T, D).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.bench.sides.parts.side import Ask, Ids, best_label, padded_loop, pooled
from maskwright.bench.work import Work

Feeds = dict[str, Ids]


def refusal(work: Work) -> str | None:
    """Why a graph does not answer this work by a plain loop."""
    if work.kind == "text":
        return "a graph of one pass does not write"
    if work.kind == "answer":
        return work.apart
    if work.kind == "vector" and work.apart.startswith("the folder adds"):
        return work.apart
    return None if work.graph else "no graph was written"


def loop(work: Work, inputs: Sequence[str], run: Callable[[Feeds], Any]) -> Ask:
    """What answers texts by a graph with these `inputs`."""
    from maskwright.tokenizer.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(Path(work.model), as_saved=False)
    room = work.longest - sum(tokenizer.frame_margins())

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [tokenizer.frame(ids[:room].tolist())[0] for ids in tokenizer.encode_batch(texts)]

    def forward(ids: Ids, mask: Ids) -> Any:
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return run({name: known[name] for name in inputs})

    def answer(found: Any, mask: Ids) -> Sequence[Any]:
        if work.kind == "label":
            return [best_label(row, work) for row in found]
        return pooled(found, mask, work.pooling).tolist()

    return padded_loop(encode, forward, answer, tokenizer.pad or 0)
