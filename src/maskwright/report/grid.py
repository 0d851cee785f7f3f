"""Numbers as shades: a grid of cells, and many small grids beside each other.

Each cell has its value as a tooltip, so that no colour has to be read exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

from maskwright.report.svg import escape, place, text

SIDE, GAP = 26.0, 2.0
FAINT = 0.02


def grid(
    title: str,
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    low: float = 0.0,
    high: float = 1.0,
    css: str = "one",
    side: float = SIDE,
    sparse: bool = False,
) -> str:
    """The SVG element of a grid; a value at `low` is empty and one at `high` full. A `sparse` one
    draws no cell that is as good as empty, and says the number of none."""
    left = 10 + 6.6 * max((len(name) for name in rows), default=0)
    top = 44.0 if any(columns) else 26.0
    width = max(left + len(columns) * side + 8, 8.0 * len(title))
    height = top + len(rows) * side + 6
    parts = [text(0, 14, title, size=13, css="ink")]
    for j, name in enumerate(columns):
        if name:
            parts.append(text(left + (j + 0.5) * side, 36, name, size=10, anchor="middle"))
    span = (high - low) or 1.0
    if sparse:
        wide, tall = (place(n * side) for n in (len(columns), len(rows)))
        parts.append(f'<rect x="{place(left)}" y="{place(top)}" width="{wide}" height="{tall}"'
                     ' class="cell"/>')  # fmt: skip
    for i, row in enumerate(values):
        parts.append(text(left - 6, top + (i + 0.65) * side, rows[i], size=11, anchor="end"))
        for j, value in enumerate(row):
            share = min(1.0, max(0.0, (value - low) / span))
            x, y = left + j * side, top + i * side
            if sparse:
                if share >= FAINT:
                    parts.append(f'<rect x="{place(x)}" y="{place(y)}" width="{place(side)}"'
                                 f' height="{place(side)}" class="{css} dot"'
                                 f' fill-opacity="{share:.2f}"/>')  # fmt: skip
                continue
            edge = place(side - (GAP if side > 2 * GAP else 0))
            named = f"{rows[i]}, {columns[j]}" if rows[i] or columns[j] else ""
            parts.append(
                f'<rect x="{place(x)}" y="{place(y)}" width="{edge}" height="{edge}" rx="2"'
                f' class="cell"/><rect x="{place(x)}" y="{place(y)}" width="{edge}"'
                f' height="{edge}" rx="2" class="{css} dot" fill-opacity="{share:.3f}">'
                f"<title>{escape(f'{named}: ' if named else '')}{value:.3f}</title></rect>"
            )
    return (
        f'<svg viewBox="0 0 {place(width)} {place(height)}" width="{place(width)}"'
        f' height="{place(height)}" role="img" aria-label="{escape(title)}"'
        f' xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def scatter(
    title: str,
    points: Sequence[tuple[float, float]],
    groups: Sequence[str],
    names: Sequence[str],
    *,
    width: int = 560,
    height: int = 360,
) -> str:
    """Points in the plane, a colour for each group; `names` are tooltips."""
    colours = ("one", "two", "three", "four", "five", "six")
    known = list(dict.fromkeys(groups))
    xs, ys = [x for x, _ in points], [y for _, y in points]
    spans = [(max(v) - min(v)) or 1.0 for v in (xs, ys)]
    parts = [text(0, 14, title, size=13, css="ink")]
    for number, group in enumerate(known):
        css = colours[number % len(colours)]
        parts.append(f'<circle cx="{place(6 + 110 * number)}" cy="32" r="5" class="{css} dot"/>')
        parts.append(text(16 + 110 * number, 36, group))
    for (x, y), group, name in zip(points, groups, names, strict=True):
        across = 16 + (x - min(xs)) / spans[0] * (width - 32)
        down = height - 16 - (y - min(ys)) / spans[1] * (height - 76)
        css = colours[known.index(group) % len(colours)]
        parts.append(
            f'<circle cx="{place(across)}" cy="{place(down)}" r="7" class="{css} dot"'
            f' fill-opacity="0.75"><title>{escape(f"{group}: {name}")}</title></circle>'
        )
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}"'
        f' xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
