"""Optional packages, and the command that installs them. It names the packages and no extra of
Maskwright, which is not on an index: that name could be taken by others."""

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
    """Return the packages that are not installed, without importing any."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def install(*names: str) -> str:
    """Return the command that installs packages for the running Python."""
    packages = dict.fromkeys(name.split(".")[0].replace("_", "-") for name in names)
    return shlex.join([sys.executable or "python", "-m", "pip", "install", *packages])


def require(
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
            do=(do or install(*names)) + otherwise,
        ) from error
    return modules[0]
