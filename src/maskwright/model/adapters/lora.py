"""LoRA (Hu et al. 2021, arXiv:2106.09685, 4.1): a low-rank product beside a frozen matrix.

    W x + (alpha / rank) · B A drop(x)       A (rank, in) Kaiming-uniform, B (out, rank) zero

Merging adds the product to W, and the model is as fast as before. A module that several layers use
has one pair, used as often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from maskwright.model.adapters.base.settings import Settings


@dataclass(frozen=True, kw_only=True)
class LoRA(Settings):
    """`targets` are projections of the layers by role ("query", "up", …) or by more of their path;
    the product is scaled by `alpha / rank`, and what it reads is dropped at the rate `dropout`."""

    merges: ClassVar[bool] = True

    kind: Literal["lora"] = "lora"
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: tuple[str, ...] = ("query", "value")

    def __post_init__(self) -> None:
        self.require("rank", 1 <= self.rank <= 1 << 16, "1 to 65,536")
        self.require("alpha", math.isfinite(self.alpha) and self.alpha > 0.0, "more than 0")
        self.require("dropout", 0.0 <= self.dropout < 1.0, "0 <= rate < 1")
        self.require("targets", len(self.targets) > 0, "at least one")

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


SETTINGS = LoRA
