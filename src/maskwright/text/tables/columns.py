"""The columns of a table by their roles. Whatever is chosen (`find`) is shown with its reason
(`Columns.lines`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maskwright.base.terminal import shell_word

if TYPE_CHECKING:
    from maskwright.text.tables.column_contents import Column
    from maskwright.text.tables.layouts.layout import Layout

# Roles that a column may have in every layout: the names of classes that are numbers; what must not
# be in two parts when parts are drawn.
COMMON = ("label_name", "group")
LISTED = 20


@dataclass(frozen=True)
class Columns:
    """The columns of a layout, by role, and why each was taken.

    Attributes:
        layout: the set of roles.
        roles: role -> names of columns; several for `choices`, for labels of one column each, and
            for texts of several columns.
        why: role -> reason.
        described: every column of the table.
    """

    layout: Layout
    roles: dict[str, tuple[str, ...]]
    why: dict[str, str]
    described: dict[str, Column]

    def __getitem__(self, role: str) -> str:
        return self.roles[role][0]

    def column(self, role: str) -> Column:
        return self.described[self[role]]

    @property
    def left_out(self) -> list[str]:
        used = {name.split(".")[0] for names in self.roles.values() for name in names}
        if "answers" in self.roles:
            used.add("answer_start")  # where each of them begins
        return [name for name in self.described if name not in used and "." not in name]

    def lines(self) -> list[str]:
        """One line for each role, and one for what is not used."""
        sentences = [
            f"using column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))} as {role} "
            f"({self.why[role]}{'; its cells hold lists' if self._in_cells(names) else ''})"
            for role, names in self.roles.items()
        ]
        if self.left_out:
            left_out = self.left_out
            more = f" and {len(left_out) - LISTED:,} more" if len(left_out) > LISTED else ""
            sentences.append(f"not used: {', '.join(map(repr, left_out[:LISTED]))}{more}")
        return sentences

    def _in_cells(self, names: Sequence[str]) -> bool:
        return any(name in self.described and self.described[name].in_cells for name in names)


def as_names(columns: Mapping[str, str | Sequence[str]] | None) -> dict[str, tuple[str, ...]]:
    """Role -> names of columns, where one name may be given as a text."""
    return {
        role: (names,) if isinstance(names, str) else tuple(names)
        for role, names in (columns or {}).items()
    }


def option(role: str, name: str) -> str:
    """The option of the command line that gives `name` this role."""
    return f"--column {shell_word(f'{role}={name}')}"
