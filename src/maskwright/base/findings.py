"""What a check found, as a value: what it is, what shows it, and what to do about it.

A check returns findings and prints nothing. Here they become a line of a terminal and plain values
for a JSON file; `report/` puts the same sentence on a page.
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
        name: what sort of finding it is, for programs: stable, in small letters and hyphens.
        what: a clause that says it, without a full stop.
        evidence: what shows it: the first place, the numbers; may be empty.
        remedy: what the user can do; may be empty.
        severity: "warning" where results are likely wrong or misread, else "note".
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
        """What, evidence and remedy in one sentence without a full stop."""
        return "; ".join(filter(None, (self.what, self.evidence, self.remedy)))

    def line(self) -> str:
        """The line of a terminal: `note: …` or `warning: …`."""
        return f"{self.severity}: {self}"

    @classmethod
    def of_line(cls, name: str, line: str) -> Finding:
        """The inverse of `line`, by its name; of a line of another kind a note."""
        for severity in get_args(Severity):
            if line.startswith(f"{severity}: "):
                return cls(name, line.partition(": ")[2], severity=severity)
        return cls(name, line)

    def of(self, subject: str) -> Self:
        """The same, with what it is about named first: `train: …`."""
        return replace(self, what=f"{subject}: {self.what}")

    def to_json(self) -> dict[str, str]:
        """Plain values; what is empty or usual is left out."""
        plain = {**vars(self), "severity": "" if self.severity == "note" else self.severity}
        return {name: value for name, value in plain.items() if value}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any] | str) -> Finding:
        """The inverse of `to_json`; a mere sentence, as earlier releases wrote it, has the name
        `recorded`.

        Raises:
            TypeError, ValueError: not a finding.
        """
        return cls("recorded", plain) if isinstance(plain, str) else cls(**plain)


def ignore(finding: Finding) -> None:
    """A `Note` that drops what was found."""
