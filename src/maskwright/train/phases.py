"""The number and length of rows of a batch, as functions of progress.

GPT-BERT (Charpentier & Samuel 2024) reads 128 tokens until 0.7 of its budget, 256 until 0.9, then
512, always as many tokens at once, and its batches grow from a quarter to their full size:

    phases = [{until = 0.7, length = 128, batch = 256}, {until = 0.9, length = 256, batch = 128}]
    ramp = {start = 0.25}                    with rows.length = 512 and batch = 64 for the rest

There is no state: the used share of the budget decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from maskwright.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Phase:
    """The part of a run that ends when the share `until` of its budget is used: `batch` rows of
    `length` tokens per optimizer step."""

    until: float
    length: int
    batch: int

    def __post_init__(self) -> None:
        for name, low, high in (("until", 0.0, 1.0), ("length", 4, 1 << 20), ("batch", 1, 1 << 30)):
            if not low <= getattr(self, name) <= high:
                raise ConfigError(
                    "a setting of a phase is out of range",
                    where=f"training.phases, {name}",
                    found=getattr(self, name),
                    wanted=f"{low} to {high}",
                )


@dataclass(frozen=True, kw_only=True)
class Ramp:
    """Batches grow from the share `start` of their rows to all of them, evenly until the share
    `until` of the budget is used."""

    start: float = 1.0
    until: float = 1.0

    def __post_init__(self) -> None:
        for name in ("start", "until"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ConfigError(
                    "a share is out of range",
                    where=f"training.ramp.{name}",
                    found=getattr(self, name),
                    wanted="above 0, at most 1",
                )

    def rows(self, full: int, progress: float) -> int:
        """The number of rows, of `full` rows, at least one."""
        share = self.start + (1.0 - self.start) * min(1.0, progress / self.until)
        return max(1, round(share * full))
