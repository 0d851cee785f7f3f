"""Text that a tokenizer does not know, which would go by in silence: a model cannot tell one such
token from another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maskwright.tokenizer.tokenizer import Tokenizer

MUCH = 0.01  # of the tokens


def unknown_note(tokenizer: Tokenizer, *ids: NDArray[np.int64] | Sequence[int]) -> str:
    """A sentence about what of `ids` is unknown; empty where it is little. Frames do not count."""
    if tokenizer.unknown is None:
        return ""
    frames = np.array([i for i in tokenizer.special_ids if i != tokenizer.unknown], np.int64)
    unknown = total = 0
    for some in ids:
        found = np.asarray(some, np.int64)
        unknown += int((found == tokenizer.unknown).sum())
        total += int((~np.isin(found, frames)).sum())
    if unknown <= MUCH * total:
        return ""
    return (
        f"{unknown / total:.1%} of {total:,} tokens unknown to the model's tokenizer, so the model "
        "cannot tell them apart (a model whose tokenizer was learned from such texts can, and one "
        "of the kind byte-bpe knows every text)"
    )
