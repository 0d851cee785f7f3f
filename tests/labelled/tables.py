"""Small labelled files, and what is said when they are bad."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from maskwright.base.errors import MaskwrightError
from maskwright.text.tables.files import load
from maskwright.text.tables.infer import infer
from maskwright.text.tables.layout import Dataset, Task
from maskwright.text.tables.prepare import build
from maskwright.text.tables.reading_options import TableReadingOptions
from maskwright.text.tables.rows import Row, Table
from maskwright.text.tables.survey import survey

WORDS = ["river", "stone", "lamp", "garden", "winter", "bread"]
WORDS += ["copper", "violin", "harbour", "cloud", "meadow", "paper"]


def sentence(number: int) -> str:
    """Some words; another number, another sentence."""
    picked = [WORDS[(number // len(WORDS) ** k) % len(WORDS)] for k in range(3)]
    return f"the {picked[0]} and the {picked[1]} near a {picked[2]} of {number}"


def table_of(*rows: dict[str, Any], **parts: Sequence[dict[str, Any]]) -> Table:
    """A table without files: one part, or parts by name."""
    made = {"all": rows} if rows else parts
    return Table(
        {
            name: [Row(values, f"{name}.jsonl", n) for n, values in enumerate(some, 1)]
            for name, some in made.items()
        }
    )


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """JSON Lines, packed where the name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_parquet(
    path: Path, rows: Sequence[dict[str, Any]], noted: dict[str, str] | None = None
) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    made = pyarrow.Table.from_pylist(list(rows))
    parquet.write_table(made.replace_schema_metadata(noted), path)
    return path


def understood(table: Table, **choices: Any) -> tuple[Task, Dataset]:
    task = infer(table)
    return task, build(table, task, read=TableReadingOptions(**choices))


def sizes(table: Table | Dataset) -> dict[str, int]:
    """How many rows each part has."""
    return {part: len(rows) for part, rows in table.parts.items()}


def findings(examples: Dataset) -> list[str]:
    """What the survey says."""
    return list(map(str, survey(examples).findings))


def finding_names(examples: Dataset) -> set[str]:
    return {finding.name for finding in survey(examples).findings}


def loaded(path: Path, **choices: Any) -> Dataset:
    table = load(path)
    return build(table, infer(table), read=TableReadingOptions(**choices))


def refusal(kind: type[MaskwrightError], act: Callable[[], object]) -> MaskwrightError:
    """The error that `act` raises; it says what was found and what is wanted or to be done."""
    with pytest.raises(kind) as caught:
        act()
    error = caught.value
    assert type(error) is kind
    assert error.found is not None, error
    assert error.wanted or error.do, error
    return error
