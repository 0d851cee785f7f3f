"""The optimizer settings of a recipe: frozen, and checked before torch is loaded.

    adamw      two fused kernel calls, whatever the number of parameters
    lamb       Adam's step, scaled to the length of the tensor
    adafactor  second moments of matrices by row and column
    muon       orthogonal steps for matrices of layers, AdamW for the rest

`states.py` has their computation. Matrices decay, biases and norms do not (google-research/bert,
optimization.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from maskwright.base.config import out_of_range


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
