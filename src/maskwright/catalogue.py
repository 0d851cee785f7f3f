"""A folder is a registry.

`families/`, `objectives/` and `recipes/` are open sets: a module that keeps the room's contract
is a member by lying there, and its file name is its name (`openai_gpt.py` is `openai-gpt`).
Nothing is imported before it is asked for by name, so a list costs no torch.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

from maskwright.errors import UsageError, near

# The modules of a room that carry its contract instead of being a member of it.
CONTRACTS = {
    "families": {"family", "fields", "weights", "post_norm"},
    "objectives": {
        *("objective", "corruption", "encoder_decoder", "sequences"),
        *("vocabulary_divergence", "vocabulary_loss"),
    },
    "recipes": {"recipe", "mini"},
}


def names(room: str) -> list[str]:
    """The members of `room` in alphabetical order, without importing any of them."""
    folder = Path(__file__).parent / room
    stems = (module.name for module in pkgutil.iter_modules([str(folder)]))
    return sorted(s.replace("_", "-") for s in stems if s not in CONTRACTS[room])


def load(room: str, name: str) -> ModuleType:
    """Import the member `name` of `room`.

    Raises:
        UsageError: no such member; the message has the near names.
    """
    known = names(room)
    if name not in known:
        singular = {"families": "family"}.get(room, room[:-1])
        raise UsageError(f"no {singular} of that name", found=repr(name), wanted=near(name, known))
    return importlib.import_module(f"maskwright.{room}.{name.replace('-', '_')}")
