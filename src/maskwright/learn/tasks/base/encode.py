"""Encode texts as ids of bounded length with special tokens: truncated, or in overlapping windows.

    head         A A A A A . . . .       head and tail   A A . . . . A A A
    tail         . . . . A A A A A       windows         A A A A A
                                                             A A A A A
                                                                 A A A

Head and tail is Sun et al. 2019 (section 5.3.1): 128 tokens of the head and, in BERT's 512 places,
382 of the tail. A window begins `stride` tokens after the one before it, as in BERT's `doc_stride`;
in the `tokenizers` library the same word means the overlap. Of the windows that hold a token, it is
*central* in the one where it has the most context on its shorter side (Devlin's `run_squad.py`), so
every token is central once. Of a pair the longer text is truncated first, as with `longest_first`
of transformers. Special tokens are never cut, and every cut is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maskwright.base.errors import ConfigError, Finding, IncompatibleError
from maskwright.learn.tasks.base.choices import Long, LongText
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.nn.config import Patches, TransformerConfig
from maskwright.text.images.processor import ImageProcessor
from maskwright.text.tokenizer.tokenizer import Tokenizer

HEAD = 128  # tokens that head-and-tail keeps of the head
Keep = Literal["head", "tail", "head-and-tail"]
KEEPS: tuple[Keep, ...] = get_args(Keep)
Texts = Sequence[tuple[str, ...]]  # of each example one text, or two
LabelArray = NDArray[np.int64] | NDArray[np.float32]


@dataclass(frozen=True)
class Frame:
    """Settings of encoding texts as ids, or images as patches.

    Attributes:
        words: the tokenizer; None for a model that reads images.
        length: maximum number of ids.
        segments: whether the model distinguishes a first text from a second.
        long: how longer texts were read in training.
        continues: whether the model has one stack, which generates behind its input.
        too_long: how longer texts are read in prediction, if training cut them to their head.
        unread: an id that is dropped at the end of a text, as transformers takes it for padding.
        keeps_end: whether longer texts lose their beginning instead of their end.
        images: how images are read, and the patches that are made of them; None for texts.
    """

    words: Tokenizer | None
    length: int
    segments: bool
    long: Long = "head"
    continues: bool = False
    too_long: LongText = "as_trained"
    unread: int | None = None
    keeps_end: bool = False
    images: tuple[ImageProcessor, Patches] | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            IncompatibleError: the model reads images.
        """
        if self.words is None:
            raise IncompatibleError(
                "the model reads images and no text",
                where="tokenizer",
                found="an image processor",
                wanted="a model that reads texts",
                do="choose another model, or give this one images and their classes",
            )
        return self.words

    @property
    def in_windows(self) -> bool:
        """Whether longer texts are read in windows, though the model was not trained so."""
        return self.too_long == "windows" and self.long == "head"

    @property
    def refuses(self) -> bool:
        """Whether no token of a text may be left out."""
        return self.too_long == "refuse" or self.in_windows


def frame_of(
    config: TransformerConfig, reader: Tokenizer | ImageProcessor, length: int, long: Long
) -> Frame:
    """Return the frame of a model of this config."""
    one_stack, patches = len(config.stacks) == 1, config.tokens
    if isinstance(reader, Tokenizer):
        return Frame(reader, length, config.has_segments, long, one_stack)
    assert isinstance(patches, Patches)
    return Frame(None, length, False, long, one_stack, images=(reader, patches))


def room(config: TransformerConfig, length: int, reserved: int = 0) -> int:
    """Return `length`, at most the number of the model's positions minus `reserved`."""
    return length if config.longest is None else min(length, config.longest - reserved)


def collation_of(
    config: TransformerConfig,
    reader: Tokenizer | ImageProcessor,
    extra: Mapping[str, Any] | None = None,
) -> Collation:
    """Return the collation of a model of this config; `extra`: further keys of its config.json."""
    if not isinstance(reader, Tokenizer):
        return Collation(pad=0, last=False)
    start = None
    if len(config.stacks) == 2:
        start = (extra or {}).get("decoder_start_token_id")
        start = reader.pad if start is None else start
    return Collation(pad=reader.pad or 0, last=config.decoder is not None, decoder_start=start)


