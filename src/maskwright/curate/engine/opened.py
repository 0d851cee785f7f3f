"""What steps have opened (word lists, models), once in a process."""

from __future__ import annotations

from typing import Any

from maskwright.config import fingerprint, to_plain
from maskwright.curate.parts.step import Step
from maskwright.storage.files import state_of

_OPENED: dict[str, tuple[list[Any], Any]] = {}


def opened(name: str, step: Step) -> Any:
    """What the step needs, made when it is first asked for, and anew when its files change."""
    key, state = fingerprint([name, to_plain(step)]), [state_of(path) for path in step.files()]
    if key not in _OPENED or _OPENED[key][0] != state:
        _OPENED[key] = state, step.open()
    return _OPENED[key][1]
