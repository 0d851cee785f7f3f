"""The interface of an export target.

A module of `ship/export/targets/` defines

    SUMMARY   one line for lists
    Options   a frozen dataclass of numbers, strings and flags, all with defaults; the command line
              takes its help from the line of each in the docstring
    export    (Model, out: Path, Options, Note) -> Report

and can be imported without torch, which only `export` imports. `export` commits the folder `out`
only after its contents were reread and compared with the model (`folder.py`); a difference raises
an error, and no folder is left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from maskwright.base import catalogue
from maskwright.base.calls import Keyword
from maskwright.base.config import lines_of
from maskwright.base.errors import Finding, Note
from maskwright.base.report.document import Table

if TYPE_CHECKING:
    from maskwright.model.opening.folders import Model

CATALOGUE = "export.targets"
ABOUT = "export.json"


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of an export.

    Attributes:
        target: the name of the target.
        folder: the folder that was written.
        about: the contents of `export.json`: source, settings and measurements.
        tables: tables of measurements.
        findings: messages for the user.
        load: lines of code or shell commands that load the folder elsewhere.
    """

    target: str
    folder: Path
    about: dict[str, Any]
    tables: Sequence[Table] = ()
    findings: Sequence[Finding] = ()
    load: Sequence[str] = ()


Export = Callable[["Model", Path, Any, Note], Report]


def targets() -> list[str]:
    return catalogue.names(CATALOGUE)


def target(name: str) -> ModuleType:
    """Return the module of a target.

    Raises:
        UsageError: no such target; the message lists similar names.
    """
    return catalogue.load(CATALOGUE, name)


def target_keywords() -> dict[str, Keyword]:
    """Return the options of all targets as keywords; None: that of the target."""
    keywords = {}
    for name in targets():
        options = target(name).Options
        descriptions = lines_of(options)
        for field in dataclasses.fields(options):
            keywords[field.name] = Keyword(
                f"{field.type} | None", None, descriptions.get(field.name, "")
            )
    return keywords
