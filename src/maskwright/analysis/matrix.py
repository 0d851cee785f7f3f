"""The weights of one head on one text: rows are tokens that look, columns those looked at.

Both sides are named at every size. A cell that is as good as empty is not drawn, so that many heads
have room on a page; what a drawn one says stands in its tooltip.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from maskwright.report.svg import escape, place, text

FAINT = 0.02
WHOLE, LEAST = 180, 9.0  # the side of a small matrix; of a cell, where a name has room beside it
LONGEST, TITLE = 14, 26  # letters of a name; the height of a title


def matrix(title: str, values: Sequence[Sequence[float]], names: Sequence[str]) -> str:
    """The SVG element of one head."""
    side = max(LEAST, WHOLE / len(names))
    letters = min(11.0, side)
    short = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in names]
    told = [escape(f"{number} {name}") for number, name in enumerate(names, 1)]
    room = 10 + letters * max(map(_width, short))
    top, whole = TITLE + room, side * len(names)
    parts = [text(0, 14, title, size=13, css="ink")]
    for number, name in enumerate(short):
        middle = (number + 0.5) * side + 0.35 * letters
        # Upright, read from below: the head of a column stands close to it.
        turned = text(0, 0, name, size=letters)
        parts.append(
            f'<g transform="translate({place(room + middle)} {place(top - 5)}) rotate(-90)">'
            f"{turned}</g>"
        )
        parts.append(text(room - 5, top + middle, name, size=letters, anchor="end"))
    for number, row in enumerate(values):
        most = max(range(len(row)), key=row.__getitem__)
        parts.append(
            f'<g class="one dot" transform="translate({place(room)} {place(top + number * side)})">'
            f'<rect width="{place(whole)}" height="{place(side)}" class="cell">'
            f"<title>{told[number]}: most at {told[most]}, {row[most]:.2f}</title></rect>"
        )
        for column, value in enumerate(row):
            if value >= FAINT:
                parts.append(
                    f'<rect x="{place(column * side)}" width="{place(side)}" '
                    f'height="{place(side)}" fill-opacity="{min(1.0, value):.2f}">'
                    f"<title>{told[number]} → {told[column]}: {value:.2f}</title></rect>"
                )
        parts.append("</g>")
    width, height = max(room + whole + 8, 8.0 * len(title)), top + whole + 6
    return (
        f'<svg viewBox="0 0 {place(width)} {place(height)}" width="{place(width)}"'
        f' height="{place(height)}" role="img" aria-label="{escape(title)}"'
        f' xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _width(name: str) -> float:
    """About how many times its height a name is wide."""
    return sum(1.05 if unicodedata.east_asian_width(c) in "WF" else 0.6 for c in name)