@dataclass(frozen=True)
class Cuts:
    """Counts of truncation.

    Attributes:
        rows, rows_cut: number of rows, and of those that lost tokens.
        tokens, tokens_cut: number of tokens, and of those that were cut.
    """

    rows: int
    rows_cut: int
    tokens: int
    tokens_cut: int

    @classmethod
    def of(cls, lengths: ArrayLike, cut: ArrayLike) -> Cuts:
        """Return the counts of rows with these `lengths`, which lost `cut` tokens (N,)."""
        before, lost = np.asarray(lengths, np.int64), np.asarray(cut, np.int64)
        return cls(len(before), int((lost > 0).sum()), int(before.sum()), int(lost.sum()))

    def findings(self, length: int, unit: str = "rows") -> tuple[Finding, ...]:
        """Return a finding that rows were truncated to `length`; empty if none was. `unit` names
        what was counted, such as rows or texts."""
        if not self.rows_cut:
            return ()
        message = (
            f"{self.rows_cut / self.rows:.1%} of {self.rows:,} {unit} truncated, "
            f"{self.tokens_cut:,} of {self.tokens:,} tokens cut, at {length} tokens"
        )
        return (Finding("truncated", message),)


# ------------------------------------------------------------------------------ tokens of a text
def truncated(ids: Sequence[int], room: int, keep: Keep, head: int = HEAD) -> list[int]:
    """Return the ids that are kept, at most `room`.

    Args:
        head: number of first ids that "head-and-tail" keeps; the rest is of the tail.
    Raises:
        ConfigError: no room.
    """
    _require_room(room)
    if len(ids) <= room:
        return list(ids)
    head_length = {"head": room, "tail": 0, "head-and-tail": head}[keep]
    return [*ids[:head_length], *ids[len(ids) - (room - head_length) :]]


def windows(length: int, room: int, stride: int) -> NDArray[np.int64]:
    """Return (first, stop) of overlapping windows (W, 2) that together cover `length` tokens, for a
    stride of 1 to `room`.

    The last window ends with the text and may be shorter. A text without tokens has one window.

    Raises:
        ConfigError: no room.
    """
    _require_room(room)
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


def inked(text: str, spans: NDArray[np.integer]) -> NDArray[np.int64]:
    """Remove whitespace at both ends from the character spans (T, 2) of tokens: a byte-level token
    `Ġcat` covers " cat", but its span here is that of "cat". If nothing is left, begin equals
    end."""
    solid = np.fromiter((not c.isspace() for c in text), bool, len(text))
    index = np.arange(len(text))
    after = np.minimum.accumulate(np.where(solid, index, len(text))[::-1])[::-1]
    before = np.maximum.accumulate(np.where(solid, index + 1, 0))
    # after[i]: the first solid character from i on; before[i]: the end of the last one before i.
    begin = np.append(after, len(text))[spans[:, 0]].astype(np.int64)
    end = np.concatenate([[0], before])[spans[:, 1]].astype(np.int64)
    return np.stack([begin, np.maximum(begin, end)], axis=1)


def _require_room(room: int) -> None:
    if room < 1:
        raise ConfigError(
            "no room for a token",
            where="length",
            found=room,
            wanted="at least 1 besides the special tokens",
        )


# ------------------------------------------------------------------------------ rows of tokens
@dataclass(frozen=True)
class WindowRow:
    """Ids of one text or pair, or of a window of it, with special tokens.

    Attributes:
        num_first: number of its tokens that are of the first text.
        cut: number of tokens of its texts that were cut.
    """

    tokens: list[int]
    segments: list[int]
    num_first: int
    cut: int

    def __len__(self) -> int:
        return len(self.tokens)


def room_of(tokenizer: Tokenizer, length: int, *, pair: bool = False) -> int:
    """Return the number of text tokens that fit into a row of `length` with special tokens."""
    return length - sum(tokenizer.frame_margins(pair))


def fit(
    tokenizer: Tokenizer, ids: Sequence[int], length: int, keep: Keep = "head", head: int = HEAD
) -> WindowRow:
    """Truncate one text to a row of at most `length` positions with special tokens.

    Raises:
        ConfigError: no room.
    """
    shortened = truncated(ids, room_of(tokenizer, length), keep, head)
    return _framed(tokenizer, shortened, None, len(ids) - len(shortened))


def fit_windows(
    tokenizer: Tokenizer, ids: Sequence[int], length: int, stride: int
) -> list[WindowRow]:
    """Divide one text into overlapping rows."""
    spans = windows(len(ids), room_of(tokenizer, length), stride)
    return [_framed(tokenizer, ids[start:stop], None, 0) for start, stop in spans.tolist()]


