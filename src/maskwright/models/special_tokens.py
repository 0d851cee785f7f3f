"""What a model is told of its tokenizer's special tokens."""

from __future__ import annotations

from maskwright.objectives.parts.objective import Vocabulary
from maskwright.tokenizer.tokenizer import Tokenizer


def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """What objectives may know of the tokenizer."""
    return Vocabulary(
        size=tokenizer.vocabulary_size,
        mask=tokenizer.mask,
        special=tuple(sorted(tokenizer.special_ids)),
        pad=0 if tokenizer.pad is None else tokenizer.pad,
        begin=tokenizer.classify if tokenizer.begin is None else tokenizer.begin,
        end=tokenizer.separator if tokenizer.end is None else tokenizer.end,
        sentinels=tokenizer.sentinels,
    )


def opening(tokenizer: Tokenizer) -> list[int]:
    """The special tokens before a text in its frame."""
    return tokenizer.frame([])[0][: tokenizer.frame_margins()[0]]
