"""Draws mask matrices, among them docs/pictures/masks.svg: python -m benchmarks.mask_pictures"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from maskwright.base.report.drawing.svg import picture, place, text
from maskwright.model.nn.mask import AttentionMask, bidirectional, causal, same_document

LENGTH = 12
DOCUMENTS = torch.tensor([[1] * 5 + [2] * 4 + [3] * 3])
# The same names stand in page.css.
STYLE = """
:root{--ink:#1d2733;--soft:#66717d;--faint:#d9dee4;--wash:#eef1f4;--paper:#ffffff;
--one:#2563c9;--two:#c9570f;--three:#12805c}
@media (prefers-color-scheme:dark){
:root{--ink:#e4e9ef;--soft:#9aa6b2;--faint:#3a444f;--wash:#252d36;--paper:#161b21;
--one:#7fb0ff;--two:#ffab66;--three:#5fd0a4}}
text{fill:var(--soft);
font-family:system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif}
""".replace("\n", "")
CELL, GAP, SPACE = 15.0, 2.0, 44.0
MASK_COLOURS = ("one", "two", "three")


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


def draw_masks(panels: Sequence[MaskPanel]) -> str:
    """A stand-alone SVG file of `panels`, for light and dark pages.

    Raises:
        ValueError: no panel, rows of unequal length, or groups that do not fit the rows.
    """
    height = 64 + max(len(p.matrix) for p in panels) * CELL + 34
    elements, x = [], 24.0
    for panel in panels:
        elements.append(_panel(panel, x))
        x += panel.width + SPACE
    width = x - SPACE + 8
    label = "; ".join(f"{p.title}: {p.caption}" for p in panels)
    colours = "".join(f".{c}{{fill:var(--{c})}}" for c in MASK_COLOURS)
    style = (
        f"<style>{STYLE}.ink{{fill:var(--ink);font-weight:600}}{colours}.none{{fill:var(--wash)}}"
        "</style>"
    )
    return picture(width, height, label, [style, *elements], sized=True) + "\n"


def _panel(panel: MaskPanel, left: float) -> str:
    groups = panel.groups or [0] * len(panel.matrix)
    if any(len(row) != panel.columns for row in panel.matrix) or len(groups) != len(panel.matrix):
        raise ValueError(f"the rows or groups of {panel.title!r} differ in length")
    top = 64.0
    elements = [
        text(left, 18, panel.title, size=15, css="ink"),
        text(left, 36, panel.caption, size=12),
    ]
    side = CELL - GAP
    for i, row in enumerate(panel.matrix):
        for j, visible in enumerate(row):
            css = MASK_COLOURS[groups[i] % len(MASK_COLOURS)] if visible else "none"
            elements.append(
                f'<rect x="{place(left + j * CELL)}" y="{place(top + i * CELL)}" width="{side:g}"'
                f' height="{side:g}" rx="2.5" class="{css}"/>'
            )
    elements.append(text(left, top - 7, "key →", size=11))
    query = text(0, 0, "query →", size=11)
    turned = f"translate({place(left - 7)} {place(top)}) rotate(90)"
    elements.append(f'<g transform="{turned}">{query}</g>')
    return "".join(elements)


def documentation_picture() -> str:
    """Four worlds of twelve tokens, side by side."""
    packed = same_document(DOCUMENTS)
    groups = [int(d) - 1 for d in DOCUMENTS[0]]

    def rows(mask: AttentionMask) -> list[list[bool]]:
        return [[bool(visible) for visible in row] for row in mask.draw(LENGTH, LENGTH).dense[0]]

    return draw_masks(
        [
            MaskPanel("Bidirectional", "every token sees every token", rows(bidirectional)),
            MaskPanel("Causal", "a token sees what came before", rows(causal)),
            MaskPanel("Packed", "three documents in one row", rows(bidirectional & packed), groups),
            MaskPanel("Packed and causal", "both at once", rows(causal & packed), groups),
        ]
    )


if __name__ == "__main__":
    target = Path(__file__).parents[1] / "docs" / "pictures" / "masks.svg"
    target.write_text(documentation_picture(), encoding="utf-8")
