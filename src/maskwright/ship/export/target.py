"""What a target of an export is.

A module of `ship/export/targets/` has

    SUMMARY   one line for lists
    Options   a frozen dataclass of numbers, texts and flags, all with defaults; each has a line in
              the docstring, from which the command line makes its help
    WRITES    False where it checks and writes no folder; `out` is None then
    export    (Model, out: Path, Options, Note) -> Report

and needs no torch to be imported: what computes is imported by `export`. It commits the folder
`out` only after what lies in it was read again and compared with the model (`proof.py`); a
difference is an error, and nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from maskwright.base import catalogue
from maskwright.base.findings import Finding, Note
from maskwright.base.report.tables import Table

if TYPE_CHECKING:
    from maskwright.model.opening.model import Model

ROOM = "export.targets"
ABOUT = "export.json"


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was exported.

    Attributes:
        target: its name.
        folder: where it lies.
        about: what `export.json` says: what was read, written and measured.
        tables: of what was measured, for a terminal.
        findings: what the user should know.
        load: how it is loaded elsewhere, a line of code or of a shell each.
    """

    target: str
    folder: Path
    about: dict[str, Any]
    tables: Sequence[Table] = ()
    findings: Sequence[Finding] = ()
    load: Sequence[str] = ()


Export = Callable[["Model", Path, Any, Note], Report]


def targets() -> list[str]:
    """The names of all targets."""
    return catalogue.names(ROOM)


def target(name: str) -> ModuleType:
    """The target of that name.

    Raises:
        UsageError: there is none; the message has the near names.
    """
    return catalogue.load(ROOM, name)
