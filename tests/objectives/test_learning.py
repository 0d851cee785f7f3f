"""Every objective learns a tiny text: on rows it has not been trained on, its loss falls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.model.objectives.base.objective import Objective
from maskwright.text.store.rows import Rows
from objectives.by_hand import discriminator, framed, make, of
from toys import bert


def counting(count: int, seed: int) -> Rows:
    """A language of one rule: each word is followed by the next one, in a circle of 15."""
    rows = framed(count, 18, seed)
    begin = np.random.default_rng(seed).integers(0, 15, (count, 1))
    tokens = rows.tokens.copy()
    tokens[:, 1:-1] = 5 + (begin + np.arange(16)) % 15
    return replace(rows, tokens=tokens)


def ordered(count: int, seed: int) -> Rows:
    """Stories that begin with one of four words, in pairs; label 1 where the halves are the wrong
    way round."""
    rows = framed(count, 18, seed)
    begin = np.random.default_rng(seed).integers(0, 4, (count, 1))
    label = np.random.default_rng(seed + 1).integers(0, 2, count)
    tokens, text = rows.tokens.copy(), 5 + begin + np.arange(16)
    swapped = np.concatenate([text[:, 8:], text[:, :8]], axis=1)
    tokens[:, 1:-1] = np.where(label[:, None] == 1, swapped, text)
    segments = np.broadcast_to(np.arange(18) > 8, tokens.shape).astype(np.int64)
    return replace(rows, tokens=tokens, segments=segments, pair_label=label)


def learned(made: Objective, rate: float, steps: int, rows: Any) -> Any:
    made.train()
    parameters = [p for p in made.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 20))
    for step in range(steps):
        batch = made.corrupt(rows(32, 10 + step), np.full(32, step), 0)
        optimizer.zero_grad()
        made(batch).scaled(made.counts(batch)).backward()
        optimizer.step()
        warm.step()
    return made.eval()


@torch.no_grad()
def means(made: Objective, rows: Any) -> dict[str, float]:
    batch = made.eval().corrupt(rows(64, 1), np.zeros(64, dtype=np.int64), 0)
    counts = made.counts(batch)
    return {n: float(p.total) / counts[n] for n, p in made(batch).parts.items()}


@pytest.mark.parametrize(
    ("name", "rate", "steps", "options", "falls"),
    [
        # What is left of each part of the loss, at most. Two tokens in eighteen are replaced: to
        # know just that costs 0.35 nats, half of what an untrained judge costs.
        ("replaced-token", 1e-2, 300, {}, {"masked": 0.65, "replaced": 0.45}),
        ("span-boundary", 2e-2, 90, {}, {"masked": 0.5, "boundary": 0.5}),
        # A hidden piece of four tokens, in any order, costs ln 4 at the least.
        ("masked-pieces", 1e-2, 100, {"piece": 6}, {"masked": 0.6, "context": 0.7}),
        ("hybrid", 2e-2, 50, {"causal_share": 0.5}, {"masked": 0.6, "causal": 0.6}),
        ("sentence-order", 2e-2, 80, {}, {"masked": 0.7, "pair": 0.7}),
    ],
)
def test_the_loss_falls(
    name: str, rate: float, steps: int, options: dict[str, Any], falls: dict[str, float]
) -> None:
    model = {"replaced-token": discriminator, "sentence-order": lambda: bert("BertForPreTraining")}
    made = make(name, of(model.get(name, bert)().config, deviation=0.1), **options)
    rows = ordered if name == "sentence-order" else counting
    before = means(made, rows)
    after = means(learned(made, rate, steps, rows), rows)
    for part, share in falls.items():
        assert after[part] < share * before[part], (part, before[part], after[part])
