"""The settings of an update: optimizer and learning rate.

    adamw      two fused kernel calls, whatever the number of parameters
    lamb       Adam's step, scaled to the length of the tensor
    adafactor  second moments of matrices by row and column
    muon       orthogonal steps for matrices of layers, AdamW for the rest
    adagrad    by the sum of all squared gradients, for tables of which a step meets few rows

`optimizers.py` has their computation. Matrices decay, biases and norms do not
(google-research/bert, optimization.py).

The learning rate is a pure function of progress, so nothing of it is saved:

    constant           warm-up, then 1
    linear             warm-up, then straight down to `floor` at the end
    slanted            the same, and the warm-up begins at `floor`, too   (Howard & Ruder 2018, 3.2)
    cosine             warm-up, then half a cosine down to `floor` at the end
    inverse-sqrt       warm-up, then sqrt(warmup / position)            (Vaswani et al. 2017, 5.3)
    held-inverse-sqrt  1 instead of a warm-up, then the same            (Raffel et al. 2020, 3.1.2)
    stable-decay       warm-up, 1, and 1 - sqrt down to `floor` over the last `decay` share

With a `cooldown` each ends that much earlier, and what is left of the run goes straight down to 0
from there (after a cosine: GPT-BERT; after `constant`: a trapezoid). Indexing follows transformers:
the update at step 0 uses position 0, so a warm-up begins at 0, `linear` without one at 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NoReturn

from maskwright.base.config import out_of_range, require


# ------------------------------------------------------------------------------ optimizers
@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Settings that every optimizer has; `kind` is its name in a recipe, `decay` decoupled weight
    decay, `clip` the largest gradient norm (0 = none)."""

    # The memory of a parameter besides its master and its gradient.
    bytes_per_parameter: ClassVar[int] = 8

    kind: str
    learning_rate: float
    decay: float = 0.01
    clip: float = 1.0

    def __post_init__(self) -> None:
        for name, high in (("learning_rate", 1e3), ("decay", 1e3), ("clip", 1e9)):
            self.require(name, 0.0 <= getattr(self, name) <= high, f"0 to {high}")

    def require(self, name: str, fits: bool, expected: str) -> None:
        """Refuse the setting `name` unless it `fits`.

        Raises:
            ConfigError: naming the setting, its value and what is `expected`.
        """
        if not fits:
            raise out_of_range(f"training.optimizer.{name}", getattr(self, name), expected)


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Settings of optimizers that take Adam's step (Kingma & Ba 2015). BERT was trained without
    `bias_correction`."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    bias_correction: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        # At 0 a weight without a gradient would move by 0/0; below this it is 0 in float32.
        self.require("epsilon", 1e-36 <= self.epsilon <= 1.0, "1e-36 to 1")
        for name in ("beta1", "beta2"):
            self.require(name, 0.0 <= getattr(self, name) < 1.0, "0 <= beta < 1")


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""

    kind: Literal["adamw"] = "adamw"


@dataclass(frozen=True, kw_only=True)
class Lamb(Adam):
    """Adam's settings with LAMB's step; ALBERT was trained without `bias_correction`."""

    bytes_per_parameter: ClassVar[int] = 12

    kind: Literal["lamb"] = "lamb"


@dataclass(frozen=True, kw_only=True)
class Adafactor(Optimizer):
    """The published settings; steps are bounded by `threshold`, so gradients are not clipped."""

    bytes_per_parameter: ClassVar[int] = 0

    kind: Literal["adafactor"] = "adafactor"
    decay: float = 0.0
    clip: float = 0.0
    exponent: float = -0.8
    epsilon: float = 1e-30
    floor: float = 1e-3
    threshold: float = 1.0
    relative: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("exponent", -1.0 <= self.exponent < 0.0, "-1 <= exponent < 0")
        self.require("threshold", 0.0 < self.threshold <= 1e9, "above 0")
        self.require("epsilon", 1e-36 <= self.epsilon <= 1.0, "1e-36 to 1")
        self.require("floor", 0.0 <= self.floor <= 1.0, "0 to 1")


@dataclass(frozen=True, kw_only=True)
class AdaGrad(Optimizer):
    """Steps divided by the root of the sum of all squared gradients (Duchi et al. 2011)."""

    bytes_per_parameter: ClassVar[int] = 4

    kind: Literal["adagrad"] = "adagrad"
    decay: float = 0.0
    clip: float = 0.0
    epsilon: float = 1e-10

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("epsilon", 1e-36 <= self.epsilon <= 1.0, "1e-36 to 1")


@dataclass(frozen=True, kw_only=True)
class Muon(Adam):
    """Muon's settings. Those of AdamW are for all parameters except the matrices of layers; the
    learning rate of these others is `adam_rate` times `learning_rate`. `decay` is for all matrices.
    """

    bytes_per_parameter: ClassVar[int] = 4  # and 4 more outside the layers

    kind: Literal["muon"] = "muon"
    decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    iterations: int = 5
    adjust: Literal["original", "match_rms_adamw"] = "match_rms_adamw"
    adam_rate: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("momentum", 0.0 <= self.momentum < 1.0, "0 <= momentum < 1")
        self.require("iterations", 1 <= self.iterations < 100, "1 to 99")
        self.require("adam_rate", 0.0 <= self.adam_rate <= 1e3, "0 to 1000")


# ------------------------------------------------------------------------------ learning rate
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


ScheduleKind = Literal[
    "constant",
    "linear",
    "slanted",
    "cosine",
    "inverse-sqrt",
    "held-inverse-sqrt",
    "stable-decay",
]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """`warmup`, `decay` and `cooldown` are shares of the whole run (0 to 1)."""

    kind: ScheduleKind = "linear"
    warmup: float = 0.0
    floor: float = 0.0
    decay: float = 0.1
    cooldown: float = 0.0

    def __post_init__(self) -> None:
        for name in ("warmup", "floor", "decay", "cooldown"):
            require(f"training.schedule.{name}", getattr(self, name), 0.0, 1.0)
        falls = self.kind in ("linear", "slanted", "cosine", "stable-decay")
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
            if self.kind == "held-inverse-sqrt":
                return 1.0
            begin = self.floor if self.kind == "slanted" else 0.0
            return begin + (1 - begin) * position / warm
        if self.kind == "constant" or total <= warm:
            return 1.0
        if self.kind.endswith("inverse-sqrt"):
            return math.sqrt(warm / max(position, warm))
        share = min(1.0, (position - warm) / (total - warm))
        if self.kind in ("linear", "slanted"):
            return self.floor + (1 - self.floor) * (1 - share)
        if self.kind == "cosine":
            return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * share))
        begin = total - decay_length
        if position < begin or decay_length == 0:
            return 1.0
        return self.floor + (1 - self.floor) * (
            1 - math.sqrt(min(1.0, (position - begin) / decay_length))
        )
