"""Numbers as shades: a grid of cells, and many small grids beside each other.

Each cell has its value as a tooltip, so that no colour has to be read exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

from maskwright.report.svg import escape, place, text

SIDE, GAP = 26.0, 2.0


def grid(
    title: str,
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    high: float = 1.0,
    side: float = SIDE,
) -> str:
    """The SVG element of a grid; a value of 0 is empty and one at `high` full."""
    left = 10 + 6.6 * max((len(name) for name in rows), default=0)
    top = 44.0 if any(columns) else 26.0
    width = max(left + len(columns) * side + 8, 8.0 * len(title))
    height = top + len(rows) * side + 6
    parts = [text(0, 14, title, size=13, css="ink")]
    for j, name in enumerate(columns):
        if name:
            parts.append(text(left + (j + 0.5) * side, 36, name, size=10, anchor="middle"))
    for i, row in enumerate(values):
        parts.append(text(left - 6, top + (i + 0.65) * side, rows[i], size=11, anchor="end"))
        for j, value in enumerate(row):
            share = min(1.0, max(0.0, value / (high or 1.0)))
            x, y = left + j * side, top + i * side
            edge = place(side - (GAP if side > 2 * GAP else 0))
            named = f"{rows[i]}, {columns[j]}" if rows[i] or columns[j] else ""
            parts.append(
                f'<rect x="{place(x)}" y="{place(y)}" width="{edge}" height="{edge}" rx="2"'
                f' class="cell"/><rect x="{place(x)}" y="{place(y)}" width="{edge}"'
                f' height="{edge}" rx="2" class="one dot" fill-opacity="{share:.3f}">'
                f"<title>{escape(f'{named}: ' if named else '')}{value:.3f}</title></rect>"
            )
    return (
        f'<svg viewBox="0 0 {place(width)} {place(height)}" width="{place(width)}"'
        f' height="{place(height)}" role="img" aria-label="{escape(title)}"'
        f' xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
