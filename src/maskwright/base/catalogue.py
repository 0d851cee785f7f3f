"""Open sets: a folder is a registry.

`families`, `objectives`, `adapters`, `tasks`, `recipes`, `curate.steps` and the like are open sets.
A module in the folder of a set is a member, and its file name is its name (`openai_gpt.py` is
`openai-gpt`). What the members of a set share is in a package beside them, `base/`. Another
installed package adds a member through an entry point of the group `maskwright.families` (or the
like) that names its module. No member is imported before it is asked for by name, so a list of
names does not load torch. Nothing is ever taken from a folder of models or data.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

from maskwright.base.errors import UsageError, near


def names(room: str) -> list[str]:
    """The members of `room` in alphabetical order, without importing any of them."""
    return sorted(_modules(room))


def load(room: str, name: str) -> ModuleType:
    """Import the member `name` of `room`.

    Raises:
        UsageError: no such member; the message has the near names.
    """
    known = _modules(room)
    if name not in known:
        singular = {"families": "family"}.get(room, room.rpartition(".")[2][:-1])
        raise UsageError(f"no {singular} of that name", found=repr(name), wanted=near(name, known))
    return importlib.import_module(known[name])


def load_modules(room: str, name: str) -> ModuleType:
    """Import what builds the member `name` of `room`, which may load torch.

    It is `modules/NAME` beside the member, or the module of that folder that the member names as
    `MODULES`, or the member itself where there is no such file.

    Raises:
        UsageError: no such member.
    """
    module = load(room, name)
    package, _, file = module.__name__.rpartition(".")
    beside = f"{package}.modules.{getattr(module, 'MODULES', file)}"
    try:
        return importlib.import_module(beside) if package else module
    except ModuleNotFoundError as error:
        if error.name not in (beside, f"{package}.modules"):
            raise
        return module


@functools.cache
def _modules(room: str) -> dict[str, str]:
    """The module of every member, by name.

    Raises:
        UsageError: an entry point takes the name of a member that is here.
    """
    from importlib.metadata import entry_points  # 20 ms that a page of help does without

    root, parts = Path(__file__).parents[1], room.split(".")
    packages = (path for path in root.iterdir() if path.joinpath(*parts, "__init__.py").is_file())
    package = next(packages)
    folder = package.joinpath(*parts)
    members = {
        module.name.replace("_", "-"): f"maskwright.{package.name}.{room}.{module.name}"
        for module in pkgutil.iter_modules([str(folder)])
        if not module.ispkg
    }
    for entry in entry_points(group=f"maskwright.{room}"):
        if members.setdefault(entry.name, entry.module) != entry.module:
            raise UsageError(
                "two modules for one name",
                where=f"the entry points of maskwright.{room}",
                found=f"{entry.name!r} is {entry.module}",
                wanted=f"one module, and there is {members[entry.name]}",
                do="uninstall the package that brings it, or ask its makers for another name",
            )
    return members
