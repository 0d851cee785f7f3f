"""A verdict on a result: is the model better than what needs no model, on the same rows?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from maskwright.base.counted import counted, decimals
from maskwright.base.metrics.paired import PairedDifference

State = Literal["good", "no better", "unusable"]


@dataclass(frozen=True)
class Rival:
    """A baseline on the rows of the model.

    Attributes:
        name: as in "no better than NAME".
        value: its metric; NaN if it is not defined.
        gap: the metric of the model minus that of the baseline, paired by row; positive where the
            model is better, also for errors.
        is_constant: whether it gives the same answer to every row.
    """

    name: str
    value: float
    gap: PairedDifference
    is_constant: bool = False


@dataclass(frozen=True)
class Verdict:
    """A state and a sentence.

    Attributes:
        rival: the baseline that decided; "" if there is none.
        is_usable: whether the model is worth predicting with: no baseline is significantly better.
    """

    state: State
    sentence: str
    rival: str = ""
    is_usable: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def verdict(
    measure: str,
    value: float,
    rivals: Sequence[Rival],
    rows: int,
    unit: tuple[str, str] = ("row", "rows"),
) -> Verdict:
    """Judge the metric `value` of a model on some rows, or other units such as queries.

    The model is good if it is significantly better than every baseline, unusable if it is not
    better than the same answer for every row, and otherwise no better than the baseline with which
    the difference is least.
    """
    result = f"{measure} {decimals(value)} on {counted(rows, *unit)}"
    if not math.isfinite(value):
        sentence = f"Unusable: {measure} is not defined, as all answers are the same."
        return Verdict("unusable", sentence, is_usable=False)
    if not rivals:
        return Verdict("no better", f"Not judged: {result}, and no baseline applies to this task.")
    best = min(rivals, key=lambda rival: rival.gap.value)
    constant = next((r for r in rivals if r.is_constant and not r.gap.value > 0), None)
    compared = constant or best
    numbers = f"{decimals(compared.value)} ({_interval(compared.gap)})"
    if constant is not None:
        sentence = f"Unusable: {result}; {constant.name} {numbers}."
        if best.gap.high < 0 and best is not constant:
            sentence += f" {best.name.capitalize()} reaches {decimals(best.value)}."
        return Verdict("unusable", sentence, constant.name, is_usable=False)
    if best.gap.high < 0:
        values = f"{decimals(best.value)} against {decimals(value)} of the model"
        sentence = f"{best.name.capitalize()} is better: {values} ({_interval(best.gap)})."
        return Verdict("no better", sentence, best.name, is_usable=False)
    unproved = [rival for rival in rivals if not rival.gap.low > 0]
    if unproved:
        least = min(unproved, key=lambda rival: rival.gap.value)
        numbers = f"{decimals(least.value)} ({_interval(least.gap)})"
        sentence = f"No better than {least.name}, as far as these {unit[1]} show: {result}"
        return Verdict("no better", f"{sentence}; {least.name} {numbers}.", least.name)
    return Verdict("good", f"Good: {result}; {best.name} {numbers}.", best.name)


def compare(
    measure: str, names: tuple[str, str], values: tuple[float, float], gap: PairedDifference
) -> Verdict:
    """Compare a model with another on the same rows; `gap` is positive where the first is better.
    The state is that of the first: good if it is better."""
    shown = [decimals(value) if math.isfinite(value) else "undefined" for value in values]
    figures = f"{measure} {shown[0]} against {shown[1]} on {counted(gap.rows, 'row')}"
    figures += f" ({_interval(gap)})"
    if not gap.is_significant:
        sentence = f"No difference is shown by these rows between {names[0]} and {names[1]}"
        return Verdict("no better", f"{sentence}: {figures}.", names[1])
    better = gap.low > 0
    direction = "better" if better else "worse"
    sentence = f"{names[0]} is {direction} than {names[1]}: {figures}."
    return Verdict("good" if better else "no better", sentence, names[1], is_usable=better)


def _interval(gap: PairedDifference) -> str:
    if not math.isfinite(gap.value):
        return "difference unknown"
    if not math.isfinite(gap.low):
        return f"difference {decimals(abs(gap.value))}, interval unknown"
    low, high = (gap.low, gap.high) if gap.value >= 0 else (-gap.high, -gap.low)
    return (
        f"difference {decimals(abs(gap.value))}, 95 % interval {decimals(low)} to {decimals(high)}"
    )
