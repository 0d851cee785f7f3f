"""One pass of a step over a shard: a function of batches, and the table that it gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maskwright.curate.engine.segment import PASS_FILE, read_known, rows_about, rows_of
from maskwright.curate.engine.tables import read_batches, write_tables
from maskwright.curate.parts.step import Pass
from maskwright.storage.commit import commit_once


def run_pass(task: dict[str, Any], function: Pass) -> dict[str, Any]:
    """Send a function over the batches of a shard, of which only the documents are read that
    something is known about; found again if it is there.

    Args:
        task: `shard` (a path), `known` (a path, or ""), `out` (the folder to make).
    """
    out = Path(task["out"])
    if not out.is_dir():
        known = read_known(task["known"])
        tables = []
        for batch in read_batches(Path(task["shard"]), rows_of(known)):
            about = rows_about(known, batch)
            if about is None or about.num_rows:
                tables.append(function(batch, about))
        commit_once(out, lambda stage: write_tables(stage, PASS_FILE, tables))
    return {}
