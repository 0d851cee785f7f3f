"""Masked and causal modelling on the same weights (GPT-BERT, Charpentier and Samuel 2024, 2).

    row of the masked kind    reads both ways, tokens masked      states predict their next token,
    row of the causal kind    reads to the left only              masked kind: where it is masked

Both kinds predict one place ahead ("masked next-token prediction"), so one head serves both, and
the saved encoder can be scored either way: as it is, or with a causal mask. A row's kind is drawn
from its key. The published runs gave one process in sixteen to the causal kind and averaged the
processes' mean losses; here the two means are weighed by the same shares. (On held-out text all
targets count alike.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from maskwright.model.objectives.base.spec import Spec, require_option
from maskwright.model.objectives.masked import Options as Masking

SPEC = Spec(
    rows="documents",
    prediction_offset=1,
    writes=True,
    static_option="masking.static",
    token_parts=("masked", "causal"),
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """`causal_share` of the rows is read from left to right; the others are masked. `z_loss` is the
    weight of the squared log-sum-exp of the scores (1e-4 in the published runs)."""

    causal_share: float = 1 / 16
    z_loss: float = 0.0
    masking: Masking = field(default_factory=Masking)

    def __post_init__(self) -> None:
        require_option(
            self,
            "causal_share",
            0.0 < self.causal_share < 1.0,
            "0 < causal_share < 1",
            do="for one kind of row only, choose `masked` or `causal`",
        )
        require_option(self, "z_loss", 0.0 <= self.z_loss <= 1.0, "0 to 1")
