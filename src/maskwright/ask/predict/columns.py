"""Names of prediction columns, which the columns of a file must not have.

    prediction                         in JSON Lines, the prediction itself
    predicted_label, predicted_score   in a table, a column for each field; with --top
                                       predicted_label_1, predicted_score_1, …_2, …
    prediction_windows                 the number of windows the row was read in (`--long
                                       windows`); in a table predicted_windows

Columns of several models follow each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from maskwright.ask.predict.predictor import BasePredictor
from maskwright.base.errors import UsageError

PREDICTION, PREDICTED = "prediction", "predicted_"
NUMBER = re.compile(r"_[0-9]+\Z")  # the suffix of columns of the best predictions
WINDOWS, PREDICTED_WINDOWS = "prediction_windows", "predicted_windows"


def flat_row(row: dict[str, Any], top: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a row of JSON Lines into the cells of its columns and those of its prediction. Lists
    become JSON, except the list of the `top` best predictions, which get columns of their own."""
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
    """Return the prediction columns, with that of the number of `windows` if True. They are the
    same for all rows, except that with `top` a row may have fewer of them."""
    names = [name for name, _ in _cells(PREDICTED, model.answers([example], top)[0], top)]
    return [*names, *([PREDICTED_WINDOWS] if windows else [])]


def clashing(names: Iterable[str], row: Iterable[str], top: int | None) -> list[str]:
    """Return the columns of a row that clash with prediction columns of these `names`."""
    if top is None:
        return sorted({*names} & {*row})
    ranked = {NUMBER.sub("", name) for name in names}
    return sorted(name for name in row if name in names or NUMBER.sub("", name) in ranked)


def _cells(name: str, answer: Any, top: int | None, suffix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (column name, value) for the fields of a prediction, recursively."""
    if isinstance(answer, dict):
        for key, value in answer.items():
            yield from _cells(f"{name}{key}_", value, top, suffix)
    elif top is not None and isinstance(answer, list) and not suffix:
        for number, ranked in enumerate(answer, start=1):
            yield from _cells(name, ranked, top, f"_{number}")
    else:
        yield name.removesuffix("_") + suffix, answer


def name_taken(name: str, where: str | None = None) -> UsageError:
    """Return the error about a file that already has a column called `name`."""
    return UsageError(
        "the file has a column of that name already",
        where=where,
        found=name,
        do="rename it, or the answer would take its place",
    )
