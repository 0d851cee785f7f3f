"""The budget that every compared run has. No torch: a wrong one is refused before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from maskwright.errors import ConfigError
from maskwright.train.schedule import Budget


@dataclass(frozen=True)
class EqualBudget:
    """What every run may use: so many tokens, minutes or floating-point operations."""

    unit: str
    amount: float

    @classmethod
    def parse(cls, text: str) -> EqualBudget:
        """From `tokens=5e6`, `minutes=10` or `flops=1e15`.

        Raises:
            ConfigError: none of these, or not a positive number.
        """
        unit, _, amount = text.partition("=")
        try:
            made = cls(unit, float(amount))
        except ValueError:
            made = cls("", 0.0)
        if made.unit not in ("tokens", "minutes", "flops") or not 0.0 < made.amount < float("inf"):
            raise ConfigError(
                "not a budget",
                where="--budget",
                found=repr(text),
                wanted="tokens=5e6, minutes=10 or flops=1e15",
            )
        return made

    def budget(self, operations_per_token: float) -> Budget:
        """The same in the loop's terms, for a model that costs so much a token."""
        if self.unit == "minutes":
            return Budget(minutes=self.amount)
        share = operations_per_token if self.unit == "flops" else 1.0
        return Budget(tokens=max(1, int(self.amount / share)))

    def __str__(self) -> str:
        return f"{self.amount:g} {self.unit}"
