"""A folder for the browser: the pages of `maskwright explore`, which run the model themselves.

index.html  app.js  pages/  …   for any file server
data/                           models, tokenizers and the data of the pages
index.html alone                with single_file: opens by a double click, without a server
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from maskwright.base.config import require
from maskwright.base.findings import Note

if TYPE_CHECKING:
    from maskwright.model.opening.model import Model
    from maskwright.ship.export.target import Report

SUMMARY = "pages that compute the model in the browser, as a folder or as one file"


@dataclass(frozen=True, kw_only=True)
class Options:
    """How the pages are written.

    Attributes:
        single_file: one index.html with everything in it, which opens without a server
        bfloat16: weights at half the size, which changes scores a little; how much is printed
        checkpoints: of a run, how many are shown at most, the last among them
        sample: the text that the pages begin with
    """

    single_file: bool = False
    bfloat16: bool = False
    checkpoints: int = 6
    sample: str | None = None

    def __post_init__(self) -> None:
        require("checkpoints", self.checkpoints, 1, 100)


def export(model: Model, out: Path, options: Options, note: Note) -> Report:
    from maskwright.ship.export.web_folder import export_web

    return export_web(model, out, **vars(options))
