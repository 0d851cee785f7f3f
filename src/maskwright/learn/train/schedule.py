"""The learning rate as a pure function of progress; nothing to save, nothing to get out of step.

    constant           warm-up, then 1
    linear             warm-up, then straight down to `floor` at the end
    cosine             warm-up, then half a cosine down to `floor` at the end
    inverse-sqrt       warm-up, then sqrt(warmup / position)            (Vaswani et al. 2017, 5.3)
    held-inverse-sqrt  1 instead of a warm-up, then the same            (Raffel et al. 2020, 3.1.2)
    stable-decay       warm-up, 1, and 1 - sqrt down to `floor` over the last `decay` share

With a `cooldown` each ends that much earlier, and what is left of the run goes straight down to 0
from there (after a cosine: GPT-BERT; after `constant`: a trapezoid).

Indexing follows transformers: the update at step 0 uses position 0, so a warm-up begins
at 0 and `linear` without one begins at 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NoReturn

from maskwright.base.config import out_of_range, require


@dataclass(frozen=True, kw_only=True)
class Phase:
    """The part of a run that ends when the share `until` of its budget is used: `batch` rows of
    `length` tokens per optimizer step."""

    until: float
    length: int
    batch: int

    def __post_init__(self) -> None:
        for name, low, high in (("until", 0.0, 1.0), ("length", 4, 1 << 20), ("batch", 1, 1 << 30)):
            require(f"training.phases, {name}", getattr(self, name), low, high)


@dataclass(frozen=True, kw_only=True)
class Ramp:
    """Batches grow from the share `start` of their rows to all of them, evenly until the share
    `until` of the budget is used."""

    start: float = 1.0
    until: float = 1.0

    def __post_init__(self) -> None:
        for name in ("start", "until"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise out_of_range(
                    f"training.ramp.{name}", getattr(self, name), "above 0, at most 1"
                )

    def rows(self, full: int, progress: float) -> int:
        """The number of rows, of `full` rows, at least one."""
        share = self.start + (1.0 - self.start) * min(1.0, progress / self.until)
        return max(1, round(share * full))


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """`warmup`, `decay` and `cooldown` are shares of the whole run (0 to 1)."""

    kind: Literal[
        "constant", "linear", "cosine", "inverse-sqrt", "held-inverse-sqrt", "stable-decay"
    ] = "linear"
    warmup: float = 0.0
    floor: float = 0.0
    decay: float = 0.1
    cooldown: float = 0.0

    def __post_init__(self) -> None:
        for name in ("warmup", "floor", "decay", "cooldown"):
            require(f"training.schedule.{name}", getattr(self, name), 0.0, 1.0)
        falls = self.kind in ("linear", "cosine", "stable-decay")
        if self.warmup + self.cooldown > 1.0:
            self._refuse("cooldown", f"at most {1.0 - self.warmup:g}, as the warm-up comes first")
        if self.floor and not falls:
            self._refuse("floor", f"0, as {self.kind} does not fall to a floor")
        if self.cooldown and falls and self.floor == 0.0:
            self._refuse("cooldown", f"0, or a floor above 0: {self.kind} ends at the floor")
        room = 1.0 - self.warmup - self.cooldown
        if self.kind == "stable-decay" and self.decay > room + 1e-9:
            self._refuse("decay", f"at most {room:g}, besides warm-up and cool-down")
        if self.kind.endswith("inverse-sqrt") and self.warmup == 0.0:
            self._refuse("warmup", f"a share above 0, such as 0.01, for {self.kind}")

    def _refuse(self, name: str, expected: str) -> NoReturn:
        raise out_of_range(f"training.schedule.{name}", getattr(self, name), expected)

    def factor(self, position: float, total: float) -> float:
        """The factor of the peak rate at `position` of `total` (same unit, any unit)."""
        warm, end = self.warmup * total, (1.0 - self.cooldown) * total
        if position <= end or not self.cooldown:
            return self._shape(position, warm, end, self.decay * total)
        remaining = max(0.0, (total - position) / (total - end))
        return remaining * self._shape(end, warm, end, self.decay * total)

    def _shape(self, position: float, warm: float, total: float, decay_length: float) -> float:
        """The factor without cool-down; `decay_length` is what the last decay takes of `total`."""
        if position < warm:
            return 1.0 if self.kind == "held-inverse-sqrt" else position / warm
        if self.kind == "constant" or total <= warm:
            return 1.0
        if self.kind.endswith("inverse-sqrt"):
            return math.sqrt(warm / max(position, warm))
        share = min(1.0, (position - warm) / (total - warm))
        if self.kind == "linear":
            return self.floor + (1 - self.floor) * (1 - share)
        if self.kind == "cosine":
            return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * share))
        begin = total - decay_length
        if position < begin or decay_length == 0:
            return 1.0
        return self.floor + (1 - self.floor) * (
            1 - math.sqrt(min(1.0, (position - begin) / decay_length))
        )
