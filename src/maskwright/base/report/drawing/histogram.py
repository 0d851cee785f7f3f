"""Histograms with the limits of allowed values.

Heights are square roots of counts, so that small ones are visible. Long tails get a logarithmic
axis, and values beyond its ends count in the outermost bars.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from maskwright.base.report.drawing.svg import escaped, picture, place, text, ticks, tooltip
from maskwright.base.report.wording import count, percent

WIDTH, HEIGHT = 380, 150
LEFT, RIGHT, TOP, BOTTOM = 6, 6, 26, 24
BARS = 40
TAIL = 0.02  # share of the values that may be beyond each end of the axis
LONG = 30  # ratio of end and median from which the axis is logarithmic


def histogram(
    title: str, values: Sequence[float], low: float | None = None, high: float | None = None
) -> Markup | None:
    """Draw `values`, in another colour below `low` or above `high`; None without values."""
    values = sorted(value for value in values if math.isfinite(value))
    if not values:
        return None
    ends = _ends(values, low, high)
    scale, logarithmic = _scale(values, *ends, padded=(ends[0] == low, ends[1] == high))
    inside, outside = _counted(values, scale, low, high)
    most = max(a + b for a, b in zip(inside, outside, strict=True))
    bar = (WIDTH - LEFT - RIGHT) / len(inside)
    room = HEIGHT - TOP - BOTTOM
    elements = [_baseline()]
    for number, (within, beyond) in enumerate(zip(inside, outside, strict=True)):
        if not within + beyond:
            continue
        full = max(2.0, room * math.sqrt((within + beyond) / most))
        share = full * beyond / (within + beyond)
        x, base = LEFT + number * bar, HEIGHT - BOTTOM
        words = f"{percent((within + beyond) / len(values))} of the documents"
        boxes = _box(x, base - full, bar, full - share, "one") if within else ""
        boxes += _box(x, base - share, bar, share, "two") if beyond else ""
        elements.append(f"<g>{boxes}{tooltip(words)}</g>")
    elements += _axis(*ends, scale, logarithmic)
    elements += [_limit(scale, low, "≥"), _limit(scale, high, "≤")]
    return picture(WIDTH, HEIGHT, title, elements)


def _ends(values: Sequence[float], low: float | None, high: float | None) -> tuple[float, float]:
    """Return the ends of the axis: most values, the limits, and some values beyond them."""
    cut = int(TAIL * len(values))
    axis_start, axis_end = values[cut], values[len(values) - 1 - cut]
    if low is not None:
        below = values[: bisect.bisect_left(values, low)]
        axis_start = min([axis_start, low, *below[len(below) // 4 :][:1]])
        axis_end = max(axis_end, low)
    if high is not None and high <= 1000 * max(1.0, abs(axis_end)):
        above = values[bisect.bisect_right(values, high) :]
        axis_end = max([axis_end, high, *above[-1 - len(above) // 4 :][:1]])
        axis_start = min(axis_start, high)
    return (axis_start, axis_end) if axis_end > axis_start else (axis_start - 0.5, axis_end + 0.5)


def _scale(
    values: Sequence[float], axis_start: float, axis_end: float, padded: tuple[bool, bool]
) -> tuple[Callable[[float], float], bool]:
    """Return a function that maps values to 0 … 1 between the ends, and whether it is logarithmic.

    Args:
        padded: whether there is padding before and after the ends.
    """
    middle = values[len(values) // 2]
    logarithmic = axis_start >= 0 and axis_end > 10 and axis_end > LONG * max(middle, 0.1)
    bend: Callable[[float], float] = math.log1p if logarithmic else float
    begin, end = bend(axis_start), bend(axis_end)
    room = (end - begin) / 20
    begin, end = begin - room * padded[0], end + room * padded[1]

    def scale(value: float) -> float:
        bent = bend(max(value, axis_start)) if logarithmic else value
        return (min(max(bent, begin), end) - begin) / (end - begin)

    return scale, logarithmic


def _counted(
    values: Sequence[float], scale: Callable[[float], float], low: float | None, high: float | None
) -> tuple[list[int], list[int]]:
    """Return the numbers of allowed and of other values in each bar."""
    distinct = len(set(values))
    bars = BARS if distinct > BARS // 2 else max(8, 2 * distinct)
    counts = ([0] * bars, [0] * bars)
    for value in values:
        beyond = (low is not None and value < low) or (high is not None and value > high)
        counts[beyond][min(bars - 1, int(scale(value) * bars))] += 1
    return counts


def _box(x: float, y: float, width: float, height: float, css: str) -> str:
    return (
        f'<rect x="{place(x + 0.5)}" y="{place(y)}" width="{place(max(1.0, width - 1))}" '
        f'height="{place(height)}" class="dot {css}"/>'
    )


def _baseline() -> str:
    y = HEIGHT - BOTTOM
    return f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" class="axis"/>'


def _axis(
    axis_start: float, axis_end: float, scale: Callable[[float], float], logarithmic: bool
) -> list[str]:
    marks = ticks(axis_start, axis_end, 5)
    if logarithmic:
        powers = [m * 10.0**n for n in range(12) for m in (1, 3)]
        inner = powers[
            bisect.bisect_left(powers, axis_start) : bisect.bisect_right(powers, axis_end)
        ]
        marks = [0.0, *inner] if axis_start < 1 else inner
    labels = []
    end = -math.inf
    for mark in marks:
        x = LEFT + scale(mark) * (WIDTH - LEFT - RIGHT)
        words = count(mark) if abs(mark) >= 10000 else f"{mark:,g}"
        wide = 6.8 * len(words)
        anchor = "start" if x < wide / 2 else "end" if x + wide / 2 > WIDTH else "middle"
        begin = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
        if begin < end + 8:
            continue
        end = begin + wide
        labels.append(text(x, HEIGHT - 8, words, size=11, anchor=anchor))
    return labels


def _limit(scale: Callable[[float], float], limit: float | None, sign: str) -> str:
    if limit is None or not 0 < scale(limit) < 1:
        return ""
    x = LEFT + scale(limit) * (WIDTH - LEFT - RIGHT)
    # Labels of two limits are on their outer sides.
    before = x > 80 if sign == "≥" else x > WIDTH - 80
    anchor = "end" if before else "start"
    words = text(x, 14, f"{sign} {limit:,g}", size=12, anchor=anchor, css="ink")
    d = escaped(f"M{place(x)} {TOP - 7}V{HEIGHT - BOTTOM}")
    return f'<path d="{d}" class="limit"/>{words}'
