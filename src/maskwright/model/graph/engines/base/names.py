"""The names of engines; they can be checked without importing torch."""

from __future__ import annotations

from types import ModuleType

from maskwright.base import catalogue, packages
from maskwright.base.errors import UsageError, near

ROOM = "graph.engines"
TORCH = "torch"
AUTO = "auto"
"""Our own engine, and the one that is fastest in a calibration."""


def names() -> tuple[str, ...]:
    """Return the valid values of the option `engine`."""
    return (TORCH, AUTO, *catalogue.names(ROOM))


def exact() -> list[str]:
    """Return the engines that use the original weights and whose packages are installed."""
    return [n for n in catalogue.names(ROOM) if catalogue.load(ROOM, n).EXACT and not missing(n)]


def missing(name: str) -> list[str]:
    """Return the packages of this engine that are not installed."""
    return packages.missing(module(name).NEEDS)


def require(name: str, where: str = "engine") -> None:
    """Check that an engine exists and is installed.

    Raises:
        UsageError: the message has similar names, or the command that installs it.
    """
    if name not in names():
        raise UsageError(
            "no such engine", where=where, found=repr(name), wanted=near(name, names())
        )
    if name in (TORCH, AUTO):
        return
    if not_installed := missing(name):
        raise UsageError(
            "the engine is not installed",
            where=where,
            found=f"{name} without {', '.join(not_installed)}",
            do=packages.install(*not_installed),
        )


def module(name: str) -> ModuleType:
    """The module of this engine."""
    return catalogue.load(ROOM, name)
