"""The numbers that a resumed run needs besides weights and moments.

Order, masks and dropout are functions of keys, so no generator and no loader state is kept.
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
        """What a `Budget` counts."""
        return {"steps": self.step, "tokens": self.tokens, "seconds": self.seconds}

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; the one float as a hexadecimal string, so that it returns exactly."""
        return {**asdict(self), "seconds": self.seconds.hex()}

    @classmethod
    def from_json(cls, plain: Any, where: str) -> TrainState:
        """The reverse of `to_json`.

        Raises:
            CheckpointError: not exactly these numbers.
        """
        names = {f.name for f in fields(cls)}
        if isinstance(plain, dict):
            plain = {"skipped": 0, **plain}  # runs of before could not skip
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
