"""How well a model predicts held-out text, beside what needs no model at all.

The rows and their masks are fixed by keys, so two checkpoints answer exactly the same questions.
The reference lines are the uniform distribution and the training text's token frequencies; a
model whose loss stands on the unigram line has learned no context yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from maskwright.data.batch import Batch
from maskwright.data.rows import RowSource
from maskwright.data.store import TokenStore
from maskwright.errors import DataError
from maskwright.objectives.objective import Objective
from maskwright.randomness import key, permute

# One seed for every evaluation of every run: the questions never depend on the run's own seed.
SEED = 20_260_000
TOP = (1, 5)
_SCORES_AT_ONCE = 1 << 25


@dataclass(frozen=True)
class Figures:
    """Loss in nats per target; `top1`, `top5` shares of targets, ties counted by their fair
    share."""

    loss: float
    perplexity: float
    bits_per_byte: float | None
    top1: float
    top5: float
    targets: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Lines:
    """What needs no model: loss and top-k of guessing evenly, and by training frequency."""

    uniform_loss: float
    uniform_top1: float
    uniform_top5: float
    unigram_loss: float
    unigram_top1: float
    unigram_top5: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def questions(
    objective: Objective, source: RowSource, rows: int, batch_rows: int
) -> Iterator[Batch]:
    """The fixed evaluation batches: at most `rows` rows of `source`, corrupted by fixed keys.

    Raises:
        DataError: the held-out text does not fill a single row.
    """
    if len(source) == 0:
        raise DataError(
            "the held-out text does not fill a single row",
            found=source.description,
            do="hold out more text (corpus.held_out) or shorten the rows",
        )
    count = min(rows, len(source))
    chosen = permute(key("shuffle", SEED, 0), len(source), np.arange(count))
    for start in range(0, count, batch_rows):
        index = chosen[start : start + batch_rows]
        epochs = np.zeros(len(index), dtype=np.int64)
        yield objective.corrupt(source.rows(index, 0), epochs, SEED)


@torch.no_grad()
def evaluate(
    objective: Objective,
    source: RowSource,
    *,
    rows: int = 1024,
    batch_rows: int = 32,
    bytes_per_token: float | None = None,
    device: torch.device | str = "cpu",
) -> Figures:
    """Figures of `objective`'s model on the fixed questions; the training mode is left as it was.

    Args:
        bytes_per_token: of the held-out text, for bits per byte; None where targets are not all
            tokens (a masked model's loss says nothing about coding length).
    """
    was_training = objective.training
    objective.eval()
    loss, hits, targets = 0.0, [0.0] * len(TOP), 0
    for batch in questions(objective, source, rows, batch_rows):
        batch = batch.to(device)
        states = objective.target_states(batch)
        assert batch.targets is not None
        size = max(1, _SCORES_AT_ONCE // objective.scorer.config.tokens.vocabulary)
        for begin in range(0, len(states), size):
            wanted = batch.targets[begin : begin + size]
            scores = objective.scorer.logits(states[begin : begin + size]).float()
            loss += float(functional.cross_entropy(scores, wanted, reduction="sum"))
            for i, k in enumerate(TOP):
                hits[i] += float(top_hits(scores, wanted, k).sum())
        targets += len(states)
    objective.train(was_training)
    if targets == 0:
        raise DataError("the held-out rows have no targets", found=source.description)
    mean = loss / targets
    bits = None if bytes_per_token is None else mean / math.log(2) / bytes_per_token
    perplexity = math.exp(min(mean, 700.0))
    return Figures(mean, perplexity, bits, hits[0] / targets, hits[1] / targets, targets)


def top_hits(scores: Tensor, wanted: Tensor, k: int) -> Tensor:
    """(N,) float: the chance that the target is among the `k` best when ties are broken at random.

    A constant model gets k / V, not 1.
    """
    own = scores.gather(1, wanted[:, None])
    better = (scores > own).sum(dim=1)
    equal = (scores == own).sum(dim=1)
    return ((k - better).float() / equal.float()).clamp(0.0, 1.0)


def reference_lines(
    objective: Objective,
    store: TokenStore,
    source: RowSource,
    *,
    rows: int = 1024,
    batch_rows: int = 32,
) -> Lines:
    """Uniform and unigram figures on the same questions; frequencies (plus one) from `store`."""
    vocabulary = store.vocabulary_size
    counts = token_counts(store)
    wanted = [
        b.targets.numpy()
        for b in questions(objective, source, rows, batch_rows)
        if b.targets is not None
    ]
    targets = np.concatenate(wanted)
    share = (counts + 1) / (counts.sum() + vocabulary)
    order = np.argsort(-counts, kind="stable")
    return Lines(
        uniform_loss=math.log(vocabulary),
        uniform_top1=1 / vocabulary,
        uniform_top5=min(1.0, 5 / vocabulary),
        unigram_loss=float(-np.log(share[targets]).mean()),
        unigram_top1=float(np.isin(targets, order[:1]).mean()),
        unigram_top5=float(np.isin(targets, order[:5]).mean()),
    )


def token_counts(store: TokenStore) -> np.ndarray:
    """How often each id occurs in the store (V,), read in blocks."""
    counts = np.zeros(store.vocabulary_size, dtype=np.int64)
    for start in range(0, store.num_tokens, 1 << 22):
        counts += np.bincount(store.tokens[start : start + (1 << 22)], minlength=len(counts))
    return counts
