"""Character spans of tokens without the whitespace that some vocabularies include.

A byte-level token `Ġcat` covers " cat", but its span here is that of "cat". A token of whitespace
alone has an empty span.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def inked(text: str, spans: NDArray[np.integer]) -> NDArray[np.int64]:
    """Remove whitespace at both ends from the character spans (T, 2) of tokens.

    If nothing is left, begin equals end.
    """
    solid = np.fromiter((not c.isspace() for c in text), bool, len(text))
    index = np.arange(len(text))
    after = np.minimum.accumulate(np.where(solid, index, len(text))[::-1])[::-1]
    before = np.maximum.accumulate(np.where(solid, index + 1, 0))
    # after[i]: the first solid character from i on; before[i]: the end of the last one before i.
    begin = np.append(after, len(text))[spans[:, 0]].astype(np.int64)
    end = np.concatenate([[0], before])[spans[:, 1]].astype(np.int64)
    return np.stack([begin, np.maximum(begin, end)], axis=1)


def covering(spans: NDArray[np.int64], begin: int, end: int) -> tuple[int, int] | None:
    """Return (first, stop) of the tokens with characters in `begin` to `end`; None if none has.

    All tokens are searched, since normalisation may reorder some.
    """
    ink = spans[:, 0] < spans[:, 1]
    (covered,) = np.nonzero(ink & (spans[:, 0] < end) & (spans[:, 1] > begin))
    return (int(covered[0]), int(covered[-1]) + 1) if len(covered) else None
