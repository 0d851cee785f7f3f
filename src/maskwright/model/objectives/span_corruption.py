"""Span corruption: gaps in the text, and what stood in them (T5, arXiv:1910.10683, 3.1.4).

    text      The cat sat on the mat and purred loudly .
    encoder   The <X> sat on the <Y> and purred loudly . </s>
    decoder   <X> cat <Y> mat </s>

Lengths are exact, as in the reference code and unlike in the paper's figure 2: of n tokens
round(n · rate) are hidden, in round(hidden / mean_span) spans, at least one of each; both texts are
closed by the end token, and no sentinel closes the targets. Hidden and visible tokens are each cut
at random into that many pieces, all ways equally likely, which take turns, a visible one first and
a hidden one last. The store is cut into blocks so long that the encoder reads `rows.length`: 568
tokens for 512, with 114 targets. A block is one text whatever documents it holds, as in the paper;
packed documents, on the other hand, are corrupted each by itself and do not see each other.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np

from maskwright.model.objectives.base.spec import Spec, Start, require_option


@dataclass(frozen=True, kw_only=True)
class Options:
    """`rate` of the tokens is hidden, in spans of `mean_span` on average; `start` begins the
    decoder."""

    rate: float = 0.15
    mean_span: float = 3.0
    start: Start = "pad"

    def __post_init__(self) -> None:
        require_option(self, "rate", 0.0 < self.rate < 1.0, "0 < rate < 1")
        require_option(self, "mean_span", 1.0 <= self.mean_span <= 1000.0, "1 to 1000")


def noise(options: Options, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(S,) hidden tokens and (S,) spans of texts of these lengths; a single token is not hidden."""
    most = np.maximum(lengths - 1, 0)
    hidden = np.clip(np.rint(lengths * options.rate), 1, most).astype(np.int64)
    spans = np.maximum(1, np.rint(hidden / options.mean_span))
    spans = np.minimum(spans, np.maximum(1, np.minimum(hidden, lengths - hidden)))
    return hidden, np.where(lengths > 0, spans, 0).astype(np.int64)


def lengths_of(options: Options, length: int) -> tuple[int, int]:
    """What the encoder and the decoder read of a text of `length` tokens (2 or more)."""
    hidden, spans = (int(n[0]) for n in noise(options, np.array([length])))
    return length - hidden + spans + 1, hidden + spans + 1


def text_length(options: Options, length: int) -> int:
    """The longest text of which the encoder reads at most `length` tokens."""
    low = max(2, length - 2)
    high = low + 1
    while lengths_of(options, high)[0] <= length:
        low, high = high, 2 * high
    between = range(low + 1, high)
    return low + bisect.bisect_right(between, length, key=lambda t: lengths_of(options, t)[0])


SPEC = Spec(
    rows="blocks",
    trains_decoder=True,
    usual_for="sentinels",
    token_parts=("span-corruption",),
    text_length=text_length,
    lengths=lengths_of,
)
