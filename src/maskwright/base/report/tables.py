"""Tables of results in `results.json` of a run, for terminal and page.

A table is `{"title", "head", "rows", "note"}`; `own_first` highlights its first row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maskwright.base.errors import DataError, shorten
from maskwright.base.report.document import write
from maskwright.base.storage.files import lock_beside
from maskwright.base.storage.lock import Lock
from maskwright.base.storage.strict_json import parse_object
from maskwright.base.terminal import harmless

NAME = "results.json"
PATIENCE = 30.0  # seconds for another process to add its tables
LARGEST = 64 << 20
Table = dict[str, Any]


def for_terminal(table: Table) -> str:
    """Format a table as text; each cell is one line."""
    rows = [[harmless(str(cell)) for cell in row] for row in (table["head"], *table["rows"])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table["head"]))]
    lines = ["  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([table["title"], *(f"  {line.rstrip()}" for line in lines), table["note"]])


def read(folder: Path) -> list[Table]:
    """Read the tables of the run in `folder`.

    Raises:
        DataError: `results.json` cannot be read.
    """
    return _checked(_content(folder).get("tables"), folder / NAME)


def add(folder: Path, tables: Sequence[Table]) -> None:
    """Add tables to the run in `folder`; tables with the same title are replaced.

    Raises:
        DataError: `results.json` is there and cannot be read.
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    with Lock(lock_beside(folder / NAME), passing=True, patience=PATIENCE):
        named = {t.get("title"): t for t in [*read(folder), *tables]}
        content = {**_content(folder), "tables": list(named.values())}
        write(folder / NAME, json.dumps(content, indent=2) + "\n")


def _content(folder: Path) -> dict[str, Any]:
    path = folder / NAME
    if not path.is_file():
        return {}
    return parse_object(path.read_bytes(), path, error=DataError, largest=LARGEST)


def _checked(tables: Any, where: Path) -> list[Table]:
    """Return `tables` if it is a list of tables.

    Raises:
        DataError: naming the first invalid one.
    """
    if tables is None:
        return []
    for number, table in enumerate(tables if isinstance(tables, list) else [tables]):
        fits = isinstance(table, dict) and _is_table(table)
        if not fits or not isinstance(tables, list):
            raise DataError(
                "not a table of results",
                where=f"{where}: tables.{number}",
                found=shorten(repr(table)),
                wanted='{"title", "head", "rows", "note"}',
                do="remove the file; the same evaluations write it again",
            )
    return list(tables)


def _is_table(plain: dict[str, Any]) -> bool:
    head, rows = plain.get("head", []), plain.get("rows", [])
    return (
        all(isinstance(plain.get(name, ""), str) for name in ("title", "note"))
        and isinstance(head, list)
        and isinstance(rows, list)
        and all(isinstance(cell, str) for cell in head)
        and all(isinstance(row, list) and len(row) == len(head) for row in rows)
        and all(isinstance(cell, str | int | float) for row in rows for cell in row)
    )
