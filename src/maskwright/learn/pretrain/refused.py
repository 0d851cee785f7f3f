"""What a refused command leaves in its new folder: nothing that would stop the corrected command.

Text that was prepared completely stays, as that may have taken hours, under a recipe of another
name: the next command there uses it, or removes it if it reads another text.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from maskwright.base.errors import MaskwrightError, StoppedError
from maskwright.base.storage import commit
from maskwright.base.storage.files import DOOMED, TEMPORARY
from maskwright.learn.pretrain import crash, journal
from maskwright.learn.pretrain.prepare import HELD_OUT
from maskwright.model.opening.folders import has_checkpoint

REFUSED = "refused.toml"
RECIPE, LOCK = "recipe.toml", "run.lock"
REJECTS = "rejects.jsonl"
PASSING = (LOCK, TEMPORARY, DOOMED, REJECTS)


class Before:
    """The content of the folder `out` before a command started."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.missing = [path for path in (out, *out.parents) if not path.exists()]
        again = (out / REFUSED).is_file() and not (out / RECIPE).exists()
        self.fresh = again or not out.exists() or (out.is_dir() and not inside(out))

    @contextlib.contextmanager
    def leaving_nothing(self) -> Iterator[None]:
        """A block that removes what it made in a new folder if it is refused before the first step.
        Enter it under the folder's lock."""
        try:
            yield
        except StoppedError:  # the same command goes on
            raise
        except MaskwrightError:
            if self.fresh and not _trained(self.out):
                with contextlib.suppress(OSError, MaskwrightError):
                    self._leave()
            raise

    def _leave(self) -> None:
        if (self.out / "data" / HELD_OUT).is_dir():
            (self.out / RECIPE).rename(self.out / REFUSED)
            return
        clear(self.out)
        if (self.out / REJECTS).is_file():
            if (self.out / REJECTS).stat().st_size:
                return  # the refusal names it
            (self.out / REJECTS).unlink()
        for path in self.missing:
            for lock in path.glob(f"{LOCK}*") if path == self.out else ():
                lock.unlink()
            path.rmdir()  # refused where something else lies there by now


def inside(out: Path) -> list[Path]:
    """The content of `out` except locks, remains of a stopped process and a list of
    rejected rows."""
    return [path for path in out.iterdir() if not path.name.startswith(PASSING)]


def clear(out: Path) -> None:
    """Remove what is `inside` the folder."""
    for path in inside(out):
        if path.is_dir() and not path.is_symlink():
            commit.remove_folder(path)
        else:
            os.unlink(path)


def _trained(out: Path) -> bool:
    steps = out / journal.METRICS
    return (
        has_checkpoint(out)
        or (out / crash.FOLDER).exists()
        or (steps.is_file() and steps.stat().st_size > 0)
    )
