"""text-embeddings-inference: whether it can serve the folder as it lies, and what it would compute
otherwise. Nothing is written; what it could not load is an error."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from maskwright.base.findings import Note

if TYPE_CHECKING:
    from maskwright.model.opening.model import Model
    from maskwright.ship.export.target import Report

SUMMARY = "whether text-embeddings-inference can serve the folder, and what it computes otherwise"
WRITES = False


@dataclass(frozen=True, kw_only=True)
class Options:
    """There is nothing to choose."""


def export(model: Model, out: Path | None, options: Options, note: Note) -> Report:
    from maskwright.ship.export.tei import check

    return check(model, note)
