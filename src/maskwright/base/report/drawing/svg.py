"""Pictures as SVG: their elements, and small pictures whose cells and points have their value as a
tooltip: shaded grids, the weights of one attention head, scatter plots.

Colours are classes, not values, so one style sheet serves light and dark pages. Text from outside
passes `escaped`.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from maskwright.base.errors import shorten
from maskwright.base.report.document import percent, size

IMAGE_SIDE = 160
LONGEST = 10_000  # characters of one text in a picture
# Classes of page.css for series.
COLOURS = ("one", "two", "three", "four", "five", "six")


def picture(
    width: float, height: float, label: str, elements: Iterable[str], *, sized: bool = False
) -> Markup:
    """Return the `svg` element around `elements`, which are SVG.

    Args:
        label: for screen readers.
        sized: whether the size is fixed; else the picture is as wide as the page.
    """
    sizes = f' width="{place(width)}" height="{place(height)}"' if sized else ""
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {place(width)} {place(height)}"'
        f'{sizes} role="img" aria-label="{escaped(label)}">{"".join(elements)}</svg>'
    )


def style(index: int) -> str:
    """Return the classes of series `index`; after the last colour, they repeat as broken lines and
    rings."""
    return COLOURS[index % len(COLOURS)] + (" again" if index // len(COLOURS) % 2 else "")


def escaped(value: object) -> str:
    """Escape a value for text and attributes; control characters become visible."""
    return str(escape(shorten(str(value), LONGEST)))


def tooltip(words: object) -> str:
    """Return the tooltip of the enclosing element."""
    return f"<title>{escaped(words)}</title>"


def place(value: float) -> str:
    """Format a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def text(
    x: float, y: float, words: object, *, size: float = 12, anchor: str = "start", css: str = "soft"
) -> str:
    """Return one line of text; `css` is a class of page.css: soft, ink, one, two, three."""
    return (
        f'<text x="{place(x)}" y="{place(y)}" font-size="{size:g}" text-anchor="{anchor}"'
        f' class="{css}">{escaped(words)}</text>'
    )


def upright(x: float, y: float, words: object, *, size: float = 12) -> str:
    """Return a vertical text that begins at (x, y) and runs up."""
    turned = text(0, 0, words, size=size)
    return f'<g transform="translate({place(x)} {place(y)}) rotate(-90)">{turned}</g>'


def path(points: list[tuple[float, float]], css: str) -> str:
    """Return a line through `points`, broken where a coordinate is not finite."""
    steps, down = [], False
    for x, y in points:
        if not (math.isfinite(x) and math.isfinite(y)):
            down = False
            continue
        steps.append(f"{'L' if down else 'M'}{place(x)} {place(y)}")
        down = True
    return f'<path d="{"".join(steps)}" class="{css}"/>' if steps else ""


