"""Which engines there are, without loading one: a wrong name is refused before torch is loaded."""

from __future__ import annotations

from types import ModuleType

from maskwright.base import catalogue, packages
from maskwright.base.errors import UsageError, near

ROOM = "graph.engines"
TORCH = "torch"
AUTO = "auto"
"""Our own engine, and whichever is found to be the soonest."""


def names() -> tuple[str, ...]:
    """What `engine` may say."""
    return (TORCH, AUTO, *catalogue.names(ROOM))


def exact() -> list[str]:
    """The engines that compute with the model's own numbers, and whose packages are installed."""
    return [n for n in catalogue.names(ROOM) if catalogue.load(ROOM, n).EXACT and not missing(n)]


def missing(name: str) -> list[str]:
    """The packages of this engine that are not installed."""
    return packages.missing(module(name).NEEDS)


def require(name: str, where: str = "engine") -> None:
    """Refuse an engine that there is not, or whose packages are missing.

    Raises:
        UsageError: with the near names, or the command that installs it.
    """
    if name not in names():
        raise UsageError(
            "no such engine", where=where, found=repr(name), wanted=near(name, names())
        )
    if name in (TORCH, AUTO):
        return
    if lacking := missing(name):
        raise UsageError(
            "the engine is not installed",
            where=where,
            found=f"{name} without {', '.join(lacking)}",
            do=packages.install(*lacking),
        )


def module(name: str) -> ModuleType:
    """The module of this engine."""
    return catalogue.load(ROOM, name)
