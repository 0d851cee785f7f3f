"""Asking models before anybody else does, so that the first request is as quick as the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maskwright.serve.served import Served

if TYPE_CHECKING:
    from maskwright.serve.host import Host

# Words of a text, and texts at once.
SHAPES = ((4, 1), (24, 1), (100, 1), (24, 8))


async def warm_up(host: Host) -> None:
    """Ask every model, through the queue and the device."""
    for name in host.names:
        warm_one(host.model(name))


def warm_one(served: Served) -> None:
    """Ask one model whatever it can be asked, on this thread.

    Raises:
        MaskwrightError: it does not answer.
    """
    for words, rows in SHAPES:
        texts = [" ".join(["the"] * words)] * rows
        served.warm(texts)
