"""Truncation of long texts, and their division into overlapping windows.

    head         A A A A A . . . .       head and tail   A A . . . . A A A
    tail         . . . . A A A A A       windows         A A A A A
                                                             A A A A A
                                                                 A A A

Head and tail is Sun et al. 2019 (section 5.3.1): 128 tokens of the head and, in BERT's 512 places,
382 of the tail. A window begins `stride` tokens after the one before it, as in BERT's `doc_stride`;
in the `tokenizers` library the same word means the overlap. Of the windows that hold a token, it is
*central* in the one where it has the most context on its shorter side (Devlin's `run_squad.py`), so
every token is central once. Special tokens are never cut, and every cut is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import ConfigError, DataError, IncompatibleError, near
from maskwright.base.findings import Finding
from maskwright.text.tokenizer.tokenizer import Tokenizer

HEAD = 128  # tokens that head-and-tail keeps of the head
Keep = Literal["head", "tail", "head-and-tail"]
KEEPS = ("head", "tail", "head-and-tail")
Pooling = Literal["mean", "max"]


@dataclass(frozen=True)
class Cuts:
    """Counts of truncation; they can be added with `+`.

    Attributes:
        rows, rows_cut: number of rows, and of those that lost tokens.
        tokens, tokens_cut: number of tokens, and of those that were cut.
    """

    rows: int = 0
    rows_cut: int = 0
    tokens: int = 0
    tokens_cut: int = 0

    @classmethod
    def of(cls, before: int, after: int) -> Cuts:
        """Return the counts of one row with this number of tokens before and after."""
        return cls(1, int(after < before), before, before - after)

    def __add__(self, addend: Cuts) -> Cuts:
        return Cuts(
            self.rows + addend.rows,
            self.rows_cut + addend.rows_cut,
            self.tokens + addend.tokens,
            self.tokens_cut + addend.tokens_cut,
        )

    def findings(self, length: int, unit: str = "rows") -> tuple[Finding, ...]:
        """Return a finding that rows were truncated to `length`; empty if none was."""
        if not self.rows_cut:
            return ()
        return (Finding("truncated", f"{self.render(unit)}, at {length} tokens"),)

    def render(self, unit: str = "rows") -> str:
        """Describe the counts; `unit` names what was counted, such as rows or texts."""
        share = self.rows_cut / self.rows if self.rows else 0.0
        return (
            f"{share:.1%} of {self.rows:,} {unit} truncated, "
            f"{self.tokens_cut:,} of {self.tokens:,} tokens cut"
        )


@dataclass(frozen=True)
class WindowRow:
    """One framed row.

    Attributes:
        token_indices: for each position the index of its token in the first text, or -1.
        cut: number of tokens of its texts that were cut.
    """

    tokens: NDArray[np.int64]
    segments: NDArray[np.int64]
    token_indices: NDArray[np.int64]
    cut: int

    def __len__(self) -> int:
        return len(self.tokens)


# ------------------------------------------------------------------------------ what is kept
def kept_indices(length: int, room: int, keep: Keep, head: int = HEAD) -> NDArray[np.int64]:
    """Return the ascending indices of the tokens that are kept, at most `room` of `length`.

    Args:
        head: number of first tokens that "head-and-tail" keeps; the rest is of the tail.
    Raises:
        ConfigError: an unknown truncation, no room, or a head without room for a tail.
    """
    if keep not in KEEPS:
        raise ConfigError("no such truncation", found=repr(keep), wanted=near(keep, KEEPS))
    _require_room(room)
    if keep == "head-and-tail" and not 0 < head < room:
        raise ConfigError(
            "the head leaves no room for the tail",
            found=f"{head} of {room}",
            wanted=f"1 to {room - 1}",
        )
    if length <= room:
        return np.arange(length)
    head_length = {"head": room, "tail": 0, "head-and-tail": head}[keep]
    return np.concatenate(
        [np.arange(head_length), np.arange(length - (room - head_length), length)]
    )


def windows(length: int, room: int, stride: int) -> NDArray[np.int64]:
    """Return (first, stop) of overlapping windows (W, 2) that together cover `length` tokens.

    The last window ends with the text and may be shorter. A text without tokens has one window.

    Raises:
        ConfigError: no room, or a stride that would skip tokens.
    """
    _require_room(room)
    if not 1 <= stride <= room:
        raise ConfigError(
            "a stride that would leave tokens out or never move",
            where="stride",
            found=stride,
            wanted=f"1 to {room}",
        )
    count = 1 + max(0, -(-(length - room) // stride))
    start = np.arange(count) * stride
    return np.stack([start, np.minimum(start + room, length)], axis=1)


def central(spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of the window of `spans` (W, 2) in which each token is central, the first of
    equals."""
    length = int(spans[-1, 1])
    owner = np.zeros(length, np.int64)
    best = np.full(length, -1, np.int64)
    for number, (start, stop) in enumerate(spans.tolist()):
        position = np.arange(start, stop)
        context = np.minimum(position - start, stop - 1 - position)
        better = context > best[start:stop]
        owner[start:stop][better] = number
        best[start:stop] = np.maximum(best[start:stop], context)
    return owner


def _require_room(room: int) -> None:
    if room < 1:
        raise ConfigError(
            "no room for a token",
            where="length",
            found=room,
            wanted="at least 1 besides the special tokens",
        )


# ------------------------------------------------------------------------------ framed rows
def room_of(tokenizer: Tokenizer, length: int, *, pair: bool = False) -> int:
    """Return the number of text tokens that fit into a row of `length` with special tokens."""
    return length - sum(tokenizer.frame_margins(pair))


