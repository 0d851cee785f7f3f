"""Masked spans, with the span-boundary objective (SpanBERT, Joshi et al. 2019, 3.1-3.2).

    … the  [MASK] [MASK] [MASK]  was …        the second hole from the states of `the` and `was`
       s-1   s              e    e+1           and the place 1 in the span

Spans that touch count as one, so that the states at the boundaries are always those of tokens that
can be seen. A span without such a token on each side, in its own document, has no boundary loss.
The head is two layers with GELU and layer normalisation, scored by the product's token table and a
bias of its own; it is trained, and not part of the product.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from maskwright.base import config
from maskwright.model.objectives.base.spec import Spec
from maskwright.model.objectives.masked import Options as Masking

SPEC = Spec(rows="documents", static_option="masking.static", token_parts=("masked",))


@dataclass(frozen=True, kw_only=True)
class Options:
    """At most `max_pair_targets` tokens of a span, its first ones, are predicted from its
    boundaries; `position_width` is the width of the vectors that say which."""

    masking: Masking = field(default_factory=lambda: Masking(unit="span"))
    max_pair_targets: int = 20
    position_width: int = 200
    boundary_weight: float = 1.0

    def __post_init__(self) -> None:
        config.require("boundary_weight", self.boundary_weight, 0.0, 1e6)
        for name in ("max_pair_targets", "position_width"):
            config.require(name, getattr(self, name), 1, 1 << 16)
