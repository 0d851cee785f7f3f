"""The length of a training: in steps, tokens, floating-point operations or minutes."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypedDict

from maskwright.base.errors import ConfigError

UNITS = ("steps", "tokens", "flops", "minutes")
SPELLINGS = {"step": "steps", "token": "tokens", "flop": "flops"} | dict.fromkeys(
    ("min", "mins", "minute"), "minutes"
)
FORMS = {
    "steps": "steps=1000",
    "tokens": "tokens=5e6",
    "minutes": "minutes=10",
    "flops": "flops=1e15",
}
HOURS = ("h", "hour", "hours")
_FORM = re.compile(
    r"(?P<unit>[a-z]+)=(?P<amount>\S+)|(?P<first>[0-9][0-9_.]*(?:e[+-]?\d+)?) ?(?P<last>[a-z]+)"
)


class BudgetUse(TypedDict):
    """Steps, tokens and seconds of training that a run has used so far."""

    steps: float
    tokens: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The length of a run: exactly one of the four is set. A run of `minutes`, which are wall
    time, is not repeatable to the bit.

    Attributes:
        flops: floating-point operations of matrix products, forward and backward; `in_tokens`
            converts them, since the training loop counts tokens.
    """

    steps: int | None = None
    tokens: int | None = None
    minutes: float | None = None
    flops: float | None = None

    def __post_init__(self) -> None:
        given_units = [n for n in UNITS if getattr(self, n) is not None]
        if len(given_units) != 1 or not 0 <= getattr(self, given_units[0]) < math.inf:
            raise ConfigError(
                "a run lasts for steps, tokens, flops or minutes, exactly one of them",
                where="training.budget",
                found=", ".join(f"{n}={getattr(self, n)}" for n in given_units) or "none",
                wanted="one of steps, tokens, flops, minutes, not negative",
                do="for example --set training.budget.steps=1000",
            )

    @classmethod
    def parse(cls, text: str, *, where: str = "--budget", units: Collection[str] = UNITS) -> Budget:
        """Parse `tokens=5e6` or `5e6 tokens`, `minutes=10`, `10min` or `2h`, `1e15flops`.

        Args:
            where: the option, for the error.
            units: the units that are allowed.

        Raises:
            ConfigError: another form or unit, or not a positive number.
        """
        match = _FORM.fullmatch(text.strip())
        unit = (match["unit"] or match["last"]) if match else ""
        unit, scale = ("minutes", 60.0) if unit in HOURS else (SPELLINGS.get(unit, unit), 1.0)
        try:
            amount = scale * float((match["amount"] or match["first"]) if match else "nan")
        except ValueError:
            amount = math.nan
        if unit not in units or not 0.0 < amount < math.inf or (unit == "steps" and amount < 1):
            usual = [form for name, form in FORMS.items() if name in units]
            raise ConfigError(
                "not a budget",
                where=where,
                found=repr(text),
                wanted=f"{', '.join(usual[:-1])} or {usual[-1]}",
            )
        integral = unit in ("steps", "tokens")
        values: dict[str, Any] = {unit: max(1, int(amount)) if integral else amount}
        return cls(**values)

    @property
    def unit(self) -> str:
        return next(n for n in UNITS if getattr(self, n) is not None)

    @property
    def total(self) -> float:
        """The budget in its own unit."""
        return float(getattr(self, self.unit))

    def used(self, *, steps: float, tokens: float, seconds: float) -> float:
        """Return how much of the budget is used, in its unit.

        Raises:
            ValueError: the budget is in flops; see `in_tokens`.
        """
        if self.flops is not None:
            raise ValueError("a budget in flops is counted in tokens: in_tokens()")
        return float({"steps": steps, "tokens": tokens, "minutes": seconds / 60}[self.unit])

    def spent(self, *, steps: float, tokens: float, seconds: float) -> bool:
        """Return whether the whole budget is used."""
        return self.used(steps=steps, tokens=tokens, seconds=seconds) >= self.total

    def share(self, *, steps: float, tokens: float, seconds: float) -> float:
        """Return the share that is used, 0 to 1; 0 if what is counted is NaN."""
        used = self.used(steps=steps, tokens=tokens, seconds=seconds)
        return 0.0 if math.isnan(used) else min(1.0, max(0.0, used / max(1e-9, self.total)))

    def in_tokens(self, flops_per_token: float) -> Budget:
        """Return the budget with flops converted to tokens, for a model of that cost per token."""
        if self.flops is None:
            return self
        return Budget(tokens=max(1, int(self.flops / flops_per_token)))

    def __str__(self) -> str:
        return f"{self.total:g} {self.unit[:-1] if self.total == 1 else self.unit}"


def equal_budget(text: str) -> Budget:
    """Parse the budget of a comparison. Steps are refused: their cost depends on batch and rows.

    Raises:
        ConfigError: not a budget in tokens, minutes or floating-point operations.
    """
    return Budget.parse(text, units=("tokens", "minutes", "flops"))
