"""bfloat16: a copy of the model folder with weights of half the size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from maskwright.base.errors import Note

if TYPE_CHECKING:
    from maskwright.model.opening.folders import Model
    from maskwright.ship.export.target import Report

SUMMARY = "the model's own folder with weights in bfloat16, and what that changes"


@dataclass(frozen=True, kw_only=True)
class Options:
    """There is nothing to choose."""


def export(model: Model, out: Path, options: Options, note: Note) -> Report:
    import torch

    from maskwright.ship.export import folder

    content = folder.content_of(model, torch.bfloat16)
    return folder.write(content, out, target="safetensors-bf16", source=model, note=note)
