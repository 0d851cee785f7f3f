"""Line plots and histograms as SVG.

Points of a long run are grouped into columns; the line connects their medians, and a band from
minimum to maximum shows spikes. Values that are not finite break the line. Outliers do not set the
scale: the plot area covers almost all points, and the rest is clipped. It does not extend below 0
or above 1 if no value can be there. Lines of a single point are written as text.

Bars of histograms are square roots of counts, so that small ones are visible. Long tails get a
logarithmic axis, and values beyond its ends count in the outermost bars.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from maskwright.base.report.document import count, percent
from maskwright.base.report.drawing.svg import escaped, path, picture, place, text, ticks, tooltip

COLUMNS = 160
MARGIN, LETTER = 84, 6.2  # least width for names of reference lines; width of a letter
LEGEND_ROW = 17
Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One series, with `dots` for few measurements or a `band` for many noisy ones; `spread` is
    (x, lowest, highest) of the series of which this is the mean."""

    name: str
    points: Sequence[Point]
    css: str = "one"
    dots: bool = False
    band: bool = False
    spread: Sequence[tuple[float, float, float]] = ()

    @property
    def finite(self) -> list[Point]:
        return [(x, y) for x, y in self.points if math.isfinite(x) and math.isfinite(y)]


@dataclass(frozen=True)
class Chart:
    """Lines over one horizontal axis, and dashed horizontal reference lines. `marks` replace the
    ticks of the axis; on a `logarithmic` axis all x are positive. The legend has the last value of
    each line, unless the lines do not lead to it (`has_last`)."""

    title: str
    lines: Sequence[Line]
    references: Sequence[tuple[str, float]] = ()
    across: str = "tokens"
    say: Callable[[float], str] = count
    from_zero: bool = False
    width: int = 420
    height: int = 240
    logarithmic: bool = False
    marks: Sequence[float] = ()
    has_last: bool = True

    def __bool__(self) -> bool:
        return any(line.finite for line in self.lines)


@dataclass(frozen=True)
class PlotArea:
    """The plot area in picture coordinates, and its ranges of values."""

    left: float
    top: float
    right: float
    bottom: float
    x: Point = field(default=(0.0, 1.0))
    y: Point = field(default=(0.0, 1.0))
    logarithmic: bool = False

    def at(self, x: float, y: float) -> Point:
        if self.logarithmic:
            x = math.log10(x) if x > 0 else self.x[0]
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        up = min(1.0, max(0.0, up)) if math.isfinite(up) else math.nan
        return (
            self.left + across * (self.right - self.left),
            self.bottom - up * (self.bottom - self.top),
        )


def draw(chart: Chart) -> Markup:
    """Draw `chart` as SVG; empty if no point is finite."""
    if not chart:
        return Markup()
    height, elements = float(chart.height), [text(0, 14, chart.title, size=14, css="ink title")]
    if (single_x := _alone(chart)) is not None and not chart.references:
        height = 64.0 + LEGEND_ROW * _entries(chart)[-1][3]
        caption = f"one point only; {chart.across}: {count(single_x)}"
        elements.append(text(0, height - 12, caption, size=11))
    else:
        frame = _frame(chart)
        elements += [_grid(chart, frame), _references(chart, frame)]
        elements += [_series(line, frame, chart) for line in chart.lines]
    elements.append(_legend(chart))
    label = f"{chart.title}: {', '.join(line.name for line in chart.lines)} over {chart.across}"
    return picture(chart.width, height, label, elements)


def columns(
    points: Sequence[Point], number: int = COLUMNS
) -> list[tuple[float, float, float, float]]:
    """Return (x, median, lowest, highest) of at most `number` equally wide columns of `points`."""
    if not points:
        return []
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    width = (high - low) / number or 1.0
    gathered: dict[int, list[Point]] = {}
    for x, y in points:
        gathered.setdefault(min(number - 1, int((x - low) / width)), []).append((x, y))
    summaries = []
    for key in sorted(gathered):
        xs = [x for x, _ in gathered[key]]
        ys = [y for _, y in gathered[key]]
        summaries.append((math.fsum(xs) / len(xs), statistics.median(ys), min(ys), max(ys)))
    return summaries


