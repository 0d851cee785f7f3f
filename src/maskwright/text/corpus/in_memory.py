"""Tables and texts in memory, written as JSON Lines, so that what reads files reads them as well.

    frame of pandas or polars, table of pyarrow, Dataset    a row for each row
    {"text": […], "label": […]}                             columns of rows
    [{"text": …, "label": …}, …], or a generator of these   a row for each mapping
    Series, array, generator of str                         texts: rows with the column "text"
    {"train": table, "test": table}, a DatasetDict          parts: a folder with a file for each

A path, or a list of paths, names files and is passed on. Objects are recognised by their
attributes, so none of these libraries is imported. Missing values (None, NaN, NaT) become null,
dates become text, and the numbers of a `ClassLabel` become its names.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from maskwright.base.errors import DataError, MaskwrightError, UsageError
from maskwright.base.storage.files import new_file, os_errors_refused

MISSING = {"NAType", "NaTType"}  # classes of pandas
TEMPORARY = ".maskwright-data-"  # how the names of temporary folders begin
TABLES = "a table of pandas, polars, pyarrow or datasets, columns by name, a list of mappings"
TEXTS = 'a column of texts (frame["text"]), a generator of texts, mappings {"text": …}'


@contextlib.contextmanager
def as_files(
    data: Any, argument: str, *, texts: bool = False, kept_beside: Path | None = None
) -> Iterator[Any]:
    """Context in which `data` is the path of a file or a folder; paths are passed on unchanged.
    In errors, lines of the file become rows of the data.

    Args:
        argument: the name of the argument, for errors.
        texts: whether the elements may be texts; else only rows with named columns.
        kept_beside: an output folder; the file is kept beside it as OUT-HASH.jsonl, so that what
            is recorded there names a file that exists. None: it is temporary.

    Raises:
        DataError: an object of another kind, or a value that JSON cannot hold.
        UsageError: a set, or a polars table that was not computed.
    """
    if data is None or names_files(data):
        if texts and isinstance(data, list | tuple):
            _refuse_texts_as_paths(data, argument)
        yield data
        return
    tables = data if _is_parts(data) else {"": data}
    rows = {name: rows_of(table, argument, texts=texts) for name, table in tables.items()}
    disk = None  # that of the output folder, so that the file is moved without copying
    if kept_beside is not None:
        disk = next(path for path in kept_beside.absolute().parents if path.is_dir())
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=disk) as folder:
        path = Path(folder) / ("data.jsonl" if "" in tables else "data")
        digests = [_write(path / f"{n}.jsonl" if n else path, table) for n, table in rows.items()]
        is_new = False
        if kept_beside is not None:
            digest = hashlib.sha256("".join(digests).encode()).hexdigest()[:8]
            stored_path = kept_beside.with_name(f"{kept_beside.name}-{digest}{path.suffix}")
            with os_errors_refused(stored_path):
                if is_new := not stored_path.exists():
                    stored_path.parent.mkdir(parents=True, exist_ok=True)
                    shutil.move(path, stored_path)
            path = stored_path
        try:
            yield path
        except MaskwrightError as error:
            if error.where:
                error.where = row_names(error.where, path, argument)
                error.args = (error.render(),)
            if is_new and kept_beside is not None and not kept_beside.exists():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            raise


def row_names(text: str, path: Path, argument: str) -> str:
    """Replace lines of the file or folder `path` in a text by rows of the argument."""

    def name(match: re.Match[str]) -> str:
        split, number = match.groups()
        data = f"{argument}[{split!r}]" if split else argument
        return f"{data}, row {number}" if number else data

    pattern = rf"(?:\S*/)?{re.escape(path.name)}(?:/(\w+)\.jsonl)?(?:(?::|, line )(\d+))?"
    return re.sub(pattern, name, text)


def _refuse_texts_as_paths(paths: Iterable[Any], argument: str) -> None:
    """Refuse a list of texts, which would be read as names of files."""
    for text in paths:
        if isinstance(text, str) and len(text.split()) > 1 and not os.path.exists(text):
            raise UsageError(
                "a list of texts is read as paths, and there is no such file",
                where=argument,
                found=repr(text[:60]),
                wanted=f"paths; or as texts {TEXTS}",
                do=f"give mappings: {argument}=[{{'text': text}} for text in texts]",
            )


def is_temporary(path: Path | str) -> bool:
    """Whether the path is that of data in memory, which is removed afterwards."""
    return Path(path).parent.name.startswith(TEMPORARY)


def names_files(data: Any) -> bool:
    """Whether `data` is a path, or a list or tuple of paths."""
    if isinstance(data, str | os.PathLike):
        return True
    return isinstance(data, list | tuple) and all(
        isinstance(path, str | os.PathLike) for path in data
    )


def one_path(data: Any, argument: str) -> str:
    """Return a path as text.

    Raises:
        UsageError: several paths, or no path.
    """
    if isinstance(data, str | os.PathLike):
        return os.fspath(data)
    raise UsageError(
        "labelled rows are read from one file or folder",
        where=argument,
        found=type(data).__name__,
        wanted=f"a path, or the rows: {TABLES}",
        do="put the files into one folder, or give each text with its label in a mapping",
    )


def _is_parts(data: Any) -> bool:
    return isinstance(data, Mapping) and any(
        column_names(table) is not None or isinstance(table, Mapping) for table in data.values()
    )


def rows_of(data: Any, argument: str, *, texts: bool = False) -> Iterator[dict[str, Any]]:
    """Return an iterator over the rows of an object in memory, with JSON values by column name.

    Raises:
        As `as_files`.
    """
    refuse_uncomputed(data, argument)
    names = column_names(data)
    if names is None and not isinstance(data, Mapping):
        if (
            not isinstance(data, Iterable)
            or getattr(data, "ndim", 1) != 1
            or isinstance(data, bytes | bytearray)
        ):
            raise _wrong_kind(data, argument, texts)
        return _rows_of_elements(data, argument, texts)
    columns: dict[Any, Iterable[Any]] = {}
    if names is None:
        for name, values in data.items():
            if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
                raise _wrong_kind(values, f"{argument}, column {name!r}", texts)
            columns[name] = values
        names = list(columns)
    else:
        refuse_repeated(names, argument)
        columns = {name: data[name] for name in names}
    cells = {str(name): column_values(values) for name, values in columns.items()}
    refuse_ragged(cells, argument)
    for name, class_names in _class_names(data, names).items():
        cells[name] = [_named(value, class_names) for value in cells[name]]
    return (
        _plain_row(dict(zip(cells, row, strict=True)), f"{argument}, row {number}")
        for number, row in enumerate(zip(*cells.values(), strict=True), start=1)
    )


def _rows_of_elements(data: Iterable[Any], argument: str, texts: bool) -> Iterator[dict[str, Any]]:
    for number, element in enumerate(data, start=1):
        where = f"{argument}, row {number}"
        if texts and (isinstance(element, str) or hasattr(element, "as_py")):
            element = {"text": element}
        elif not isinstance(element, Mapping):
            raise _wrong_kind(data, argument, texts, f" of {type(element).__name__}")
        yield _plain_row(element, where)


def _wrong_kind(value: Any, where: str, texts: bool, details: str = "") -> DataError:
    name, shape = getattr(value, "name", None), getattr(value, "shape", None)
    details = f" of shape {tuple(shape)}" if isinstance(shape, tuple) and not details else details
    return DataError(
        "the type of the data is not supported",
        where=where,
        found=type(value).__name__ + (f" {name!r}" if isinstance(name, str) else "") + details,
        wanted=TEXTS if texts else TABLES,
        do="give texts as a column or in mappings, or write a file and give its path"
        if texts
        else "name the columns, such as for the text and for the label, or write a file and give "
        "its path",
    )


def _plain_row(row: Mapping[Any, Any], where: str) -> dict[str, Any]:
    return {str(name): _plain(value, f"{where}, column {name!r}") for name, value in row.items()}


def _plain(value: Any, where: str) -> Any:
    """Return a value as JSON has it."""
    if value is None or type(value) in (str, bool, int):
        return value
    for method in ("as_py", "tolist", "to_list"):  # scalars and arrays of pyarrow, numpy, polars
        if hasattr(value, method):
            value = getattr(value, method)()
            break
    if value is None or type(value).__name__ in MISSING:
        return None
    if isinstance(value, float) and not math.isinf(value):
        return None if math.isnan(value) else value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return _plain_row(value, where)
    if isinstance(value, list | tuple):
        return [_plain(element, where) for element in value]
    if isinstance(value, str | bool | int):
        return value
    raise DataError(
        "a value that is no text, number or list",
        where=where,
        found=f"{type(value).__name__} {value!r}"[:80],
        wanted="text, a number, true or false, a date, a list or a mapping of these",
        do="convert the column, or leave it out",
    )


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    """Write rows as JSON Lines; returns the SHA-256 of the file, in hex."""
    path.parent.mkdir(exist_ok=True)
    digest = hashlib.sha256()
    with new_file(path) as file:
        for row in rows:
            line = json.dumps(row).encode() + b"\n"
            digest.update(line)
            file.write(line)
    return digest.hexdigest()


# ------------------------------------------------------------------------------ columns
def column_names(data: Any) -> list[Any] | None:
    """Return the column names of a table; None if `data` is not a table."""
    if isinstance(data, type | Mapping) or not hasattr(data, "__getitem__"):
        return None
    for attribute in ("column_names", "columns"):  # `columns` of pyarrow are not names
        names = getattr(data, attribute, None)
        if names is None and attribute == "columns":
            names = getattr(getattr(data, "schema", None), "names", None)
        if names is not None and not callable(names) and not isinstance(names, str | Mapping):
            return list(names)
    return None


def column_values(values: Iterable[Any]) -> list[Any]:
    """Return the cells of a column as a list, of Python objects where it can convert them."""
    for method in ("to_pylist", "tolist"):
        if hasattr(values, method):
            cells = getattr(values, method)()
            return cells if isinstance(cells, list) else [cells]
    return list(values)


def refuse_uncomputed(data: Any, where: str) -> None:
    """Refuse a set, which has no order, and a table whose rows have not been computed."""
    if isinstance(data, set | frozenset):
        type_name = type(data).__name__
        raise UsageError("a set has no order", where=where, found=type_name, wanted="a list")
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):
        raise DataError(
            "the table's rows have not been computed yet",
            where=where,
            found=type(data).__name__,
            wanted="a table with its rows",
            do="collect it first: table.collect()",
        )


def refuse_repeated(names: list[Any], where: str) -> None:
    """Refuse two columns of one name."""
    if duplicates := sorted({str(name) for name in names if names.count(name) > 1}):
        message, repeated_names = "two columns of the same name", ", ".join(duplicates)
        raise DataError(message, where=where, found=repeated_names, wanted="every name once")


def refuse_ragged(columns: Mapping[str, list[Any]], where: str) -> None:
    """Refuse columns of different lengths."""
    sizes = {name: len(cells) for name, cells in columns.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(
            "columns of different lengths",
            where=where,
            found=", ".join(f"{name}: {size:,}" for name, size in sizes.items()),
            wanted="a value for each example in every column",
        )


def _class_names(data: Any, names: Iterable[Any]) -> dict[str, Callable[[int], str]]:
    """Return the class names of the columns of a `datasets.Dataset` that have such."""
    features: Any = getattr(data, "features", None)
    classes: dict[str, Callable[[int], str]] = {}
    for name in names if isinstance(features, Mapping) else ():
        feature = features.get(name)
        feature = getattr(feature, "feature", feature)  # of a list of classes, such as tags
        if isinstance(getattr(feature, "names", None), list):
            classes[str(name)] = feature.int2str
    return classes


def _named(value: Any, class_name: Callable[[int], str]) -> Any:
    if isinstance(value, list):
        return [_named(element, class_name) for element in value]
    return class_name(value) if isinstance(value, int) and value >= 0 else None