def ticks(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round numbers in the range: steps of 1, 2 or 5 times a power of ten."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low] if math.isfinite(low) else []
    rough = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first_step = math.ceil(low / step - 1e-9)
    last_step = math.floor(high / step + 1e-9)
    return [i * step for i in range(first_step, last_step + 1)]


# ------------------------------------------------------------------------------ a pipeline (`flow`)
FLOW_WIDTH, FLOW_ROW, FLOW_TOP = 760, 46, 8
FLOW_LEFT, FLOW_BARS = 168, 360  # where bars begin, and how wide the widest is
FLOW_THICK, FLOW_THIN = 15, 6


@dataclass(frozen=True)
class FlowStage:
    """A step of a pipeline: documents and bytes before and after it."""

    name: str
    documents: tuple[int, int]
    bytes: tuple[int, int]


def flow(title: str, stages: Sequence[FlowStage]) -> Markup:
    """Draw the stages: thick bars are documents, thin ones bytes, as shares of the first stage."""
    first_stage = stages[0]
    totals = (max(1, first_stage.documents[0]), max(1, first_stage.bytes[0]))
    elements = []
    for number, stage in enumerate(stages):
        y = FLOW_TOP + number * FLOW_ROW
        if number + 1 < len(stages):
            x = FLOW_LEFT + FLOW_BARS * stage.documents[1] / totals[0]
            band = f"M{FLOW_LEFT} {y + FLOW_THICK}H{place(x)}V{place(y + FLOW_ROW)}H{FLOW_LEFT}Z"
            elements.append(f'<path d="{band}" class="band one"/>')
        elements.append(_bar(y, FLOW_THICK, stage.documents, totals[0], "one"))
        elements.append(_bar(y + FLOW_THICK + 2, FLOW_THIN, stage.bytes, totals[1], "three"))
        elements.append(text(0, y + 13, shorten(stage.name, 24), size=14, css="ink"))
        elements.append(text(FLOW_WIDTH, y + 13, _words(stage), size=13, anchor="end", css="ink"))
        elements.append(text(FLOW_WIDTH, y + 28, _more(stage), size=12, anchor="end"))
    return picture(FLOW_WIDTH, FLOW_TOP + (len(stages) - 1) * FLOW_ROW + 34, title, elements)


def _bar(y: float, height: float, passed: tuple[int, int], total: int, css: str) -> str:
    width, kept_width = (FLOW_BARS * amount / total for amount in passed)
    kept_bar = (
        f'<rect x="{FLOW_LEFT}" y="{y}" width="{place(kept_width)}" height="{height}"'
        f' class="dot {css}"/>'
    )
    width = max(1.0, width - kept_width) if passed[0] > passed[1] else 0
    removed_bar = (
        f'<rect x="{place(FLOW_LEFT + kept_width)}" y="{y}" width="{place(width)}"'
        f' height="{height}" class="dot two"/>'
    )
    words = tooltip(f"{passed[1]:,} of {passed[0]:,}")
    return f"<g>{kept_bar}{removed_bar if width else ''}{words}</g>"


def _words(stage: FlowStage) -> str:
    removed = stage.documents[0] - stage.documents[1]
    if not removed:
        return f"{stage.documents[1]:,} documents"
    return f"−{removed:,} ({percent(removed / max(1, stage.documents[0]))})"


def _more(stage: FlowStage) -> str:
    removed = stage.bytes[0] - stage.bytes[1]
    if not removed:
        return size(stage.bytes[1])
    return f"−{size(removed)}" if removed > 0 else f"+{size(-removed)}"


# ------------------------------------------------------------------------------ small pictures
TITLE = 26  # its height


def over_image(
    title: str, weights: Sequence[Sequence[float]], pixels: NDArray[np.uint8] | None = None
) -> Markup:
    """Draw an image with its patches shaded by their share of the largest of `weights`.

    Args:
        pixels: (H, W, 1 or 3) the image, of the first picture on a page; later ones show the same.
    """
    elements = [text(0, 14, title, size=13, css="ink")]
    box = f'y="{TITLE:g}" width="{IMAGE_SIDE}" height="{IMAGE_SIDE}"'
    if pixels is None:
        elements.append('<use href="#image"/>')
    else:
        data = base64.b64encode(png(pixels)).decode()
        box += f' image-rendering="pixelated" href="data:image/png;base64,{data}"'
        elements.append(f'<image id="image" {box}/>')
    largest = max((max(row) for row in weights), default=0.0) or 1.0
    for y, row in enumerate(weights):
        for x, weight in enumerate(row):
            edge, share = IMAGE_SIDE / len(row), weight / largest
            elements.append(
                f'<rect x="{x * edge:.2f}" y="{TITLE + y * edge:.2f}" width="{edge:.2f}" '
                f'height="{edge:.2f}" class="two dot" fill-opacity="{0.8 * share:.3f}">'
                f"{tooltip(f'row {y + 1}, column {x + 1}: {weight:.4f}')}</rect>"
            )
    return picture(IMAGE_SIDE, TITLE + IMAGE_SIDE + 2, title, elements, sized=True)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return an image (H, W, C) as a PNG file, in gray unless it has three channels."""
    pixels = pixels if pixels.shape[2] == 3 else pixels.mean(2, keepdims=True).astype(np.uint8)
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def scatter(
    title: str,
    points: Sequence[tuple[float, float]],
    groups: Sequence[str],
    names: Sequence[str],
    *,
    axes: tuple[str, str],
) -> Markup:
    """Draw points, a colour for each group; `names` are tooltips, `axes` the labels of x and y."""
    group_names = list(dict.fromkeys(groups))
    xs, ys = [x for x, _ in points], [y for _, y in points]
    spans = [(max(v) - min(v)) or 1.0 for v in (xs, ys)]
    width, height = 420, 260
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
            f'<circle cx="{place(across)}" cy="{place(down)}" r="5" fill-opacity="0.75"'
            f' class="{style(group_names.index(group))} dot">{tooltip(f"{group}: {name}")}</circle>'
        )
    return picture(width, height, title, elements)
