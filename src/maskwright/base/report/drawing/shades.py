"""Small pictures: shaded grids, the weights of one attention head, scatter plots.

Each cell and point has its value as a tooltip.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from markupsafe import Markup

from maskwright.base.report.drawing.svg import picture, place, style, text, tooltip, upright

SIDE, GAP = 26.0, 2.0
FAINT = 0.02  # a weight below this is not drawn
WHOLE, LEAST = 180, 9.0  # usual side of a head's matrix; least side of a cell
LONGEST, TITLE = 14, 26  # letters of a name; the height of a title


def grid(
    title: str,
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    across: str = "",
    high: float = 1.0,
) -> Markup:
    """Draw a grid of cells, empty at 0 and full at `high`; `across` labels the columns."""
    left = 10 + 6.6 * max(map(len, [*rows, across]))
    top = 44.0 if any(columns) else 26.0
    width = max(left + len(columns) * SIDE + 8, 8.0 * len(title))
    edge = place(SIDE - GAP)
    elements = [text(0, 14, title, size=13, css="ink")]
    if across:
        elements.append(text(left - 6, 36, across, size=11, anchor="end"))
    for j, name in enumerate(columns):
        if name:
            elements.append(text(left + (j + 0.5) * SIDE, 36, name, size=10, anchor="middle"))
    for i, row in enumerate(values):
        elements.append(text(left - 6, top + (i + 0.65) * SIDE, rows[i], size=11, anchor="end"))
        for j, value in enumerate(row):
            share = min(1.0, max(0.0, value / (high or 1.0)))
            box = (
                f'<rect x="{place(left + j * SIDE)}" y="{place(top + i * SIDE)}" width="{edge}"'
                f' height="{edge}" rx="2"'
            )
            named = f"{rows[i]}, {columns[j]}: " if rows[i] or columns[j] else ""
            elements.append(
                f'{box} class="cell"/>{box} class="one dot" fill-opacity="{share:.3f}">'
                f"{tooltip(f'{named}{value:.3f}')}</rect>"
            )
    return picture(width, top + len(rows) * SIDE + 6, title, elements, sized=True)


def head_weights(title: str, values: Sequence[Sequence[float]], names: Sequence[str]) -> Markup:
    """Draw the attention of one head on one text: rows are queries, columns keys.

    Tokens are named at every size. Almost empty cells are not drawn, to keep pages small.
    """
    side = max(LEAST, WHOLE / len(names))
    letters = min(11.0, side)
    short = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in names]
    numbered = [f"{number} {name}" for number, name in enumerate(names, 1)]
    room = 10 + letters * max(map(_width, short))
    top, full_side = TITLE + room, side * len(names)
    elements = [text(0, 14, title, size=13, css="ink")]
    for number, name in enumerate(short):
        middle = (number + 0.5) * side + 0.35 * letters
        elements.append(upright(room + middle, top - 5, name, size=letters))
        elements.append(text(room - 5, top + middle, name, size=letters, anchor="end"))
    for number, row in enumerate(values):
        most = max(range(len(row)), key=row.__getitem__)
        summary = tooltip(f"{numbered[number]}: most at {numbered[most]}, {row[most]:.2f}")
        elements.append(
            f'<g class="one dot" transform="translate({place(room)} {place(top + number * side)})">'
            f'<rect width="{place(full_side)}" height="{place(side)}" class="cell">{summary}</rect>'
        )
        elements += [
            f'<rect x="{place(column * side)}" width="{place(side)}" height="{place(side)}"'
            f' fill-opacity="{min(1.0, value):.2f}">'
            f"{tooltip(f'{numbered[number]} → {numbered[column]}: {value:.2f}')}</rect>"
            for column, value in enumerate(row)
            if value >= FAINT
        ]
        elements.append("</g>")
    width = max(room + full_side + 8, 8.0 * len(title))
    return picture(width, top + full_side + 6, title, elements, sized=True)


def _width(name: str) -> float:
    """Estimate the width of a name, relative to its height."""
    return sum(1.05 if unicodedata.east_asian_width(c) in "WF" else 0.6 for c in name)


def scatter(
    title: str,
    points: Sequence[tuple[float, float]],
    groups: Sequence[str],
    names: Sequence[str],
    *,
    axes: tuple[str, str],
    width: int = 760,
    height: int = 420,
) -> Markup:
    """Draw points, a colour for each group; `names` are tooltips, `axes` the labels of x and y."""
    group_names = list(dict.fromkeys(groups))
    xs, ys = [x for x, _ in points], [y for _, y in points]
    spans = [(max(v) - min(v)) or 1.0 for v in (xs, ys)]
    left, right, top, bottom = 32, width - 16, 60, height - 36
    elements = [text(0, 14, title, size=14, css="ink title")]
    x, y = 6.0, 32.0
    for number, group in enumerate(group_names):
        if x > 6 and x + 10 + 7 * len(group) > width:
            x, y = 6.0, y + 18
        elements.append(
            f'<circle cx="{place(x)}" cy="{place(y)}" r="5" class="{style(number)} dot"/>'
        )
        elements.append(text(x + 10, y + 4, group))
        x += max(110, 34 + 7 * len(group))
    top += int(y) - 32
    elements.append(
        f'<path d="M{left - 12} {top - 12}V{bottom + 12}H{right + 12}" class="axis"/>'
        f"{text(right + 12, bottom + 30, axes[0], size=11, anchor='end')}"
        f"{upright(left - 18, bottom + 12, axes[1], size=11)}"
    )
    for (x, y), group, name in zip(points, groups, names, strict=True):
        across = left + (x - min(xs)) / spans[0] * (right - left)
        down = bottom - (y - min(ys)) / spans[1] * (bottom - top)
        elements.append(
            f'<circle cx="{place(across)}" cy="{place(down)}" r="7" fill-opacity="0.75"'
            f' class="{style(group_names.index(group))} dot">{tooltip(f"{group}: {name}")}</circle>'
        )
    return picture(width, height, title, elements)
