"""A model with its adapter in its weights: merged in float32, and cast only then."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from maskwright.base.findings import Note

if TYPE_CHECKING:
    from maskwright.model.opening.model import Model
    from maskwright.ship.export.target import Report

SUMMARY = "an adapter merged into the weights of its base, and how far that moves them"
Weights = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How the merged weights are written.

    Attributes:
        weights: float32 or bfloat16
    """

    weights: Weights = "float32"


def export(model: Model, out: Path, options: Options, note: Note) -> Report:
    from maskwright.ship.export.merged_folder import write_merged

    return write_merged(model, out, options.weights, note)
