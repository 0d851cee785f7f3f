"""`maskwright explore`: the pages for some models, in the browser."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

from maskwright.explore.server import serving
from maskwright.explore.site import Site


def explore(
    models: Path | str | Sequence[Path | str],
    *,
    port: int = 0,
    text: str | None = None,
    browser: bool = True,
    say: Callable[[str], None] = print,
    until: threading.Event | None = None,
) -> None:
    """Show the pages for models and runs until it is interrupted.

    Args:
        port: of the server on this machine; 0 for one that is free.
        text: what the pages begin with; None: a text of their own.
        browser: open the page in the browser.
        say: takes the address.
        until: ends it, too.

    Raises:
        UsageError: no such folder, or a port that is in use.
        CheckpointError: a folder that is damaged.
    """
    paths = [models] if isinstance(models, str | Path) else models
    site = Site.of(paths, sample=text, live=True)
    if site.models:
        site.read("data/models/0/model.json")  # what cannot be shown is said before a page opens
    with serving(site, port) as address:
        say(f"{address}   (Ctrl+C ends it)")
        if browser:
            webbrowser.open(address)
        try:
            (until or threading.Event()).wait()
        except KeyboardInterrupt:
            say("")
