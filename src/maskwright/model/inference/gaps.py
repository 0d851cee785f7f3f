"""Gaps in a text, written as T5 sentinels: `The cat <extra_id_0> on the <extra_id_1>.`

Only this module treats sentinels in a text as special tokens; elsewhere they are ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from maskwright.base.errors import UsageError
from maskwright.text.tokenizer.file.roles import SENTINEL
from maskwright.text.tokenizer.tokenizer import Tokenizer

WRITTEN = re.compile(f"({SENTINEL.pattern.replace('(', '(?:', 1)})")


@dataclass(frozen=True)
class TextWithGaps:
    """A text with gaps.

    Attributes:
        signs: the sentinels in order, as strings.
        ids: token ids of the text with sentinels, without other special tokens.
    """

    text: str
    signs: tuple[str, ...]
    ids: list[int]

    def filled(self, sign: str, span: str) -> str:
        """Return the text with the gap `sign` filled and the others kept."""
        return self.text.replace(sign, span)


def gapped(tokenizer: Tokenizer, text: str) -> TextWithGaps | None:
    """Find the gaps in a text; None if it has none, or the tokenizer has no sentinels.

    Raises:
        UsageError: a sentinel that the tokenizer does not have, or one twice.
    """
    pieces = WRITTEN.split(text) if tokenizer.sentinels else [text]
    signs = tuple(pieces[1::2])
    if not signs:
        return None
    sentinel_ids = {tokenizer.vocabulary[i]: i for i in tokenizer.sentinels}
    for number, sign in enumerate(signs):
        if sign not in sentinel_ids or sign in signs[:number]:
            raise UsageError(
                "no such gap" if sign not in sentinel_ids else "one gap twice",
                where=text[:60],
                found=sign,
                wanted=f"each of {tokenizer.vocabulary[tokenizer.sentinels[0]]} … "
                f"{tokenizer.vocabulary[tokenizer.sentinels[-1]]} at most once",
            )
    ids: list[int] = []
    for number, piece in enumerate(pieces):
        if number % 2:
            ids.append(sentinel_ids[piece])
            continue
        # Tokens include the space before a word, so the gap stands for that space, too.
        piece = piece.removesuffix(" ") if number < len(pieces) - 1 else piece
        ids += tokenizer.encode(piece) if piece else []
    return TextWithGaps(text, signs, ids)


def spelled(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Decode ids to text with visible sentinels."""
    pieces: list[str] = []
    run: list[int] = []
    for token_id in [*ids, -1]:
        if token_id >= 0 and token_id not in tokenizer.sentinels:
            run.append(token_id)
            continue
        pieces.append(tokenizer.decode(run).strip() if run else "")
        pieces.append(tokenizer.vocabulary[token_id] if token_id >= 0 else "")
        run = []
    return " ".join(filter(None, pieces))
