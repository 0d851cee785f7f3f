"""The names of the columns of an answer, which the columns of the row must not have.

    prediction                         in JSON Lines, the answer as it is
    predicted_label, predicted_score   in a table, a column for each part of it; of the best --top
                                       answers predicted_label_1, predicted_score_1, …_2, …
    prediction_windows                 in how many windows the row was read (`--long windows`); in
                                       a table predicted_windows

Those of several models stand one after the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from maskwright.ask.predict.predictor import BasePredictor
from maskwright.base.errors import UsageError

PREDICTION, PREDICTED = "prediction", "predicted_"
# In how many windows a row was read, where that was asked for.
NUMBER = re.compile(r"_[0-9]+\Z")  # of the columns of the best answers
WINDOWS, PREDICTED_WINDOWS = "prediction_windows", "predicted_windows"


def flat_row(row: dict[str, Any], top: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The row and its answer as cells of a table; lists are JSON, but for the best `top` answers,
    which have columns of their own."""
    answer = row.pop(PREDICTION)
    windows = {PREDICTED_WINDOWS: row.pop(WINDOWS)} if WINDOWS in row else {}
    cells = {} if answer is None else dict(_cells(PREDICTED, answer, top))
    cells |= windows
    if clashes := sorted(cells.keys() & row.keys()):
        raise name_taken(", ".join(clashes))
    return _as_text(row), _as_text(cells)


def _as_text(cells: dict[str, Any]) -> dict[str, Any]:
    return {
        name: json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
        for name, value in cells.items()
    }


def names_of(example: Any, model: BasePredictor, top: int | None, windows: bool) -> list[str]:
    """The columns of an answer, with that of its `windows`. They are the same for all rows, but for
    the best `top`, of which a row may have more or fewer."""
    names = [name for name, _ in _cells(PREDICTED, model.answers([example], top)[0], top)]
    return [*names, *([PREDICTED_WINDOWS] if windows else [])]


def clashing(names: Iterable[str], row: Iterable[str], top: int | None) -> list[str]:
    """The columns of a row that clash with answer columns of these `names`."""
    if top is None:
        return sorted({*names} & {*row})
    ranked = {NUMBER.sub("", name) for name in names}
    return sorted(name for name in row if name in names or NUMBER.sub("", name) in ranked)


def _cells(name: str, answer: Any, top: int | None, suffix: str = "") -> Iterator[tuple[str, Any]]:
    """The columns of an answer: pairs of name and value."""
    if isinstance(answer, dict):
        for key, value in answer.items():
            yield from _cells(f"{name}{key}_", value, top, suffix)
    elif top is not None and isinstance(answer, list) and not suffix:
        for number, ranked in enumerate(answer, start=1):
            yield from _cells(name, ranked, top, f"_{number}")
    else:
        yield name.removesuffix("_") + suffix, answer


def name_taken(name: str, where: str | None = None) -> UsageError:
    """The error about a row with a column called `name`, as the answer is."""
    return UsageError(
        "the file has a column of that name already",
        where=where,
        found=name,
        do="rename it, or the answer would take its place",
    )
