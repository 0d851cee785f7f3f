"""Names of devices, precisions and engines, checked without torch.

`machine` checks whether this machine has a device.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Literal

from maskwright.base import catalogue
from maskwright.base.errors import ConfigError, UsageError, near

Precision = Literal["auto", "float32", "bfloat16", "float16"]
DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,3})?")


# What `auto` stands for, as `by_default` sets it.
usual_choice: dict[str, str] = {}


@contextlib.contextmanager
def by_default(device: str, precision: str) -> Iterator[None]:
    """A block in which the device and the precision `auto` are these, for all that is opened and
    computed in this process. Options of commands set it; functions have arguments."""
    before = dict(usual_choice)
    usual_choice.update(device=device, precision=precision)
    try:
        yield
    finally:
        usual_choice.clear()
        usual_choice.update(before)


def require_device(name: str, where: str = "device") -> None:
    """Raise a `ConfigError`, which names the setting, unless `name` is a device."""
    if not DEVICE.fullmatch(name):
        raise ConfigError(
            "no such device",
            where=where,
            found=repr(name),
            wanted="auto, cpu, cuda, or one of several as cuda:1",
        )


# ------------------------------------------------------------------------------ engines
ENGINES = "graph.engines"
TORCH = "torch"


def engine_names() -> tuple[str, ...]:
    """Return the valid values of the option `engine`."""
    return (TORCH, *catalogue.names(ENGINES))


def missing_packages(name: str) -> list[str]:
    """Return the packages of this engine that are not installed."""
    return catalogue.missing_packages(module_of_engine(name).NEEDS)


def require_engine(name: str, where: str = "engine") -> None:
    """Raise a `UsageError`, with similar names or the command that installs it, unless an engine
    exists and is installed."""
    if name not in engine_names():
        raise UsageError(
            "no such engine", where=where, found=repr(name), wanted=near(name, engine_names())
        )
    if name == TORCH:
        return
    if not_installed := missing_packages(name):
        raise UsageError(
            "the engine is not installed",
            where=where,
            found=f"{name} without {', '.join(not_installed)}",
            do=catalogue.install_command(*not_installed),
        )


def module_of_engine(name: str) -> ModuleType:
    """The module of this engine."""
    return catalogue.load(ENGINES, name)
