"""Texts of a task as framed ids of a bounded length; what had to be cut is counted.

A single text loses its end, its beginning or its middle, or becomes several that overlap; of a pair
the longer text is cut first, as transformers' `longest_first` does. Special tokens always
stay. The cutting itself is `learn/tasks/windows/windows.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.learn.tasks.base.choices import Long, LongText
from maskwright.learn.tasks.windows.windows import (
    HEAD,
    Cuts,
    Keep,
    WindowRow,
    fit,
    fit_pair,
    fit_pair_windows,
    fit_windows,
    room_of,
)
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.nn.config import TransformerConfig
from maskwright.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Frame:
    """How texts become ids.

    Attributes:
        length: maximum number of ids.
        segments: whether the model distinguishes a first text from a second.
        long: how longer texts were read in training.
        continues: whether the model has one stack, which generates behind its input.
        too_long: how longer texts are read in prediction, if training cut them to their head.
        unread: an id that is dropped at the end of a text, as transformers takes it for padding.
    """

    tokenizer: Tokenizer
    length: int
    segments: bool
    long: Long = "head"
    continues: bool = False
    too_long: LongText = "as_trained"
    unread: int | None = None

    @property
    def in_windows(self) -> bool:
        """Whether longer texts are read in windows, though the model was not trained so."""
        return self.too_long == "windows" and self.long == "head"

    @property
    def refuses(self) -> bool:
        """Whether no token of a text may be left out."""
        return self.too_long == "refuse" or self.in_windows


def asking(frame: Frame, long: LongText) -> Frame:
    """The frame with another `too_long`."""
    return replace(frame, too_long=long)


def frame_of(config: TransformerConfig, tokenizer: Tokenizer, length: int, long: Long) -> Frame:
    """The frame of a model of this config."""
    return Frame(tokenizer, length, config.has_segments, long, len(config.stacks) == 1)


def room(config: TransformerConfig, length: int, reserved: int = 0) -> int:
    """`length` tokens, or as many as the model has positions for besides `reserved` ones."""
    return length if config.longest is None else min(length, config.longest - reserved)


def collation_of(
    config: TransformerConfig, tokenizer: Tokenizer, extra: Mapping[str, Any] | None = None
) -> Collation:
    """The collation of a model of this config; `extra` are keys of its config.json."""
    start = None
    if len(config.stacks) == 2:
        start = (extra or {}).get("decoder_start_token_id")
        start = tokenizer.pad if start is None else start
    return Collation(pad=tokenizer.pad or 0, last=config.decoder is not None, decoder_start=start)


Texts = Sequence[tuple[str, ...]]


def encode(
    texts: Texts,
    labels: NDArray[np.int64] | NDArray[np.float32],
    tokenizer: Tokenizer,
    length: int,
    *,
    segments: bool = False,
    keep: Keep = "head",
) -> tuple[EncodedExamples, Cuts, NDArray[np.int64]]:
    """Texts, one or two to an example, as `EncodedExamples`, what was cut of them, and (N,) their
    numbers of tokens.

    Args:
        labels: one row for each of `texts`.
        length: the most ids that an example may have.
        segments: whether the model tells first and second text apart.
        keep: what stays of a single text that is too long; of its head a quarter at most stays
            with "head-and-tail", as the published 128 of 510 places.
    """
    encoded_texts = iter(
        tokenizer.encode_batch([text_of_row for row in texts for text_of_row in row])
    )
    rows, cuts = [], Cuts()
    for text in texts:
        first_ids, *second_ids = [next(encoded_texts).tolist() for _ in text]
        if second_ids:
            row = fit_pair(tokenizer, first_ids, second_ids[0], length)
        else:
            row = fit(tokenizer, first_ids, length, keep, min(HEAD, length // 4))
        full_length = len(first_ids) + sum(map(len, second_ids))
        cuts += Cuts.of(full_length, full_length - row.cut)
        rows.append(row)
    cut = np.array([row.cut for row in rows], np.int64)
    return examples_of(rows, labels, tokenizer, segments), cuts, cut


def encode_windows(
    texts: Texts, tokenizer: Tokenizer, length: int, *, overlap: bool = True
) -> tuple[list[WindowRow], NDArray[np.int64]]:
    """Texts, one or two to an example, as rows of at most `length` ids, several where they are too
    long, and the number of the example that each is of. Of two texts the longer one is in windows.

    Args:
        overlap: windows of one text overlap by half; else each token is in one window.
    """
    encoded_texts = iter(
        tokenizer.encode_batch([text_of_row for row in texts for text_of_row in row])
    )
    windows_by_text = []
    for text in texts:
        first_ids, *second_ids = [next(encoded_texts).tolist() for _ in text]
        if second_ids:
            windows_by_text.append(fit_pair_windows(tokenizer, first_ids, second_ids[0], length))
            continue
        stride = max(1, length // 2 - 2) if overlap else room_of(tokenizer, length)
        windows_by_text.append(fit_windows(tokenizer, first_ids, length, stride)[0])
    counts = [len(rows) for rows in windows_by_text]
    return [row for rows in windows_by_text for row in rows], np.repeat(
        np.arange(len(windows_by_text)), counts
    )


def examples_of(
    rows: Sequence[WindowRow],
    labels: NDArray[np.int64] | NDArray[np.float32],
    tokenizer: Tokenizer,
    segments: bool,
    pieces: NDArray[np.int64] | None = None,
) -> EncodedExamples:
    """Framed rows beside their labels; a row of nothing is padding, so that it is one at all. With
    `pieces`, so many rows after each other have one label together."""
    texts = [row.tokens.tolist() or [tokenizer.pad or 0] for row in rows]
    kinds = [row.segments if len(row) else np.zeros(1, np.int64) for row in rows]
    flat = np.concatenate([np.zeros(0, np.int64), *kinds]) if segments else None
    return EncodedExamples(framed(texts), labels, flat, pieces=pieces)
