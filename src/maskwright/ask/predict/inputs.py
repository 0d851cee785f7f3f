"""The inputs of `predict`: which settings have an effect together, and in Python the examples.

    ["a text", …]                     each element is an example; so are tuples and mappings
    {"text": "a text"}                one example, by the names of columns or roles
    {"text": ["a text", …]}           columns of examples, as are the tables of pandas, polars,
                                      pyarrow and datasets

Tables are recognised by their attributes, so none of these libraries is imported. (Iterating over a
table would yield its column names, which are texts too.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from maskwright.base.config import require
from maskwright.base.errors import DataError, UsageError, near
from maskwright.model.device.choices import TORCH
from maskwright.text.corpus.files import KINDS
from maskwright.text.corpus.in_memory import (
    column_names,
    column_values,
    refuse_repeated,
    refuse_uncomputed,
    rows_of,
)

WHERE = "predict"
# Roles whose value is a list in each example.
LISTS = ("tokens", "choices")
# Settings of one model in a folder.
OF_ONE_FOLDER = ("base", "engine", "labels", "task", "uncertain")


def require_effect(settings: Mapping[str, Any]) -> None:
    """Raise a `UsageError` for one of `PredictionSettings` that others leave without effect, or a
    `ConfigError` for a number that is out of range for any rows."""
    idle = {} if settings.get("labels") else {"hypothesis": "name the labels: --labels A,B"}
    if settings.get("also"):
        idle |= dict.fromkeys(OF_ONE_FOLDER, "leave it out, or predict with one model at a time")
    if settings.get("server") is None:
        idle["server_token"] = "name the --server"
    else:
        remedy = "leave it out, or name a model folder in place of --server"
        idle |= dict.fromkeys(("also", *OF_ONE_FOLDER), remedy)
    for name, remedy in idle.items():
        if settings.get(name) not in (None, TORCH, "", [], ()):
            where = f"--{name.replace('_', '-')}"
            raise UsageError("option has no effect here", where=where, do=remedy)
    for name, low, high in (("threshold", 0, 1), ("uncertain", 1, math.inf)):
        if (value := settings.get(name)) is not None:
            require(f"--{name}", value, low, high)


def examples(
    inputs: Any, roles: Mapping[str, Sequence[str]], other_names: Collection[str] = ()
) -> Iterator[Any]:
    """Return an iterator over the examples in the input of `predict`.

    Args:
        inputs: a text, a mapping, a table, or an iterable of examples.
        roles: the names of the columns that are read, by role.
        other_names: further column names that are accepted.

    Raises:
        DataError: the input is none of these, or a table that lacks columns or has columns of
            different lengths.
        UsageError: the input is a file path, or a set, which has no order.
    """
    names = {*roles, *other_names, *itertools.chain(*roles.values())}
    if isinstance(inputs, str):
        _refuse_path(inputs)
        return iter([inputs])
    refuse_uncomputed(inputs, WHERE)
    if isinstance(inputs, Mapping):
        return _examples_of_mapping(inputs, names, roles)
    if (columns := column_names(inputs)) is not None:
        refuse_repeated(columns, WHERE)
        _require_columns(columns, names, roles)
        return rows_of({name: inputs[name] for name in columns if name in names}, WHERE)
    if (row := _row_of_series(inputs, names)) is not None:
        return iter([row])
    if not isinstance(inputs, Iterable) or getattr(inputs, "ndim", 1) == 0:
        required = "a list of texts, or of tuples or mappings"
        raise DataError("no examples", where=WHERE, found=repr(inputs)[:80], wanted=required)
    return (_to_plain(example, names) for example in inputs)


def listed(values: Any, where: str) -> list[Any]:
    """Convert a tuple, an array, or a column of pandas, polars, pyarrow or datasets to a list.

    Raises:
        UsageError: a set, which has no order.
        DataError: a table, a mapping, or not an iterable of one dimension.
    """
    refuse_uncomputed(values, where)
    if isinstance(values, Mapping) or column_names(values) is not None:
        raise DataError(
            "a table or a mapping, and texts are read",
            where=where,
            found=type(values).__name__,
            wanted="a list of texts, or one column",
            do='give the column: table["text"]',
        )
    if not isinstance(values, Iterable) or getattr(values, "ndim", 1) != 1:
        raise DataError(
            "no texts", where=where, found=repr(values)[:80], wanted="a text, or a list of texts"
        )
    return column_values(values)


def _refuse_path(text: str) -> None:
    """Raise a `UsageError` if a text is the path of an existing data file."""
    path = Path(text)
    try:
        is_data_file = path.suffix.lower() in KINDS and path.is_file()
    except (OSError, ValueError):
        return
    if is_data_file:
        raise UsageError(
            "the path of a file, and not a text",
            where=WHERE,
            found=text,
            wanted="texts",
            do="for the rows of the file: maskwright.api.write_predictions(FOLDER, FILE, OUT); to "
            "have the path itself read as a text, give it in a list",
        )


def _examples_of_mapping(
    mapping: Mapping[Any, Any], names: Collection[str], roles: Mapping[str, Sequence[str]]
) -> Iterator[Any]:
    """Yield the mapping as one example, or the rows of a mapping of columns."""
    if tables := [name for name, value in mapping.items() if column_names(value) is not None]:
        raise DataError(
            "tables by name, and not one table",
            where=WHERE,
            found=", ".join(map(str, tables)),
            wanted="one of them",
            do=f"name it: predict(tables[{tables[0]!r}])",
        )
    lists = {*LISTS, *(roles[role][0] for role in LISTS if len(roles.get(role, ())) == 1)}
    columns = {name: value for name, value in mapping.items() if name in names}
    columns = columns or dict(mapping)  # unknown names raise an error in `_require_columns`
    if not any(_is_column(value, name in lists) for name, value in columns.items()):
        _refuse_texts_as_words(columns, roles)
        return iter([mapping])
    _require_columns(list(mapping), names, roles)
    return rows_of(columns, WHERE)


def _refuse_texts_as_words(columns: Mapping[Any, Any], roles: Mapping[str, Sequence[str]]) -> None:
    """Raise a `DataError` if a list for the role "tokens" contains phrases: it is probably a column
    of texts, not the words of one text."""
    for name in {"tokens", *roles.get("tokens", ())} & columns.keys():
        cells = columns[name]
        phrases = [cell for cell in cells if isinstance(cell, str) and len(cell.split()) > 1]
        if not isinstance(cells, str) and phrases:
            raise DataError(
                "the words of one text, or several texts",
                where=f"{WHERE}, {name!r}",
                found=repr(phrases[0])[:80],
                wanted="words without blanks",
                do="give texts in a list: predict([…])",
            )


def _is_column(value: Any, lists: bool) -> bool:
    """Whether `value` is a column, with a value for each of several examples. If these values are
    `lists`, a column is a list of lists."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return False
    if not lists:
        return True
    cells = column_values(value)
    return bool(cells) and all(_is_column(cell, lists=False) for cell in cells)


