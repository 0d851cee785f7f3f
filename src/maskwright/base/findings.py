"""Findings: results of checks that the user should know.

A check returns findings and prints nothing. A finding becomes a line on the terminal, plain values
in a JSON file, or a sentence on a page (`report/`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

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
    def from_json(cls, plain: Mapping[str, Any] | str) -> Finding:
        """Parse `to_json`; a plain sentence, as earlier releases wrote it, is named `recorded`.

        Raises:
            TypeError, ValueError: not a finding.
        """
        return cls("recorded", plain) if isinstance(plain, str) else cls(**plain)


def ignore(finding: Finding) -> None:
    """A `Note` that does nothing."""
