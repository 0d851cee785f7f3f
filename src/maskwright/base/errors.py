"""What a user is told of faults: exceptions, and findings of checks.

Besides its first line, a message has up to four parts: where (path, line, field), found, wanted and
do (what the user can do). The command line prints it without a traceback. Control characters in
names and values are escaped.

Results of checks that the user should know are findings. A check prints nothing; a finding becomes
a line on the terminal, plain values in a JSON file, or a sentence on a page (`report/`).
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

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
    """A recipe, a config.json, or a field out of range."""

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
    """Stopped in good order; `maskwright resume` can continue."""

    kind, exit_code = "E-STOPPED", 75


def visible(text: str, keep: str = "") -> str:
    """Replace unprintable characters, except those in `keep`, by escapes such as `\\x1b`."""
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def shorten(text: str, limit: int = 200) -> str:
    """Return `text` on one line of at most `limit` characters, control characters escaped."""
    text = visible(text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def near(name: str, choices: Iterable[str], limit: int = 3) -> str:
    """Return a hint with the choices most similar to `name`, ignoring case, or with all choices if
    none is similar; `name` itself is never suggested."""
    names = sorted(set(choices) - {name})
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


def unknown(
    what: str,
    name: object,
    choices: Iterable[str],
    *,
    where: object = None,
    do: str | None = None,
    kind: type[MaskwrightError] = UsageError,
) -> MaskwrightError:
    """Return the error for a name that is none of the choices, with those most similar to it."""
    return kind(what, where=where, found=repr(name), wanted=near(str(name), choices), do=do)


def near_path(path: Path, *, folders: bool = False) -> str | None:
    """Return `near` for the name of a path among the names in its folder, or among its `folders`
    alone; None if there are none."""
    try:
        with os.scandir(path.parent) as entries:
            matching = (entry.name for entry in entries if entry.is_dir() or not folders)
            names = list(itertools.islice(matching, MOST_NAMES))
    except (OSError, ValueError):
        return None
    shown = [n for n in names if not n.startswith(".") or path.name.startswith(".")]
    return near(path.name, shown) if shown else None


# ------------------------------------------------------------------------------ findings
Severity = Literal["note", "warning"]
Note = Callable[["Finding"], None]
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Finding:
    """Something that the user should know, though the work goes on.

    Attributes:
        name: a stable identifier, in lower case with hyphens.
        what: a clause without a full stop.
        evidence: numbers or the first occurrence; may be empty.
        remedy: what the user can do; may be empty.
        severity: "warning" if results are likely wrong or misread, else "note".
    """

    name: str
    what: str
    evidence: str = ""
    remedy: str = ""
    severity: Severity = "note"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or not self.what:
            raise ValueError(f"not a finding: {self.name!r}, {self.what!r}")

    def __str__(self) -> str:
        """Return what, evidence and remedy as one sentence without a full stop."""
        return "; ".join(filter(None, (self.what, self.evidence, self.remedy)))

    def line(self) -> str:
        """Return the line for a terminal: `note: …` or `warning: …`."""
        return f"{self.severity}: {self}"

    @classmethod
    def of_line(cls, name: str, line: str) -> Finding:
        """Parse a `line`; a line of another form becomes a note."""
        for severity in get_args(Severity):
            if line.startswith(f"{severity}: "):
                return cls(name, line.partition(": ")[2], severity=severity)
        return cls(name, line)

    def of(self, subject: str) -> Self:
        """Return a copy whose `what` begins with the subject: `train: …`."""
        return replace(self, what=f"{subject}: {self.what}")

    def to_json(self) -> dict[str, str]:
        """Return plain values, without empty fields and the default severity."""
        plain = {**vars(self), "severity": "" if self.severity == "note" else self.severity}
        return {name: value for name, value in plain.items() if value}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Finding:
        """Parse `to_json`.

        Raises:
            TypeError, ValueError: not a finding.
        """
        return cls(**plain)


def ignore(finding: Finding) -> None:
    """A `Note` that does nothing."""