def _alone(chart: Chart) -> float | None:
    """Return the x of the only point of all lines, None if there are more."""
    xs = {x for line in chart.lines for x, _ in line.finite}
    single = all(len(line.finite) <= 1 for line in chart.lines)
    return xs.pop() if single and len(xs) == 1 else None


def _frame(chart: Chart) -> PlotArea:
    points = [p for line in chart.lines for p in line.finite]
    xs = sorted(x for x, _ in points)
    ys = sorted(y for _, y in points)
    references = [y for _, y in chart.references if math.isfinite(y)]
    # Half a percent at each end may be outliers; single measurements always count.
    always_shown = [y for line in chart.lines if line.dots for _, y in line.finite]
    spread = [y for line in chart.lines for _, *ends in line.spread for y in ends]
    always_shown += [y for y in spread if math.isfinite(y)]
    low = min([ys[int(0.005 * len(ys))], *references, *always_shown])
    high = max([ys[math.ceil(0.995 * len(ys)) - 1], *references, *always_shown])
    low = 0.0 if chart.from_zero and low >= 0 else low
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    bottom, top = low if chart.from_zero else low - room, high + room
    if low >= 0.0:
        bottom = max(0.0, bottom)
        top = min(1.0, top) if high <= 1.0 else top
    return PlotArea(
        left=52,
        top=46 + LEGEND_ROW * _entries(chart)[-1][3],
        right=chart.width - _margin(chart),
        bottom=chart.height - 36,
        x=_across(xs, chart.logarithmic),
        y=(bottom, top),
        logarithmic=chart.logarithmic,
    )


def _margin(chart: Chart) -> float:
    """Return the width to the right of the plot area, for the longest name there."""
    names = [_named(chart, y, name) for name, y in chart.references if math.isfinite(y)]
    return max(MARGIN, 12 + LETTER * max(map(len, names))) if names else 14


def _named(chart: Chart, value: float, name: str) -> str:
    return f"{name} {chart.say(value)}"


def _across(xs: Sequence[float], logarithmic: bool) -> Point:
    """Return the range of the horizontal axis for ascending values."""
    if not logarithmic and xs[0] == xs[-1] > 0:  # a single value is centred
        return (0.0, 2 * xs[0])
    if not logarithmic:
        return (0.0, xs[-1] if xs[-1] > 0 else 1.0)
    low, high = math.log10(xs[0]), math.log10(xs[-1])
    room = 0.04 * (high - low) or 0.5
    return (low - room, high + room)


def _grid(chart: Chart, frame: PlotArea) -> str:
    elements = []
    values = ticks(*frame.y, 5 if chart.height >= 260 else 4)
    for value, words in zip(values, _labels(values, chart.say), strict=True):
        _, y = frame.at(0, value)
        elements.append(
            f'<line x1="{place(frame.left)}" y1="{place(y)}" x2="{place(frame.right)}"'
            f' y2="{place(y)}" class="grid"/>'
        )
        elements.append(text(frame.left - 8, y + 4, words, size=11, anchor="end"))
    single_x = _alone(chart)
    marks = [single_x] if single_x is not None else chart.marks
    for value in marks or ticks(*frame.x, 6 if chart.width > 420 else 3):
        x, _ = frame.at(value, frame.y[0])
        anchor = "end" if x > frame.right - 12 else "middle"
        elements.append(text(x, frame.bottom + 16, count(value), size=11, anchor=anchor))
    elements.append(text(frame.right, frame.bottom + 32, chart.across, size=11, anchor="end"))
    return "".join(elements)


def _labels(values: Sequence[float], say: Callable[[float], str]) -> list[str]:
    """Format tick values, without common trailing zeros: 4, 5, 6 and not 4.00. If `say` has too few
    digits to tell them apart, more are used."""
    words = [say(value) for value in values]
    if len(set(words)) < len(words):
        words = [f"{value:.4g}" for value in values]
    while words and all("." in w and w[-1] in ".0" for w in words):
        words = [w[:-1] for w in words]
    return words


