"""The pieces of a stream put together, row by row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from maskwright.model.inference.stream import Piece, Reason, stream


@dataclass
class Written:
    """A row that ended.

    Attributes:
        ids: all new tokens, those of a string that stopped it included, the end token not.
        text: the new text, up to the string that stopped it.
        finished: why it ended.
    """

    ids: list[int] = field(default_factory=list)
    text: str = ""
    finished: Reason = "length"

    def add(self, piece: Piece) -> None:
        self.text += piece.text
        if piece.id is not None:
            self.ids.append(piece.id)
        if piece.finished is not None:
            self.finished = piece.finished


def written(model: Any, prompts: Any, *arguments: Any, **options: Any) -> list[Written]:
    """All that each row gets; see `stream`."""
    rows = [Written() for _ in prompts]
    for piece in stream(model, prompts, *arguments, **options):
        rows[piece.row].add(piece)
    return rows
