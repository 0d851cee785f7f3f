"""Where tokens stand in their text, without the blanks that some vocabularies put into them.

A byte-level token `Ġcat` covers " cat"; what it says of the text is "cat". A token of blanks alone
says nothing and covers nothing here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def inked(text: str, spans: NDArray[np.integer]) -> NDArray[np.int64]:
    """(begin, end) of each token's characters (T, 2) without white space at either end.

    Where nothing is left, begin equals end.
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
    """(first, stop) of the tokens that hold a character from `begin` to `end`; None for none.

    Looked for in all tokens, since normalisation may reorder a few.
    """
    ink = spans[:, 0] < spans[:, 1]
    (covered,) = np.nonzero(ink & (spans[:, 0] < end) & (spans[:, 1] > begin))
    return (int(covered[0]), int(covered[-1]) + 1) if len(covered) else None
