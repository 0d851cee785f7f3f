"""Encode texts as ids of bounded length with special tokens; what is truncated is counted.

A single text loses its end, beginning or middle, or is divided into overlapping windows; of a pair
the longer text is truncated first, as with `longest_first` of transformers. Special tokens are
never removed. Truncation itself is in `learn/tasks/windows/windows.py`.
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
    """Settings of encoding texts as ids.

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
    """Return the frame with another `too_long`."""
    return replace(frame, too_long=long)


def frame_of(config: TransformerConfig, tokenizer: Tokenizer, length: int, long: Long) -> Frame:
    """Return the frame of a model of this config."""
    return Frame(tokenizer, length, config.has_segments, long, len(config.stacks) == 1)


def room(config: TransformerConfig, length: int, reserved: int = 0) -> int:
    """Return `length`, at most the number of the model's positions minus `reserved`."""
    return length if config.longest is None else min(length, config.longest - reserved)


def collation_of(
    config: TransformerConfig, tokenizer: Tokenizer, extra: Mapping[str, Any] | None = None
) -> Collation:
    """Return the collation of a model of this config; `extra`: further keys of its config.json."""
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
    """Encode examples of one or two texts.

    Args:
        labels: one row for each of `texts`.
        length: maximum number of ids of an example.
        segments: whether the model distinguishes a first text from a second.
        keep: the kept part of a long single text; for "head-and-tail", the head is at most a
            quarter, like the published 128 of 510 positions.

    Returns:
        The examples, counts of truncation, and the number of tokens cut from each example (N,).
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
    """Encode examples of one or two texts as windows of at most `length` ids; of two texts, the
    longer one is divided. Returns the windows and the index of the example of each.

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
    """Combine encoded rows and labels; an empty row becomes one padding token. `pieces`: numbers of
    consecutive rows that share a label; None: each row has its own."""
    texts = [row.tokens.tolist() or [tokenizer.pad or 0] for row in rows]
    kinds = [row.segments if len(row) else np.zeros(1, np.int64) for row in rows]
    flat = np.concatenate([np.zeros(0, np.int64), *kinds]) if segments else None
    return EncodedExamples(framed(texts), labels, flat, pieces=pieces)
