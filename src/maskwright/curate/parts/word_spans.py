"""Cutting runs of words out of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.curate.parts.batch import Batch


@dataclass(frozen=True)
class Spans:
    """Runs of words: the number of the text in its batch, the first word and the one behind the
    last, both counted from the text's first. Each (R,) int64."""

    texts: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """What is left of the texts of a batch, and what was taken.

    Attributes:
        texts: (B,) the texts now.
        spans: those that were taken.
        characters: (R, 2) where in the text each span stood, first character and one behind.
    """

    texts: Sequence[str]
    spans: Spans
    characters: NDArray[np.int64]


def merged(spans: Spans) -> Spans:
    """The same words in spans that neither overlap nor touch, in order."""
    if not len(spans.texts):
        return spans
    order = np.lexsort((spans.begins, spans.texts))
    texts, begins, ends = spans.texts[order], spans.begins[order], spans.ends[order]
    # Texts apart from each other on one line of numbers, so that one running maximum serves all.
    numbers = np.cumsum(np.concatenate([[False], texts[1:] != texts[:-1]]))
    base = numbers * (int(ends.max()) + 2)
    reach = np.maximum.accumulate(base + ends)
    opening = np.concatenate([[True], base[1:] + begins[1:] > reach[:-1]])
    first = np.flatnonzero(opening)
    last = np.append(first[1:], len(texts)) - 1
    return Spans(texts[first], begins[first], reach[last] - base[first])


def cut(batch: Batch, spans: Spans) -> Cut:
    """The texts of a batch without the words of merged spans.

    What stands behind the last word goes with it, as far as the next word that stays: its full
    stop, its blank; of line breaks there, the larger gap of the two sides stays.
    """
    words = batch.words
    first = words.starts[spans.texts] + spans.begins
    last = words.starts[spans.texts] + spans.ends - 1
    characters = np.stack([words.begins[first], words.ends[last]], axis=1).astype(np.int64)
    pieces: dict[int, list[str]] = {}  # of each text what stays, up to the span before
    ends: dict[int, int] = {}  # of each text where that span's gap ends
    for row, text in enumerate(spans.texts.tolist()):
        whole = batch.texts[text]
        begin, behind = characters[row].tolist()
        following = int(last[row]) + 1
        end = int(words.begins[following]) if following < words.starts[text + 1] else len(whole)
        before = whole[ends.get(text, 0) : begin]
        stripped, removed = before.rstrip(), whole[behind:end]
        removed_gap = removed[len(removed.rstrip()) :]
        if removed_gap.count("\n") > before.count("\n", len(stripped)):
            before = stripped + removed_gap
        pieces.setdefault(text, []).append(before)
        ends[text] = end
    texts = list(batch.texts)
    for text, parts in pieces.items():
        texts[text] = "".join(parts) + texts[text][ends[text] :]
    return Cut(texts, spans, characters)
