"""The counters that a resumed run needs besides weights and moments.

Order, masks and dropout are functions of keys, so no state of generators or loaders is saved.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from maskwright.base.budget import BudgetUse
from maskwright.base.errors import CheckpointError


@dataclass
class TrainState:
    """`seconds` is training time over all sessions of the run; `samples` counts rows taken from the
    loader; `skipped` counts the last steps in a row that changed nothing, as their loss was not
    finite."""

    step: int = 0
    samples: int = 0
    tokens: int = 0
    targets: int = 0
    skipped: int = 0
    seconds: float = 0.0

    @property
    def counted(self) -> BudgetUse:
        """The counters that a `Budget` uses."""
        return {"steps": self.step, "tokens": self.tokens, "seconds": self.seconds}

    def to_json(self) -> dict[str, Any]:
        """Return the counters as JSON values; `seconds` as an exact hexadecimal string."""
        return {**asdict(self), "seconds": self.seconds.hex()}

    @classmethod
    def from_json(cls, plain: Any, where: str) -> TrainState:
        """Return the state from the output of `to_json`.

        Raises:
            CheckpointError: a counter is missing, unknown or invalid.
        """
        names = {f.name for f in fields(cls)}
        if isinstance(plain, dict):
            plain = {"skipped": 0, **plain}  # older runs have no such counter
        if not isinstance(plain, dict) or set(plain) != names:
            raise CheckpointError(
                "not a training state",
                where=where,
                found=plain,
                wanted=", ".join(sorted(names)),
                do="resume from an older checkpoint: remove this one",
            )
        try:
            numbers = {n: int(plain[n]) for n in names - {"seconds"}}
            return cls(**numbers, seconds=float.fromhex(plain["seconds"]))
        except (TypeError, ValueError) as error:
            raise CheckpointError(
                "not a training state",
                where=where,
                found=plain,
                do="resume from an older checkpoint: remove this one",
            ) from error
