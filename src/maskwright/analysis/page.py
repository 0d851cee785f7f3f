"""What all pages of this room have: how they are written, and how figures are drawn."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.analysis.hidden_states import ProbedModel
from maskwright.metrics.intervals import Estimate
from maskwright.models import folders
from maskwright.report import document, tables
from maskwright.report.curves import Line
from maskwright.report.say import Say

PAGE = "report.html"


def require_new(out: Path) -> None:
    """Refuse to write over the figures or the page of something else in `out`.

    Raises:
        UsageError: naming the file.
    """
    for name in (tables.NAME, PAGE):
        document.require_new(out / name)


def write(
    out: Path,
    subject: ProbedModel,
    kind: str,
    head: str,
    sections: Sequence[tuple[str, str]],
    plain: dict[str, Any],
    say: Say,
) -> Path:
    """Write figures and page into `out`, and say where the page is."""
    page = document.document(folders.called(subject.path), kind, head, sections)
    document.write_new(out, {tables.NAME: json.dumps(plain, indent=2) + "\n", PAGE: page})
    say(f"report: {out / PAGE}")
    return out / PAGE


def plain(found: Any) -> dict[str, Any]:
    """What was found as JSON values; None where a figure is not defined."""

    def simple(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.tolist()
        if isinstance(value, Estimate):
            each = dataclasses.asdict(value)
            return {name: one if math.isfinite(one) else None for name, one in each.items()}
        if isinstance(value, dict):
            return {name: simple(each) for name, each in value.items()}
        return [simple(each) for each in value] if isinstance(value, list) else value

    return {field.name: simple(getattr(found, field.name)) for field in dataclasses.fields(found)}


def line(name: str, each: Sequence[Estimate], css: str) -> Line:
    """Figures by layer with their intervals."""
    spread = [
        (float(x), one.low, one.high)
        if math.isfinite(one.low)
        else (float(x), one.value, one.value)
        for x, one in enumerate(each)
    ]
    return Line(
        name, [(float(x), one.value) for x, one in enumerate(each)], css, dots=True, spread=spread
    )