def _references(chart: Chart, frame: PlotArea) -> str:
    """Draw the dashed lines, each with its name in the right margin."""
    references = sorted(
        ((y, name) for name, y in chart.references if math.isfinite(y)), reverse=True
    )
    elements, lowest = [], -math.inf
    for value, name in references:
        _, y = frame.at(0, value)
        elements.append(
            f'<line x1="{place(frame.left)}" y1="{place(y)}" x2="{place(frame.right)}"'
            f' y2="{place(y)}" class="reference"/>'
        )
        lowest = max(y + 4, lowest + 13)
        elements.append(text(frame.right + 6, lowest, _named(chart, value, name), size=11))
    return "".join(elements)


def _series(line: Line, frame: PlotArea, chart: Chart) -> str:
    if line.band and len(line.finite) > 1:
        gathered = columns(line.finite)
        middle = path([frame.at(x, y) for x, y in _smooth(gathered)], f"{line.css} line")
        if len(line.finite) <= 4 * COLUMNS:
            return path([frame.at(x, y) for x, y in line.points], f"{line.css} raw") + middle
        edges = [(x, low, high) for x, _, low, high in gathered]
        return _between(edges, frame, line.css) + middle
    drawn = [frame.at(x, y) for x, y in line.points]
    elements = [_between(line.spread, frame, line.css), path(drawn, f"{line.css} line")]
    if line.dots or len(line.finite) == 1:
        for (x, y), (px, py) in zip(line.points, drawn, strict=True):
            if math.isfinite(px) and math.isfinite(py):
                words = f"{line.name} {chart.say(y)} at {count(x)} {chart.across}"
                elements.append(
                    f'<circle cx="{place(px)}" cy="{place(py)}" r="3.4" class="{line.css} dot">'
                    f"{tooltip(words)}</circle>"
                )
    return "".join(elements)


def _between(edges: Sequence[tuple[float, float, float]], frame: PlotArea, css: str) -> str:
    """Draw the area from the lowest to the highest values."""
    finite = [edge for edge in edges if all(map(math.isfinite, edge))]
    if len(finite) < 2:
        return ""
    outline = [frame.at(x, high) for x, _, high in finite]
    outline += [frame.at(x, low) for x, low, _ in reversed(finite)]
    corners = " ".join(f"{place(x)},{place(y)}" for x, y in outline)
    return f'<polygon points="{corners}" class="{css} band"/>'


def _smooth(gathered: list[tuple[float, float, float, float]]) -> list[Point]:
    """Average the median of each column with its neighbours, two of a hundred on each side.

    The steep beginning is not smoothed; at the end only earlier neighbours are left.
    """
    side = len(gathered) // 50
    smooth = []
    for i, (x, _, _, _) in enumerate(gathered):
        after = min(side, i)
        near = [middle for _, middle, _, _ in gathered[max(0, i - side) : i + after + 1]]
        smooth.append((x, math.fsum(near) / len(near)))
    return smooth


def _legend(chart: Chart) -> str:
    """Draw the entry of each line below the title."""
    elements = []
    for line, words, x, row in _entries(chart):
        y = 29 + LEGEND_ROW * row
        elements.append(f'<circle cx="{place(x + 4)}" cy="{y}" r="4" class="{line.css} dot"/>')
        elements.append(text(x + 13, y + 4, words, size=12, css="ink"))
    return "".join(elements)


def _entries(chart: Chart) -> list[tuple[Line, str, float, int]]:
    """Return (line, words, x, row) of each entry of the legend, in as many rows as needed."""
    entries: list[tuple[Line, str, float, int]] = []
    x, row = 0.0, 0
    for line in chart.lines:
        if not line.finite:
            continue
        last_value = _smooth(columns(line.finite))[-1][1] if line.band else line.finite[-1][1]
        shown = chart.say(last_value) if chart.has_last else ""
        words = f"{line.name} {shown}".strip()
        width = 34 + 6.6 * len(words)
        if x and x + width > chart.width:
            x, row = 0.0, row + 1
        entries.append((line, words, x, row))
        x += width
    return entries