def _row_of_series(value: Any, names: Collection[str]) -> dict[str, Any] | None:
    """Convert a pandas series indexed by column names (a row) to a dict; None if it is not one."""
    index = getattr(value, "index", None)
    if index is None or callable(index) or not hasattr(value, "to_dict"):
        return None
    columns = [name for name in index if isinstance(name, str) and name in names]
    return {name: value[name] for name in columns} if columns else None


def _to_plain(value: Any, names: Collection[str]) -> Any:
    """Convert an example (such as a named tuple or a row of a table) to a str, tuple or mapping."""
    if isinstance(value, str | Mapping | list):
        return value
    if hasattr(value, "as_py"):  # a cell or a row of pyarrow
        return value.as_py()
    if (row := _row_of_series(value, names)) is not None:
        return row
    fields = getattr(value, "_fields", None) or getattr(
        getattr(value, "dtype", None), "names", None
    )
    if fields and set(fields) & set(names):  # a named tuple, or a record of numpy
        return {name: value[position] for position, name in enumerate(fields) if name in names}
    if getattr(value, "ndim", 0) == 1:  # a row of an array
        cells = tuple(value.tolist())
        return cells[0] if len(cells) == 1 else cells
    return value


def _require_columns(
    columns: list[Any], names: Collection[str], roles: Mapping[str, Sequence[str]]
) -> None:
    """Raise a `DataError` if a table has no column that is read, or only some of those that are
    joined into one text."""
    joined_columns = next((joined for joined in roles.values() if set(joined) & set(columns)), ())
    missing = [name for name in joined_columns if name not in columns]
    if set(names) & set(columns) and not missing:
        return
    expected = missing or list(dict.fromkeys(itertools.chain(*roles.values())))
    raise DataError(
        "a column that the model reads is missing",
        where=WHERE,
        found=f"the columns {', '.join(map(str, columns)) or '(none)'}",
        wanted=", ".join(map(repr, expected)),
        do=f"rename the column ({near(expected[0], list(map(str, columns)))}), or give a list of "
        "texts",
    )
