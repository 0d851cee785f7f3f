"""The loop as a textbook writes it: the twins of Tiny Shakespeare in plain PyTorch, nothing tuned.

float32, attention written out, batches sliced one by one in Python, scores for every position and
the loss where a label is not -100, the default Adam. It is what our own loop is measured against;
it shares no code with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BLOCK, BATCH, WIDTH, HEADS, INNER, LAYERS, DROPOUT, RATE = 48, 64, 96, 4, 256, 2, 0.1, 3e-3


class Layer(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        h = self.norm1(x)
        q, k, v = (
            f(h).view(rows, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        if self.causal:
            future = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
            scores = scores.masked_fill(future, float("-inf"))
        mixed = self.drop(scores.softmax(-1)) @ v
        x = x + self.drop(self.o(mixed.transpose(1, 2).reshape(rows, length, WIDTH)))
        return x + self.drop(self.down(F.relu(self.up(self.norm2(x)))))


class Twin(nn.Module):
    """186,368 parameters with `causal`, 186,430 without (the head has a bias)."""

    def __init__(self, vocabulary: int, causal: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.layers = nn.ModuleList(Layer(causal) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary, bias=not causal)
        angles = torch.arange(BLOCK)[:, None] / 10_000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(BLOCK, WIDTH)
        self.register_buffer("positions", table)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


@dataclass
class Text:
    """Characters as ids; the last id is the mask."""

    train: Tensor
    vocabulary: int

    @classmethod
    def of(cls, text: str) -> Text:
        symbols = sorted(set(text[:80_000]))
        ids = {c: i for i, c in enumerate(symbols)}
        return cls(torch.tensor([ids[c] for c in text[:72_000]]), len(symbols) + 1)


def causal_batch(text: Text) -> tuple[Tensor, Tensor]:
    starts = torch.randint(0, len(text.train) - BLOCK - 1, (BATCH,)).tolist()
    return (
        torch.stack([text.train[i : i + BLOCK] for i in starts]),
        torch.stack([text.train[i + 1 : i + BLOCK + 1] for i in starts]),
    )


def masked_batch(text: Text) -> tuple[Tensor, Tensor]:
    starts = torch.randint(0, len(text.train) - BLOCK, (BATCH,)).tolist()
    ids = torch.stack([text.train[i : i + BLOCK] for i in starts])
    labels = ids.clone()
    chosen = torch.rand(ids.shape) < 0.15
    labels[~chosen] = -100
    masked = chosen & (torch.rand(ids.shape) < 0.8)
    ids = ids.masked_fill(masked, text.vocabulary - 1)
    other = chosen & ~masked & (torch.rand(ids.shape) < 0.5)
    return torch.where(other, torch.randint(0, text.vocabulary - 1, ids.shape), ids), labels


def train(
    text: Text, *, causal: bool, steps: int, seed: int, after: Callable[[], None] = lambda: None
) -> Twin:
    """The textbook's loop; returns the trained twin. `after` is called behind each step."""
    torch.manual_seed(seed)
    model = Twin(text.vocabulary, causal)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    for _ in range(steps):
        ids, labels = causal_batch(text) if causal else masked_batch(text)
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        after()
    return model
