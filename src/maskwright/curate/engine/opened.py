"""What steps have opened (word lists, models), once in a process."""

from __future__ import annotations

from typing import Any

from maskwright.config import fingerprint, to_plain
from maskwright.curate.parts.step import Step

_OPENED: dict[str, Any] = {}


def opened(name: str, step: Step) -> Any:
    """What the step needs, made when it is first asked for."""
    key = fingerprint([name, to_plain(step)])
    if key not in _OPENED:
        _OPENED[key] = step.open()
    return _OPENED[key]
