"""The contract of a side.

LABEL     what the table calls it
NEEDS     the packages that it imports, by the names they are imported by
PRECISION what it computes in; "": it is known when it is open
GRAPH     whether it needs the model as an ONNX file (`Work.graph`)
refusal(work) -> a reason why it does not answer this work, or None
open(work, threads) -> Side
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base import catalogue, packages
from maskwright.ship.bench.work import Work

ROOM = "bench.sides"
OURS = "maskwright"

# Items to answers: (label, score), a vector, or a written text.
Ask = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True)
class Side:
    """An open side: what answers, and what it computes in."""

    ask: Ask
    precision: str


def peers() -> list[str]:
    """The names of all sides but our own."""
    return [name for name in catalogue.names(ROOM) if name != OURS]


def missing(name: str) -> list[str]:
    """The packages of this side that are not installed."""
    return packages.missing(catalogue.load(ROOM, name).NEEDS)


def absence(name: str, work: Work) -> str | None:
    """Why this side takes no turn; None: it takes turns."""
    module = catalogue.load(ROOM, name)
    if lacking := missing(name):
        return f"not installed ({', '.join(lacking)}): {packages.install(*lacking)}"
    reason: str | None = module.refusal(work)
    return reason


def best_label(scores: Sequence[float], work: Work) -> tuple[str, float]:
    """The likeliest label of one row of scores, and its probability."""
    import numpy as np

    row = np.asarray(scores, np.float64)
    if work.multi:
        chances = 1.0 / (1.0 + np.exp(-row))
    else:
        chances = np.exp(row - row.max())
        chances /= chances.sum()
    return work.labels[int(row.argmax())], float(chances.max())


def first_label(answer: Mapping[str, Any]) -> tuple[str, float]:
    """The label and the score of an answer in the form of a pipeline."""
    return str(answer["label"]), float(answer["score"])


BATCH = 32

Ids = NDArray[np.int64]


def padded_loop(
    encode: Callable[[Sequence[str]], list[list[int]]],
    forward: Callable[[Ids, Ids], Any],
    answer: Callable[[NDArray[Any], Ids], Sequence[Any]],
    pad: int,
) -> Ask:
    """What answers texts.

    Args:
        encode: texts to ids, special tokens among them.
        forward: ids (B, T) and mask (B, T) of ones and zeros to what the graph gives, (B, …).
        answer: what the graph gave, float32, and the mask to an answer for each row.
        pad: the id that fills rows.
    """

    def ask(texts: list[Any]) -> list[Any]:
        rows = encode(texts)
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
        found: list[Any] = [None] * len(rows)
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            ids = np.full((len(part), len(rows[part[-1]])), pad, np.int64)
            mask = np.zeros_like(ids)
            for place, n in enumerate(part):
                ids[place, : len(rows[n])] = rows[n]
                mask[place, : len(rows[n])] = 1
            answers = answer(np.asarray(forward(ids, mask), np.float32), mask)
            for n, each in zip(part, answers, strict=True):
                found[n] = each
        return found

    return ask


def pooled(states: NDArray[np.float32], mask: Ids, pooling: str) -> NDArray[np.float32]:
    """(B, D) of length 1 from the states (B, T, D): the mean, the largest or the first of each
    text."""
    real = mask[..., None].astype(np.float32)
    if pooling == "cls":
        found = states[:, 0]
    elif pooling == "max":
        found = np.where(real > 0, states, -np.inf).max(1)
    else:
        found = (states * real).sum(1) / real.sum(1)
    unit: NDArray[np.float32] = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit


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
    from maskwright.text.tokenizer.tokenizer import Tokenizer

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
