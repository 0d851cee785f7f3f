"""Masked pieces of long texts added to masked modelling: a hierarchical encoder before labels.

    row       [CLS] a a a [SEP] [CLS] b b b [SEP] [CLS] c c c [SEP]
    encoder   vector 1          vector 2          vector 3            each piece by itself
    layers    vector 1          0                 vector 3            over all pieces of the row
                                -> the tokens of piece 2, in any order

Hidden pieces are those of HIBERT (Zhang et al. 2019, arXiv:1905.06566) and SMITH (Yang et al. 2020,
arXiv:2004.12297), without a decoder and without candidates from other rows. `finetune --long
hierarchical` takes over the layers (docs/decisions/0076-masked-pieces.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from maskwright.model.objectives.base.spec import Spec, require_option
from maskwright.model.objectives.masked import Options as Masking


@dataclass(frozen=True, kw_only=True)
class Options:
    """`masking` of the tokens; pieces have `piece` tokens, of which the first and the last are
    special ones; the share `hidden_rate` of a row's pieces is hidden, at least one."""

    masking: Masking = field(default_factory=Masking)
    piece: int = 128
    hidden_rate: float = 0.25

    def __post_init__(self) -> None:
        require_option(self, "piece", 3 <= self.piece <= 1 << 16, "3 to 65536")
        require_option(self, "hidden_rate", 0.0 < self.hidden_rate < 1.0, "0 < hidden_rate < 1")


SPEC = Spec(
    rows="blocks",
    static_option="masking.static",
    token_parts=("masked", "context"),
    text_length=lambda options, length: max(1, length // options.piece) * (options.piece - 2),
    piece_length=lambda options: options.piece,
)
