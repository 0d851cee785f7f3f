"""Names of devices and precisions, without torch; `machine` checks whether this machine has
them."""

from __future__ import annotations

import re
from typing import Literal

from maskwright.base.errors import ConfigError

Precision = Literal["auto", "float32", "bfloat16"]
DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,3})?")


def require_device(name: str, where: str = "device") -> None:
    """Refuse a name that is no device.

    Raises:
        ConfigError: naming the setting.
    """
    if not DEVICE.fullmatch(name):
        raise ConfigError(
            "no such device",
            where=where,
            found=repr(name),
            wanted="auto, cpu, cuda, or one of several as cuda:1",
        )
