"""Empty folders that a refused command made, which would stand in the way of the next."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from maskwright.errors import MaskwrightError
from maskwright.storage.lock import Lock


@contextlib.contextmanager
def none_empty(out: Path | None) -> Iterator[None]:
    """Where the block fails, remove the folder `out` if it was made meanwhile and holds nothing."""
    new = out is not None and not out.exists()
    try:
        yield
    except BaseException:
        if new and out is not None:
            with contextlib.suppress(OSError, MaskwrightError):
                _remove_empty(out)
        raise


def _remove_empty(folder: Path) -> None:
    """Remove a folder with nothing in it but empty folders and locks that nobody holds."""
    inside = sorted(folder.rglob("*"), reverse=True)
    files = [path for path in inside if path.is_symlink() or not path.is_dir()]
    if any(path.suffix != ".lock" or path.is_symlink() for path in files):
        return
    for path in files:
        with Lock(path):
            path.unlink()
    for path in (*(path for path in inside if path not in files), folder):
        path.rmdir()
