"""What an answer is called beside the row that it answers; the row must not use these names.

    prediction                         in JSON Lines, the answer as it is
    predicted_label, predicted_score   in a table, a column for each part of it
    prediction_windows                 in how many windows the row was read (`--long windows`); in
                                       a table predicted_windows

Those of several models stand one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from maskwright.errors import UsageError
from maskwright.predict.predictor import Answering

PREDICTION, PREDICTED = "prediction", "predicted_"
# In how many windows a row was read, where that was asked for.
WINDOWS, PREDICTED_WINDOWS = "prediction_windows", "predicted_windows"


def flat_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a csv: the answer in columns of its own, lists as JSON."""
    answer = row.pop(PREDICTION)
    windows = {PREDICTED_WINDOWS: row.pop(WINDOWS)} if WINDOWS in row else {}
    cells = {} if answer is None else dict(_cells(PREDICTED, answer))
    cells |= windows
    if taken := sorted(cells.keys() & row.keys()):
        raise name_taken(", ".join(taken))
    row |= cells
    return {
        name: json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
        for name, value in row.items()
    }


def names_of(example: Any, model: Answering, top: int | None, windows: bool) -> list[str]:
    """The columns of an answer, which are the same for all rows; with that of its `windows`."""
    names = [name for name, _ in _cells(PREDICTED, model.answers([example], top)[0])]
    return [*names, *([PREDICTED_WINDOWS] if windows else [])]


def _cells(name: str, answer: Any) -> Iterator[tuple[str, Any]]:
    """The columns of an answer, each with what stands there."""
    if not isinstance(answer, dict):
        yield name.removesuffix("_"), answer
        return
    for part, value in answer.items():
        yield from _cells(f"{name}{part}_", value)


def name_taken(name: str, where: str | None = None) -> UsageError:
    """What refuses a row that has the `name` of an answer."""
    return UsageError(
        "the file has a column of that name already",
        where=where,
        found=name,
        do="rename it, or the answer would take its place",
    )
