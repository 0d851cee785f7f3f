"""What becomes of bad rows: the first stops the reading, or they are left out, counted and listed,
up to a share."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from maskwright.corpus.reading import Reading
from maskwright.errors import DataError
from maskwright.labelled.formats.rows import Row
from maskwright.storage.one_file import new_text


def usable(
    rows: Sequence[Row], read: Callable[[Row], Any], reading: Reading
) -> tuple[list[Any], list[tuple[Row, DataError]]]:
    """What `read` makes of the rows, and those it refused, by the policy."""
    results: list[Any] = []
    bad: list[tuple[Row, DataError]] = []
    for row in rows:
        try:
            results.append(read(row))
        except DataError as error:
            if reading.on_bad == "strict":
                raise
            bad.append((row, error))
    if len(bad) > reading.max_bad_fraction * len(rows):
        first = bad[0][1]
        enough = next(n / 100 for n in range(1, 101) if len(bad) <= n / 100 * len(rows))
        raise DataError(
            "too many bad rows",
            where=rows[0].file,
            found=f"{len(bad):,} of {len(rows):,} rows; the first: {first.what} ({first.where})",
            wanted=f"at most {reading.max_bad_fraction:.3g} of the rows (max_bad_fraction)",
            do="correct the rows"
            + (
                "" if len(bad) == len(rows) else f", or raise it (--read max_bad_fraction={enough})"
            ),
        )
    return results, bad


def list_rejected(bad: Sequence[tuple[Row, DataError]], path: Path | None) -> None:
    """Add rows to the list of rejects that the reading of the file began."""
    if path is None or not bad:
        return
    earlier = path.read_text(encoding="utf-8")
    with new_text(path) as file:
        file.write(earlier)
        for row, error in bad:
            entry = {
                "file": row.file,
                row.unit: row.number,
                "reason": error.what,
                "found": error.found,
                "wanted": error.wanted,
            }
            file.write(json.dumps(entry) + "\n")