# ------------------------------------------------------------------------------ histograms
HISTOGRAM_WIDTH, HISTOGRAM_HEIGHT = 380, 150
HISTOGRAM_LEFT, HISTOGRAM_RIGHT, HISTOGRAM_TOP, HISTOGRAM_BOTTOM = 6, 6, 26, 24
HISTOGRAM_BARS = 40
HISTOGRAM_TAIL = 0.02  # share of the values that may be beyond each end of the axis
LONG_TAIL = 30  # ratio of end and median from which the axis is logarithmic


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
    end, base = HISTOGRAM_WIDTH - HISTOGRAM_RIGHT, HISTOGRAM_HEIGHT - HISTOGRAM_BOTTOM
    bar = (end - HISTOGRAM_LEFT) / len(inside)
    room = base - HISTOGRAM_TOP
    elements = [f'<path d="M{HISTOGRAM_LEFT} {base}H{end}" class="axis"/>']
    for number, (within, beyond) in enumerate(zip(inside, outside, strict=True)):
        if not within + beyond:
            continue
        full = max(2.0, room * math.sqrt((within + beyond) / most))
        share = full * beyond / (within + beyond)
        x = HISTOGRAM_LEFT + number * bar
        words = f"{percent((within + beyond) / len(values))} of the documents"
        boxes = _box(x, base - full, bar, full - share, "one") if within else ""
        boxes += _box(x, base - share, bar, share, "two") if beyond else ""
        elements.append(f"<g>{boxes}{tooltip(words)}</g>")
    elements += _axis(*ends, scale, logarithmic)
    elements += [_limit(scale, low, "≥"), _limit(scale, high, "≤")]
    return picture(HISTOGRAM_WIDTH, HISTOGRAM_HEIGHT, title, elements)


def _ends(values: Sequence[float], low: float | None, high: float | None) -> tuple[float, float]:
    """Return the ends of the axis: most values, the limits, and some values beyond them."""
    cut = int(HISTOGRAM_TAIL * len(values))
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
    logarithmic = axis_start >= 0 and axis_end > 10 and axis_end > LONG_TAIL * max(middle, 0.1)
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
    bars = HISTOGRAM_BARS if distinct > HISTOGRAM_BARS // 2 else max(8, 2 * distinct)
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
        x = HISTOGRAM_LEFT + scale(mark) * (HISTOGRAM_WIDTH - HISTOGRAM_LEFT - HISTOGRAM_RIGHT)
        words = count(mark) if abs(mark) >= 10000 else f"{mark:,g}"
        wide = 6.8 * len(words)
        anchor = "start" if x < wide / 2 else "end" if x + wide / 2 > HISTOGRAM_WIDTH else "middle"
        begin = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
        if begin < end + 8:
            continue
        end = begin + wide
        labels.append(text(x, HISTOGRAM_HEIGHT - 8, words, size=11, anchor=anchor))
    return labels


def _limit(scale: Callable[[float], float], limit: float | None, sign: str) -> str:
    if limit is None or not 0 < scale(limit) < 1:
        return ""
    x = HISTOGRAM_LEFT + scale(limit) * (HISTOGRAM_WIDTH - HISTOGRAM_LEFT - HISTOGRAM_RIGHT)
    # Labels of two limits are on their outer sides.
    before = x > 80 if sign == "≥" else x > HISTOGRAM_WIDTH - 80
    anchor = "end" if before else "start"
    words = text(x, 14, f"{sign} {limit:,g}", size=12, anchor=anchor, css="ink")
    d = escaped(f"M{place(x)} {HISTOGRAM_TOP - 7}V{HISTOGRAM_HEIGHT - HISTOGRAM_BOTTOM}")
    return f'<path d="{d}" class="limit"/>{words}'