def fit(
    tokenizer: Tokenizer, ids: Sequence[int], length: int, keep: Keep = "head", head: int = HEAD
) -> WindowRow:
    """Truncate one text to a row of at most `length` positions with special tokens.

    Raises:
        ConfigError: an unknown truncation, or no room.
    """
    chosen = kept_indices(len(ids), room_of(tokenizer, length), keep, head)
    return _framed(tokenizer, ids, chosen, None, len(ids) - len(chosen))


def fit_windows(
    tokenizer: Tokenizer, ids: Sequence[int], length: int, stride: int
) -> tuple[list[WindowRow], NDArray[np.int64]]:
    """Divide one text into overlapping rows; also return the row in which each token is central."""
    spans = windows(len(ids), room_of(tokenizer, length), stride)
    rows = [
        _framed(tokenizer, ids, np.arange(start, stop), None, 0) for start, stop in spans.tolist()
    ]
    return rows, central(spans)


def fit_pair(
    tokenizer: Tokenizer, first_ids: Sequence[int], second_ids: Sequence[int], length: int
) -> WindowRow:
    """Combine two texts in a row. The longer text is truncated first; if both are truncated, an odd
    remaining position goes to the longer text, of equals to the second, as in `tokenizers`.

    `token_indices` numbers the tokens of the first text only.
    """
    room = room_of(tokenizer, length, pair=True)
    _require_room(room)
    longer_first = len(first_ids) > len(second_ids)
    a = min(len(first_ids), max((room + longer_first) // 2, room - len(second_ids)))
    b = min(len(second_ids), room - a)
    return _framed(
        tokenizer, first_ids, np.arange(a), second_ids[:b], len(first_ids) + len(second_ids) - a - b
    )


def fit_pair_windows(
    tokenizer: Tokenizer, first_ids: Sequence[int], second_ids: Sequence[int], length: int
) -> list[WindowRow]:
    """Combine two texts in rows, each with the shorter text and a window of the longer one; windows
    overlap by half. If both texts fit there is one row, that of `fit_pair`.

    A shorter text that leaves less than a quarter of the room to the longer one is truncated; the
    number of cut tokens is in `cut` of the first row.

    `token_indices` numbers the tokens of the first text only.
    """
    room = room_of(tokenizer, length, pair=True)
    _require_room(room)
    if len(first_ids) + len(second_ids) <= room:
        return [fit_pair(tokenizer, first_ids, second_ids, length)]
    shorter = min(len(first_ids), len(second_ids), room - max(1, room // 4))
    longer_room = room - shorter
    rows: list[WindowRow] = []
    cut = min(len(first_ids), len(second_ids)) - shorter
    spans = windows(max(len(first_ids), len(second_ids)), longer_room, max(1, longer_room // 2))
    for begin, stop in spans.tolist():
        if len(first_ids) > len(second_ids):
            chosen, beside = np.arange(begin, stop), second_ids[:shorter]
        else:
            chosen, beside = np.arange(shorter), second_ids[begin:stop]
        rows.append(_framed(tokenizer, first_ids, chosen, beside, 0 if rows else cut))
    return rows


def _framed(
    tokenizer: Tokenizer,
    ids: Sequence[int],
    chosen: NDArray[np.int64],
    second: Sequence[int] | None,
    cut: int,
) -> WindowRow:
    kept_ids = np.asarray(ids, dtype=np.int64)[chosen]
    tokens, segments = tokenizer.frame(kept_ids.tolist(), second)
    token_indices = np.full(len(tokens), -1, np.int64)
    before = tokenizer.frame_margins(second is not None)[0]
    token_indices[before : before + len(chosen)] = chosen
    return WindowRow(np.array(tokens, np.int64), np.array(segments, np.int64), token_indices, cut)


def padded(rows: Sequence[NDArray[np.int64]], fill: int) -> NDArray[np.int64]:
    """Pad rows at the end to an array (B, T), where T is the length of the longest row."""
    width = max((len(row) for row in rows), default=0)
    filled = np.full((len(rows), width), fill, np.int64)
    for number, row in enumerate(rows):
        filled[number, : len(row)] = row
    return filled


# ------------------------------------------------------------------------------ back to texts
def pool(
    scores: NDArray[np.floating], texts: NDArray[np.integer], pooling: Pooling
) -> NDArray[np.float64]:
    """Pool scores of windows (W, L) to scores of texts (N, L) by mean or maximum.

    Args:
        texts: (W,) index of the text of each window, 0 … N - 1, in any order.
    Raises:
        ConfigError: the pooling is unknown.
        IncompatibleError: lengths of the arrays differ.  DataError: a text has no window.
    """
    if pooling not in ("mean", "max"):
        raise ConfigError(
            "no such pooling", found=repr(pooling), wanted=near(pooling, ("mean", "max"))
        )
    if texts.shape != scores.shape[:1]:
        raise IncompatibleError(
            "scores and texts are not of the same windows", found=f"{len(scores)} and {len(texts)}"
        )
    counts = np.bincount(texts)
    if not counts.all():
        raise DataError("a text without windows", found=f"text {int(np.argmin(counts))}")
    total = np.full((len(counts), scores.shape[1]), 0.0 if pooling == "mean" else -np.inf)
    if pooling == "max":
        np.maximum.at(total, texts, scores)
        return total
    np.add.at(total, texts, scores)
    return total / counts[:, None]
