"""How a model reads texts: how much of one, and what becomes of one that is longer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from maskwright.inference.encoded import Collation
from maskwright.nn.config import TransformerConfig
from maskwright.tasks.parts.choices import Long, LongText
from maskwright.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Frame:
    """How texts become ids: at most `length` of them, `segments` where the model tells a first text
    from a second, what becomes of a whole text that is too `long`, whether a model of one stack
    `continues` what it has read when it writes, what becomes of long texts where the model was
    trained with no way of its own (`too_long`), and the id that is not read at the end of a whole
    text: transformers takes it for padding (`unread`)."""

    tokenizer: Tokenizer
    length: int
    segments: bool
    long: Long = "head"
    continues: bool = False
    too_long: LongText = "as_trained"
    unread: int | None = None

    @property
    def in_windows(self) -> bool:
        """Whether what is too long is read in windows, though the model was not trained so."""
        return self.too_long == "windows" and self.long == "head"

    @property
    def refuses(self) -> bool:
        """Whether no token of a text may be left out."""
        return self.too_long == "refuse" or self.in_windows


def asking(frame: Frame, long: LongText) -> Frame:
    """The same frame, asked so of texts that are too long."""
    return replace(frame, too_long=long)


def frame_of(config: TransformerConfig, tokenizer: Tokenizer, length: int, long: Long) -> Frame:
    """How texts become ids of the model."""
    return Frame(tokenizer, length, config.has_segments, long, len(config.stacks) == 1)


def room(config: TransformerConfig, wanted: int, taken: int = 0) -> int:
    """`wanted` tokens of a text, or what the model has positions for besides the `taken` ones."""
    return wanted if config.longest is None else min(wanted, config.longest - taken)


def collation_of(
    config: TransformerConfig, tokenizer: Tokenizer, extra: Mapping[str, Any] | None = None
) -> Collation:
    """How the model reads texts; `extra` are keys of its config.json."""
    start = None
    if len(config.stacks) == 2:
        start = (extra or {}).get("decoder_start_token_id")
        start = tokenizer.pad if start is None else start
    return Collation(pad=tokenizer.pad or 0, last=config.decoder is not None, decoder_start=start)
