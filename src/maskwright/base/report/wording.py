"""Formats counts, sizes and times, and puts losses into words.

`standing` compares a loss with two trivial models: uniform, and unigram, which predicts token
frequencies. A masked model stays at the unigram loss for a while before it starts to use context.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from maskwright.base.counted import decimals

# Distance in nats within which a loss counts as that of the unigram model.
PLATEAU = 0.15


def number(record: Mapping[str, Any], name: str) -> float:
    """Return `record[name]` as a float; NaN if it is missing, null or not a number."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value)


def token_parts(run: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts of the loss that predict tokens, which have trivial models."""
    names = run.get("token_parts")
    return tuple(map(str, names)) if isinstance(names, list) else ()


def token_loss(record: Mapping[str, Any], run: Mapping[str, Any]) -> float:
    """Return the part of the loss that predicts tokens, in nats per target; the whole loss if the
    run names no such part."""
    loss_parts = record.get("parts")
    if isinstance(loss_parts, Mapping):
        for name in token_parts(run):
            if name in loss_parts:
                return number(loss_parts, name)
    return number(record, "loss")


def standing(loss: float, references: Mapping[str, Any], share: float = 0.0) -> str:
    """Compare `loss` (nats per token) with the trivial models, in words; "" without these.

    `share` is the share of the run that is over (0 to 1): a plateau is normal early in a run.
    """
    if not math.isfinite(loss):
        return "not a number"
    uniform, unigram = number(references, "uniform_loss"), number(references, "unigram_loss")
    if unigram > uniform:  # the evaluated text has other words than the training text
        unigram = math.nan
    if math.isfinite(unigram) and loss < unigram - PLATEAU:
        return f"below the unigram line by {unigram - loss:.1f} nats"
    if math.isfinite(unigram) and loss <= unigram + PLATEAU:
        if share > 0.5:
            return "still on the unigram plateau: too few steps, or too low a learning rate"
        return "on the unigram plateau, normal until it breaks"
    if math.isfinite(uniform) and loss > uniform - PLATEAU:
        return (
            "at the uniform line, as before training"
            if loss < uniform + 1.0
            else (f"above the uniform line by {loss - uniform:.1f} nats")
        )
    if math.isfinite(unigram):
        return f"{loss - unigram:.1f} nats above the unigram line"
    return ""


def count(value: float) -> str:
    """Format a count with at most four digits: 850, 12.4 k, 3.1 M."""
    if not math.isfinite(value):
        return "–"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return (
                f"{value / size:.3g} {letter}"
                if value < 999.5 * size
                else f"{value / size:.0f} {letter}"
            )
    return f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"


def size(value: float) -> str:
    """Format bytes as kB, MB or GB."""
    return f"{count(value)}B" if abs(value) >= 999.5 else f"{value:.0f} bytes"


def duration(seconds: float) -> str:
    """Format a duration in its two largest units: 48 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if not math.isfinite(seconds):
        return "–"
    total = max(0, round(seconds))
    if total < 60:
        return f"{total} s"
    for large, small, step, inner in (("min", "s", 60, 1), ("h", "min", 3600, 60)):
        if total < step * (60 if large == "min" else 24):
            rest = total % step // inner
            return f"{total // step} {large} {rest} {small}" if rest else f"{total // step} {large}"
    return f"{total // 86400} d {total % 86400 // 3600} h"


def percent(share: float) -> str:
    """Format a share in percent, with three digits: 31.2 %, 0.0488 %."""
    if not math.isfinite(share):
        return "–"
    return f"{share * 100:.1f} %" if abs(share) >= 0.01 or share == 0 else f"{share * 100:.2g} %"


def figure(value: float, digits: int = 3) -> str:
    """Format a number with `digits` decimals; a dash if it is not finite."""
    if not math.isfinite(value):
        return "–"
    return decimals(value, digits) if abs(value) < 1e4 else count(value)
