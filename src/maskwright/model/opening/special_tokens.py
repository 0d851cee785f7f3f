"""The special tokens of a tokenizer, as models and objectives need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maskwright.text.images.processor import ImageProcessor
from maskwright.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from maskwright.model.objectives.base.objective import Vocabulary


def vocabulary(reader: Tokenizer | ImageProcessor | None) -> Vocabulary:
    """Return the sizes and ids of the tokenizer that objectives use, or the image processor."""
    from maskwright.model.objectives.base.objective import Vocabulary

    if not isinstance(reader, Tokenizer):
        return Vocabulary(size=0, mask=None, special=(), images=reader)
    tokenizer = reader
    return Vocabulary(
        size=tokenizer.vocabulary_size,
        mask=tokenizer.mask,
        special=tuple(sorted(tokenizer.special_ids)),
        pad=0 if tokenizer.pad is None else tokenizer.pad,
        begin=tokenizer.classify if tokenizer.begin is None else tokenizer.begin,
        end=end_of_text(tokenizer),
        unknown=tokenizer.unknown,
        sentinels=tokenizer.sentinels,
    )


def opening(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the special tokens before a text."""
    return tokenizer.frame([])[0][: tokenizer.frame_margins()[0]]


def end_of_text(tokenizer: Tokenizer) -> int | None:
    """Return the id of the token after a text; None if the tokenizer has none."""
    return tokenizer.separator if tokenizer.end is None else tokenizer.end
