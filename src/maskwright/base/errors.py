"""Exceptions of Maskwright and their exit codes.

    MaskwrightError
      UsageError          the command line or a path given by the user        exit 64
      ConfigError         a recipe, a config.json, a field out of range       exit 64
      DataError           text, rows, token stores                            exit 65
      TokenizerError      a tokenizer file, or training one                   exit 65
      CheckpointError     a checkpoint that is incomplete, foreign or damaged exit 65
      IncompatibleError   two valid inputs that do not fit each other         exit 65
      ResourceError       memory, device                                      exit 69
      OutputError         the output path cannot be written                   exit 73
      StorageError        reading or writing failed                           exit 74
      StoppedError        stopped, and `maskwright resume` can continue       exit 75

Besides its first line, a message has up to four parts: where (path, line, field), found, wanted and
do (what the user can do). The command line prints it without a traceback. Control characters in
names and values are escaped.
"""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from maskwright.base.terminal import harmless

MOST_NAMES = 5000  # names of a folder that are searched for similar ones


class MaskwrightError(Exception):
    """Base class; the module's docstring describes the parts of the message.

    Args:
        what: one sentence, lower case, without a full stop.
        where: the file, line, column or field.
        found: the value there.
        wanted: the value that is expected.
        do: what the user can do.
    """

    kind, exit_code = "E-GENERAL", 70

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        found: object = None,
        wanted: object = None,
        do: str | None = None,
    ) -> None:
        self.what = what
        self.where = None if where is None else str(where)
        self.found = None if found is None else shorten(str(found))
        self.wanted = None if wanted is None else str(wanted)
        self.do = do
        super().__init__(self.render())

    def under(self, prefix: str) -> Self:
        """Put `prefix` before `where`; returns self."""
        self.where = f"{prefix}{self.where}"
        self.args = (self.render(),)
        return self

    def advising(self, do: str) -> Self:
        """Replace `do`; returns self."""
        self.do = do
        self.args = (self.render(),)
        return self

    def render(self) -> str:
        lines = [f"error {self.kind}: {harmless(self.what)}"]
        for name in ("where", "found", "wanted", "do"):
            value = getattr(self, name)
            if value is not None:
                lines.append(f"  {name + ':':<8}{harmless(str(value))}")
        return "\n".join(lines)


class UsageError(MaskwrightError):
    """The command line, or a path on it."""

    kind, exit_code = "E-USAGE", 64


class ConfigError(MaskwrightError):
    """A recipe or a config.json."""

    kind, exit_code = "E-CONFIG", 64


class DataError(MaskwrightError):
    """Text, rows of a table, token stores."""

    kind, exit_code = "E-DATA", 65


class TokenizerError(MaskwrightError):
    """A tokenizer file, or the training of one."""

    kind, exit_code = "E-TOKENIZER", 65


class CheckpointError(MaskwrightError):
    """A checkpoint that is incomplete, foreign or damaged."""

    kind, exit_code = "E-CHECKPOINT", 65


class IncompatibleError(MaskwrightError):
    """Two valid inputs that do not fit each other."""

    kind, exit_code = "E-INCOMPATIBLE", 65


class ResourceError(MaskwrightError):
    """Not enough memory, or no such device."""

    kind, exit_code = "E-RESOURCE", 69


class OutputError(MaskwrightError):
    """The output path cannot be written."""

    kind, exit_code = "E-OUTPUT", 73


class StorageError(MaskwrightError):
    """Reading or writing failed."""

    kind, exit_code = "E-STORAGE", 74


class StoppedError(MaskwrightError):
    """Stopped in good order; the run can be resumed."""

    kind, exit_code = "E-STOPPED", 75


def shorten(text: str, limit: int = 200) -> str:
    """Return `text` on one line of at most `limit` characters, control characters escaped."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def near(name: str, choices: Iterable[str], limit: int = 3) -> str:
    """Return a hint with the choices most similar to `name`, ignoring case, or with all choices if
    none is similar."""
    names = sorted(set(choices))
    folded = dict[str, list[str]]()
    for spelling in names:
        folded.setdefault(spelling.casefold(), []).append(spelling)
    matches = difflib.get_close_matches(name.casefold(), folded, n=limit, cutoff=0.5)
    close = [spelling for key in matches for spelling in folded[key]][:limit]
    if close:
        return "did you mean " + " or ".join(repr(c) for c in close) + "?"
    if not names:
        return "there are none to choose from"
    listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return f"choose one of: {listed}"


def near_path(path: Path) -> str | None:
    """Return `near` for the name of a path among the names in its folder, None if it is empty."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, MOST_NAMES)]
    except (OSError, ValueError):
        return None
    shown = [n for n in names if not n.startswith(".") or path.name.startswith(".")]
    return near(path.name, shown) if shown else None
