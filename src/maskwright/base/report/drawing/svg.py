"""Elements of SVG pictures.

Colours are classes, not values, so one style sheet serves light and dark pages. Text from outside
passes `escaped`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from maskwright.base.errors import shorten
from maskwright.base.report.wording import percent, size

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


def upright(x: float, y: float, words: object, *, size: float = 12, down: bool = False) -> str:
    """Return a vertical text that begins at (x, y) and runs up, or with `down` down."""
    turned = text(0, 0, words, size=size)
    angle = 90 if down else -90
    return f'<g transform="translate({place(x)} {place(y)}) rotate({angle})">{turned}</g>'


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


WIDTH, ROW, TOP = 760, 46, 8
LEFT, BARS = 168, 360  # where bars begin, and how wide the widest is
THICK, THIN = 15, 6


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
        y = TOP + number * ROW
        if number + 1 < len(stages):
            x = LEFT + BARS * stage.documents[1] / totals[0]
            below = f"V{place(y + ROW)}H{LEFT}Z"
            elements.append(f'<path d="M{LEFT} {y + THICK}H{place(x)}{below}" class="band one"/>')
        elements.append(_bar(y, THICK, stage.documents, totals[0], "one"))
        elements.append(_bar(y + THICK + 2, THIN, stage.bytes, totals[1], "three"))
        elements.append(text(0, y + 13, shorten(stage.name, 24), size=14, css="ink"))
        elements.append(text(WIDTH, y + 13, _words(stage), size=13, anchor="end", css="ink"))
        elements.append(text(WIDTH, y + 28, _more(stage), size=12, anchor="end"))
    return picture(WIDTH, TOP + (len(stages) - 1) * ROW + 34, title, elements)


def _bar(y: float, height: float, passed: tuple[int, int], total: int, css: str) -> str:
    width, kept_width = (BARS * amount / total for amount in passed)
    kept_bar = (
        f'<rect x="{LEFT}" y="{y}" width="{place(kept_width)}" height="{height}"'
        f' class="dot {css}"/>'
    )
    width = max(1.0, width - kept_width) if passed[0] > passed[1] else 0
    removed_bar = (
        f'<rect x="{place(LEFT + kept_width)}" y="{y}" width="{place(width)}" height="{height}"'
        ' class="dot two"/>'
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
