"""What is there to use: members of open sets, and optional packages.

`families`, `objectives`, `adapters`, `tasks`, `recipes`, `verbs` and the like are open sets. A
module in the folder of a set is a member, and its file name is its name (`openai_gpt.py` is
`openai-gpt`, `big__bird.py` is `big_bird`); a recipe is a TOML file. What the members of a set
share is in a package beside them, `base/`. A set may have folders in several packages: curation
steps that use a model are in `ask/curate/steps/`. Another installed package adds a member through
an entry point of the group `maskwright.families` (or the like) that names its module. No member is
imported before it is asked for by name, so a list of names does not load torch. Nothing is ever
taken from a folder of models or data.

The command that installs optional packages names these and no extra of Maskwright, which is not on
an index: that name could be taken by others.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import pkgutil
import re
import shlex
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from maskwright.base.errors import UsageError, unknown
from maskwright.base.memory import is_shortage


# ------------------------------------------------------------------------------ open sets
def names(set_name: str) -> list[str]:
    """Return the members of `set_name` in alphabetical order, without importing any of them."""
    return sorted(_modules(set_name))


def load(set_name: str, name: str) -> ModuleType:
    """Import the member `name` of `set_name`.

    Raises:
        UsageError: no such member; with similar names.
    """
    modules = _modules(set_name)
    if name not in modules:
        singular = {"families": "family"}.get(set_name, set_name.rpartition(".")[2][:-1])
        raise unknown(f"no {singular} of that name", name, modules)
    return importlib.import_module(modules[name])


def load_modules(set_name: str, name: str) -> ModuleType:
    """Import what builds the member `name` of `set_name`, which may load torch.

    It is `modules/NAME` beside the member, or the module of that folder that the member names as
    `MODULES`, or the member itself where there is no such file.

    Raises:
        UsageError: no such member.
    """
    module = load(set_name, name)
    package, _, file = module.__name__.rpartition(".")
    beside = f"{package}.modules.{getattr(module, 'MODULES', file)}"
    try:
        return importlib.import_module(beside) if package else module
    except ModuleNotFoundError as error:
        if error.name not in (beside, f"{package}.modules"):
            raise
        return module


@functools.cache
def _modules(set_name: str) -> dict[str, str]:
    """Return the module of every member, by name."""
    from importlib.metadata import entry_points  # slow: not at the top

    root, subfolders = Path(__file__).parents[1], set_name.split(".")
    folders = [
        (path.name, path.joinpath(*subfolders))
        for path in root.iterdir()
        if path.joinpath(*subfolders, "__init__.py").is_file()
    ]
    members = {
        module.name.replace("_", "-").replace(
            "--", "_"
        ): f"maskwright.{package}.{set_name}.{module.name}"
        for package, folder in folders
        for module in pkgutil.iter_modules([str(folder)])
        if not module.ispkg
    }
    members |= {path.stem: path.name for _, folder in folders for path in folder.glob("*.toml")}
    for entry in entry_points(group=f"maskwright.{set_name}"):
        if members.setdefault(entry.name, entry.module) != entry.module:
            raise UsageError(
                "two modules for one name",
                where=f"the entry points of maskwright.{set_name}",
                found=f"{entry.name!r} is {entry.module}",
                wanted=f"one module, and there is {members[entry.name]}",
                do="uninstall the package that brings it, or ask its makers for another name",
            )
    return members


def description(set_name: str, name: str) -> str:
    """Return the first sentence about a member: of its module, which is not imported, or the note
    of a recipe."""
    module = _modules(set_name)[name]
    if module.endswith(".toml"):
        folder = next(Path(__file__).parents[1].glob(f"*/{set_name.replace('.', '/')}"))
        return str(tomllib.loads((folder / module).read_text(encoding="utf-8")).get("note", ""))
    spec = importlib.util.find_spec(module)
    source = "" if spec is None or spec.origin is None else Path(spec.origin).read_text("utf-8")
    text = " ".join((ast.get_docstring(ast.parse(source)) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[a-z)])(?<! al)\. ", text)[0].rstrip(".")


# ------------------------------------------------------------------------------ optional packages
def missing_packages(names: Sequence[str]) -> list[str]:
    """Return the packages that are not installed, without importing any."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def installed_extras() -> dict[str, bool]:
    """Return the extras of Maskwright, each with whether all of its packages are installed."""
    from importlib.metadata import PackageNotFoundError, distribution

    def is_installed(requirement: str) -> bool:
        try:  # "daft[ray]>=0.7" needs both
            return all(map(distribution, re.findall(r"[A-Za-z][\w.-]*", requirement)))
        except PackageNotFoundError:
            return False

    try:
        about = distribution("maskwright")
    except PackageNotFoundError:  # it runs from a folder of its source
        return {}
    needs = [line.partition("; extra == ")[::2] for line in about.requires or ()]
    return {
        extra: all(is_installed(name) for name, marker in needs if marker.strip("'\"") == extra)
        for extra in about.metadata.get_all("Provides-Extra") or ()
    }


def install_command(*names: str) -> str:
    """Return the command that installs packages for the running Python."""
    packages = dict.fromkeys(name.split(".")[0].replace("_", "-") for name in names)
    return shlex.join([sys.executable or "python", "-m", "pip", "install", *packages])


def require_packages(
    purpose: str, *names: str, where: object = None, do: str | None = None, otherwise: str = ""
) -> Any:
    """Import packages, and return the first.

    Args:
        purpose: what needs them, such as "serving".
        do: the command that helps; None: `install(*names)`.
        otherwise: appended to it, as an alternative.

    Raises:
        UsageError: one cannot be imported.
    """
    try:
        modules = [importlib.import_module(name) for name in names]
    except ImportError as error:
        if is_shortage(error):  # installed, but memory is exhausted
            raise
        raise UsageError(
            f"{purpose} needs packages that are not installed",
            where=where,
            found=error,
            wanted=", ".join(names),
            do=(do or install_command(*names)) + otherwise,
        ) from error
    return modules[0]
