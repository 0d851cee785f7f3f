"""Passages of texts: stretches of some hundred bytes that end at line breaks where there are any.

A text is cut near every `SIZE` bytes: at the nearest line break less than `SIZE` / 2 bytes away,
else behind the next blank or, without one, the next character. Of a text with more than `most`
passages so many are taken at even distances, the first and the last among them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SIZE = 256
HALF = SIZE // 2
FAR = 1 << 62


def passages_of(texts: Sequence[str], most: int) -> tuple[list[bytes], NDArray[np.int64]]:
    """The passages that are taken, and (P,) the text of each."""
    encoded = [_plain(text).encode("utf-8", "replace") for text in texts]
    joined = b"".join(encoded)
    data = np.frombuffer(joined, np.uint8)
    sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
    ends = np.cumsum(sizes)
    counts = np.maximum((sizes + HALF) // SIZE - 1, 0)  # of cuts
    owners = np.repeat(np.arange(len(texts)), counts)
    numbers = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    near = ends[owners] - sizes[owners] + numbers * SIZE
    lines = np.concatenate([[-FAR], np.flatnonzero(data == 10), [FAR]])
    at = np.searchsorted(lines, near)
    cuts = np.where(near - lines[at - 1] <= lines[at] - near, lines[at - 1], lines[at])
    for places in (np.flatnonzero(data == 32), np.flatnonzero((data & 0xC0) != 0x80) - 1):
        far = np.abs(cuts - near) >= HALF
        after = np.concatenate([places, [FAR]])
        cuts[far] = after[np.searchsorted(places, near[far])]
    begins = np.concatenate([ends - sizes, cuts + 1])
    owners = np.concatenate([np.arange(len(texts)), owners])
    order = np.lexsort((begins, owners))
    begins, owners = begins[order], owners[order]
    stops = np.concatenate([begins[1:], ends[-1:]])
    chosen = _spread(counts + 1, most)
    begins, stops, owners = begins[chosen], stops[chosen], owners[chosen]
    pairs = zip(begins.tolist(), stops.tolist(), strict=True)
    return [joined[begin:stop] for begin, stop in pairs], owners


def _spread(counts: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The numbers of the passages that are taken, ascending."""
    taken = np.minimum(counts, most)
    owners = np.repeat(np.arange(len(counts)), taken)
    numbers = np.arange(len(owners)) - np.repeat(np.cumsum(taken) - taken, taken)
    # From 0 to count - 1 in even steps, in whole numbers.
    places = numbers * (counts[owners] - 1) // np.maximum(taken[owners] - 1, 1)
    return (np.cumsum(counts) - counts)[owners] + places


def _plain(text: str) -> str:
    """As models of languages learn text: composed characters, and not all of it capitals."""
    if text.isupper():
        text = text.lower()
    return text if text.isascii() else unicodedata.normalize("NFC", text)
