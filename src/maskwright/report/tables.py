"""Tables of texts, for a terminal and for a page, kept beside a run in `results.json`.

A table is `{"title", "head", "rows", "note"}`, all of texts; `own_first` sets its first row apart.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maskwright.errors import DataError
from maskwright.report import markup
from maskwright.report.document import write
from maskwright.report.svg import escape

NAME = "results.json"
Table = dict[str, Any]


def for_terminal(table: Table) -> str:
    """The title, the columns side by side, and the note."""
    rows = [table["head"], *table["rows"]]
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(table["head"]))]
    lines = ["  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([table["title"], *(f"  {line.rstrip()}" for line in lines), table["note"]])


def for_page(table: Table) -> str:
    """The table as HTML without its title; empty where it has no rows."""
    head = [str(cell) for cell in table.get("head", [])]
    rows = [[str(cell) for cell in row] for row in table.get("rows", [])]
    note = f'<p class="note">{escape(table["note"])}</p>' if table.get("note") else ""
    if not rows:
        return ""
    made = markup.table(head, rows)
    return (f'<div class="first">{made}</div>' if table.get("own_first") else made) + note


def read(folder: Path) -> list[Table]:
    """The tables beside the run in `folder`.

    Raises:
        DataError: `results.json` cannot be read.
    """
    found = _content(folder).get("tables")
    return [t for t in found if isinstance(t, dict)] if isinstance(found, list) else []


def add(folder: Path, tables: Sequence[Table]) -> None:
    """Put `tables` beside the run in `folder`, each in the place of one with the same title.

    Raises:
        DataError: `results.json` is there and cannot be read.
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    named = {t.get("title"): t for t in [*read(folder), *tables]}
    content = {**_content(folder), "tables": list(named.values())}
    write(folder / NAME, json.dumps(content, indent=2) + "\n")


def _content(folder: Path) -> dict[str, Any]:
    path = folder / NAME
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise DataError("results.json cannot be read", where=path, found=error) from error
    return content if isinstance(content, dict) else {}
