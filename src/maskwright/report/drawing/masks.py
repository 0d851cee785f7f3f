"""The mask matrix as a picture: a row is a query, a column a key, a filled square means "sees".

Several masks stand side by side, so that what separates a bidirectional model from a causal one,
and packed rows from plain ones, is seen at once. The matrices come from `AttentionMask.dense`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maskwright.errors import DataError
from maskwright.report.drawing.svg import STYLE, picture, place, text, upright

CELL, GAP, SPACE = 15.0, 2.0, 44.0
COLOURS = ("one", "two", "three")


@dataclass(frozen=True)
class MaskPanel:
    """One matrix. `groups` gives each query a document, and each document has its own colour."""

    title: str
    caption: str
    matrix: Sequence[Sequence[bool]]
    groups: Sequence[int] = ()

    @property
    def columns(self) -> int:
        return len(self.matrix[0]) if self.matrix else 0

    @property
    def width(self) -> float:
        return max(self.columns * CELL, 6.3 * len(self.caption), 8.2 * len(self.title))


def mask_picture(panels: Sequence[MaskPanel]) -> str:
    """A stand-alone SVG file of `panels`, for light and dark pages.

    Raises:
        DataError: no panel, rows of unequal length, or groups that do not fit the rows.
    """
    if not panels:
        raise DataError("a mask picture without a mask", wanted="at least one panel")
    height = 64 + max(len(p.matrix) for p in panels) * CELL + 34
    parts, x = [], 24.0
    for panel in panels:
        parts.append(_panel(panel, x))
        x += panel.width + SPACE
    width = x - SPACE + 8
    label = "; ".join(f"{p.title}: {p.caption}" for p in panels)
    colours = "".join(f".{c}{{fill:var(--{c})}}" for c in COLOURS)
    style = (
        f"<style>{STYLE}.ink{{fill:var(--ink);font-weight:600}}{colours}.none{{fill:var(--wash)}}"
        "</style>"
    )
    return picture(width, height, label, [style, *parts], sized=True) + "\n"


def _panel(panel: MaskPanel, left: float) -> str:
    if any(len(row) != panel.columns for row in panel.matrix):
        raise DataError("the rows of a mask differ in length", where=panel.title)
    groups = panel.groups or [0] * len(panel.matrix)
    if len(groups) != len(panel.matrix):
        raise DataError(
            "one group per query is needed",
            where=panel.title,
            found=len(groups),
            wanted=len(panel.matrix),
        )
    top = 64.0
    parts = [
        text(left, 18, panel.title, size=15, css="ink"),
        text(left, 36, panel.caption, size=12),
    ]
    side = CELL - GAP
    for i, row in enumerate(panel.matrix):
        for j, seen in enumerate(row):
            css = COLOURS[groups[i] % len(COLOURS)] if seen else "none"
            parts.append(
                f'<rect x="{place(left + j * CELL)}" y="{place(top + i * CELL)}" width="{side:g}"'
                f' height="{side:g}" rx="2.5" class="{css}"/>'
            )
    parts.append(text(left, top - 7, "is seen →", size=11))
    parts.append(upright(left - 7, top, "sees →", size=11, down=True))
    return "".join(parts)
