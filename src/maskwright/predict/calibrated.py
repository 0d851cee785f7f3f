"""What may have been settled on validation data, of folders that no last manifest guards.

There the hash says whether a value is the one that was written; of earlier folders only whether it
can be one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from maskwright.checkpoint.fine_tuned import COPY, TaskRecord
from maskwright.errors import CheckpointError, near
from maskwright.tasks.parts.choices import POOLINGS


def _a_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _a_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _a_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _a_range(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(map(_a_number, value))
        and (value[0] < value[1])
    )


KNOWN: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("low", "high", "usual"), (_a_number, "a number")),
    **dict.fromkeys(("prompt", "measure", "missing", "key"), (_a_text, "a text")),
    **dict.fromkeys(("beams", "longest"), (_a_count, "1 or more")),
    "pooling": (lambda value: value in list(POOLINGS), ", ".join(POOLINGS)),
    "scale": (_a_range, "two numbers, the lower first"),
    "step": (lambda value: _a_number(value) and value > 0, "a number above 0"),
    "threshold": (lambda value: value is None or _a_number(value), "a number"),
}


def require_known_options(task: TaskRecord, path: Path) -> None:
    """Refuse what no release has settled.

    Raises:
        CheckpointError: naming it.
    """
    for name, value in task.settled.items() if task.format == 1 else ():
        fits, wanted = KNOWN.get(name, (None, near(name, KNOWN)))
        if fits is None or not fits(value):
            raise CheckpointError(
                "the option is unknown" if fits is None else "the option's value does not fit",
                where=f"{path}: settled.{name}",
                found=repr(value)[:80],
                wanted=wanted,
                do=COPY,
            )