def fit_pair(
    tokenizer: Tokenizer,
    first_ids: Sequence[int],
    second_ids: Sequence[int],
    length: int,
    keep: Keep = "head",
) -> WindowRow:
    """Combine two texts in a row. The longer text is truncated first; if both are truncated, an odd
    remaining position goes to the longer text, of equals to the second, as in `tokenizers`."""
    room = room_of(tokenizer, length, pair=True)
    _require_room(room)
    longer_first = len(first_ids) > len(second_ids)
    a = min(len(first_ids), max((room + longer_first) // 2, room - len(second_ids)))
    b = min(len(second_ids), room - a)
    cut = len(first_ids) + len(second_ids) - a - b
    pair = truncated(first_ids, a, keep) if a else [], truncated(second_ids, b, keep) if b else []
    return _framed(tokenizer, *pair, cut)


def fit_pair_windows(
    tokenizer: Tokenizer, first_ids: Sequence[int], second_ids: Sequence[int], length: int
) -> list[WindowRow]:
    """Combine two texts in rows, each with the shorter text and a window of the longer one; windows
    overlap by half. If both texts fit there is one row, that of `fit_pair`.

    A shorter text that leaves less than a quarter of the room to the longer one is truncated; the
    number of cut tokens is in `cut` of the first row.
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
            pair = first_ids[begin:stop], second_ids[:shorter]
        else:
            pair = first_ids[:shorter], second_ids[begin:stop]
        rows.append(_framed(tokenizer, *pair, 0 if rows else cut))
    return rows


def _framed(
    tokenizer: Tokenizer, first_ids: Sequence[int], second_ids: Sequence[int] | None, cut: int
) -> WindowRow:
    tokens, segments = tokenizer.frame(list(first_ids), second_ids)
    return WindowRow(list(tokens), list(segments), len(first_ids), cut)


# ------------------------------------------------------------------------------ encoded examples
def encode(
    texts: Texts, labels: LabelArray, frame: Frame, keep: Keep = "head", **grouping: Any
) -> tuple[EncodedExamples, Cuts, NDArray[np.int64]]:
    """Encode examples of one or two texts.

    Args:
        labels, grouping: as of `examples_of`.
        keep: the kept part of a long text, of two texts "head" or "tail"; for "head-and-tail", the
            head is at most a quarter, like the published 128 of 510 positions.

    Returns:
        The examples, counts of truncation, and the number of tokens cut from each example (N,).
    """
    tokenizer, length = frame.tokenizer, frame.length
    rows, lengths = [], []
    for first_ids, *second_ids in _token_ids(tokenizer, texts):
        if second_ids:
            rows.append(fit_pair(tokenizer, first_ids, second_ids[0], length, keep))
        else:
            rows.append(fit(tokenizer, first_ids, length, keep, min(HEAD, length // 4)))
        lengths.append(len(first_ids) + sum(map(len, second_ids)))
    cut = np.array([row.cut for row in rows], np.int64)
    return examples_of(rows, labels, frame, **grouping), Cuts.of(lengths, cut), cut


def encode_windows(
    texts: Texts, frame: Frame, *, overlap: bool = True
) -> tuple[list[WindowRow], NDArray[np.int64]]:
    """Encode examples of one or two texts as windows as long as the frame; of two texts, the longer
    one is divided. Returns the windows and the index of the example of each.

    Args:
        overlap: windows of one text overlap by half; else each token is in one window.
    """
    tokenizer, length = frame.tokenizer, frame.length
    stride = max(1, length // 2 - 2) if overlap else room_of(tokenizer, length)
    windows_by_text = [
        fit_pair_windows(tokenizer, first_ids, second_ids[0], length)
        if second_ids
        else fit_windows(tokenizer, first_ids, length, stride)
        for first_ids, *second_ids in _token_ids(tokenizer, texts)
    ]
    owners = np.repeat(np.arange(len(windows_by_text)), [len(rows) for rows in windows_by_text])
    return [row for rows in windows_by_text for row in rows], owners


def _token_ids(tokenizer: Tokenizer, texts: Texts) -> list[list[list[int]]]:
    """Return the token ids of every text of each example."""
    ids = iter(tokenizer.encode_batch([text for example in texts for text in example]))
    return [[next(ids).tolist() for _ in example] for example in texts]


def examples_of(
    rows: Sequence[WindowRow], labels: LabelArray, frame: Frame, **grouping: Any
) -> EncodedExamples:
    """Combine encoded rows and labels; an empty row becomes one padding token. `grouping`: the
    `choices` or `pieces` of `EncodedExamples`, where consecutive rows share a label."""
    texts = [row.tokens or [frame.tokenizer.pad or 0] for row in rows]
    flat = [kind for row in rows for kind in row.segments or [0]]
    segments = np.array(flat, np.int64) if frame.segments else None
    return EncodedExamples(framed(texts), labels, segments, **grouping)


def pool(
    scores: NDArray[np.floating], texts: NDArray[np.integer], pooling: Literal["mean", "max"]
) -> NDArray[np.float64]:
    """Pool scores of windows (W, L) to scores of texts (N, L) by mean or maximum; `texts` (W,) has
    the index of the text of each window, in any order."""
    counts = np.bincount(texts)
    total = np.full((len(counts), scores.shape[1]), 0.0 if pooling == "mean" else -np.inf)
    if pooling == "max":
        np.maximum.at(total, texts, scores)
        return total
    np.add.at(total, texts, scores)
    return total / counts[:, None]
