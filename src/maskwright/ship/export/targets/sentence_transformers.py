"""sentence-transformers: the classic layout, which its releases 5 and 6 and TEI read.

modules.json    Transformer, 1_Pooling, 2_Normalize: no module with code of its own
1_Pooling/      the pooling as boolean keys
config_sentence_transformers.json    prompts by name
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from maskwright.base.config import require
from maskwright.base.findings import Note

if TYPE_CHECKING:
    from maskwright.model.opening.model import Model
    from maskwright.ship.export.target import Report

SUMMARY = "a folder of sentence-transformers, in the layout that its old and new releases read"
Pooling = Literal["own", "mean", "cls", "max", "lasttoken"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How texts become vectors. A model that was trained to make some has its own pooling.

    Attributes:
        pooling: mean, cls, max or lasttoken (own: that of the model, or mean where it has none)
        text_length: tokens of a text at most (0: as the model reads)
        query_prompt: what is put before a query
        document_prompt: what is put before a document
    """

    pooling: Pooling = "own"
    text_length: int = 0
    query_prompt: str = ""
    document_prompt: str = ""

    def __post_init__(self) -> None:
        require("text_length", self.text_length, 0, 1 << 20)


def export(model: Model, out: Path, options: Options, note: Note) -> Report:
    from maskwright.ship.export.sentence_transformers_folder import export_sentence_transformers

    prompts = {"query": options.query_prompt, "document": options.document_prompt}
    return export_sentence_transformers(
        model,
        out,
        note,
        pooling=None if options.pooling == "own" else options.pooling,
        length=options.text_length or None,
        prompts={name: text for name, text in prompts.items() if text},
    )
