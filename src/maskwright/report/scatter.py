"""Points in the plane, in the colours of their groups; what each is, a tooltip says."""

from __future__ import annotations

from collections.abc import Sequence

from maskwright.report.svg import escape, place, style, text


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
    known = list(dict.fromkeys(groups))
    xs, ys = [x for x, _ in points], [y for _, y in points]
    spans = [(max(v) - min(v)) or 1.0 for v in (xs, ys)]
    parts = [text(0, 14, title, size=13, css="ink")]
    for number, group in enumerate(known):
        css = style(number)
        parts.append(f'<circle cx="{place(6 + 110 * number)}" cy="32" r="5" class="{css} dot"/>')
        parts.append(text(16 + 110 * number, 36, group))
    for (x, y), group, name in zip(points, groups, names, strict=True):
        across = 16 + (x - min(xs)) / spans[0] * (width - 32)
        down = height - 16 - (y - min(ys)) / spans[1] * (height - 76)
        css = style(known.index(group))
        parts.append(
            f'<circle cx="{place(across)}" cy="{place(down)}" r="7" class="{css} dot"'
            f' fill-opacity="0.75"><title>{escape(f"{group}: {name}")}</title></circle>'
        )
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}"'
        f' xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
