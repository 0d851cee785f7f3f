"""Packages that only some commands need, and the command that installs them. It names no extra of
Maskwright, which is on no index: its name there would be somebody else's."""

from __future__ import annotations

import importlib
import importlib.util
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from maskwright.base.errors import UsageError
from maskwright.base.memory import is_shortage


def missing(names: Sequence[str]) -> list[str]:
    """Those of the packages that are not installed. None is imported."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def install(*names: str) -> str:
    """The command that installs packages for the Python that is running."""
    packages = dict.fromkeys(name.split(".")[0].replace("_", "-") for name in names)
    return shlex.join([sys.executable or "python", "-m", "pip", "install", *packages])


def require(
    purpose: str, *names: str, where: object = None, do: str | None = None, otherwise: str = ""
) -> Any:
    """Import packages, and return the first.

    Args:
        purpose: needs them, as "serving".
        do, otherwise: the command, where it is not `install(*names)`, and what else helps.

    Raises:
        UsageError: one cannot be imported.
    """
    try:
        modules = [importlib.import_module(name) for name in names]
    except ImportError as error:
        if is_shortage(error):  # it is installed, and gets no memory
            raise
        raise UsageError(
            f"{purpose} needs packages that are not installed",
            where=where,
            found=error,
            wanted=", ".join(names),
            do=(do or install(*names)) + otherwise,
        ) from error
    return modules[0]
