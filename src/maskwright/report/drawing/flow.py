"""What passes through steps: a bar for each, with the part that goes there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from maskwright.errors import shorten
from maskwright.report.drawing.svg import picture, place, text, tooltip
from maskwright.report.wording import percent, size

WIDTH, ROW, TOP = 760, 46, 8
LEFT, BARS = 168, 360  # where bars begin, and how wide the widest is
THICK, THIN = 15, 6


@dataclass(frozen=True)
class Stage:
    """A step: documents and bytes that came to it and that left it."""

    name: str
    documents: tuple[int, int]
    bytes: tuple[int, int]


def flow(title: str, stages: Sequence[Stage]) -> Markup:
    """The picture: thick bars are documents, thin ones bytes, both as shares of what came first."""
    first = stages[0]
    whole = (max(1, first.documents[0]), max(1, first.bytes[0]))
    parts = []
    for number, stage in enumerate(stages):
        y = TOP + number * ROW
        if number + 1 < len(stages):
            x = LEFT + BARS * stage.documents[1] / whole[0]
            below = f"V{place(y + ROW)}H{LEFT}Z"
            parts.append(f'<path d="M{LEFT} {y + THICK}H{place(x)}{below}" class="band one"/>')
        parts.append(_bar(y, THICK, stage.documents, whole[0], "one"))
        parts.append(_bar(y + THICK + 2, THIN, stage.bytes, whole[1], "three"))
        parts.append(text(0, y + 13, shorten(stage.name, 24), size=14, css="ink"))
        parts.append(text(WIDTH, y + 13, _words(stage), size=13, anchor="end", css="ink"))
        parts.append(text(WIDTH, y + 28, _more(stage), size=12, anchor="end"))
    return picture(WIDTH, TOP + (len(stages) - 1) * ROW + 34, title, parts)


def _bar(y: float, height: float, passed: tuple[int, int], whole: int, css: str) -> str:
    came, left = (BARS * each / whole for each in passed)
    kept = f'<rect x="{LEFT}" y="{y}" width="{place(left)}" height="{height}" class="dot {css}"/>'
    width = max(1.0, came - left) if passed[0] > passed[1] else 0
    removed = (
        f'<rect x="{place(LEFT + left)}" y="{y}" width="{place(width)}" height="{height}"'
        ' class="dot two"/>'
    )
    words = tooltip(f"{passed[1]:,} of {passed[0]:,}")
    return f"<g>{kept}{removed if width else ''}{words}</g>"


def _words(stage: Stage) -> str:
    removed = stage.documents[0] - stage.documents[1]
    if not removed:
        return f"{stage.documents[1]:,} documents"
    return f"−{removed:,} ({percent(removed / max(1, stage.documents[0]))})"


def _more(stage: Stage) -> str:
    removed = stage.bytes[0] - stage.bytes[1]
    if not removed:
        return size(stage.bytes[1])
    return f"−{size(removed)}" if removed > 0 else f"+{size(-removed)}"
