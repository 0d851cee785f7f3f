"""Replaced-token detection (ELECTRA, Clark et al. 2020, section 3).

    rows -> masked -> generator -> drawn tokens in the holes -> discriminator: original or not?

A small generator learns masked modelling; the tokens it draws fill the holes; the discriminator,
the product, says of every position whether its token was put there. A drawn token that happens to
be the original counts as original. No gradient flows from one network to the other, but they share
the tables of tokens, positions and segments and the norm behind them; the generator's weights are
kept with the state of training.

As in the original code, chosen positions become [MASK] (85 %) or stay, the losses weigh 1 and 50,
and the discriminator judges special tokens too. That code draws positions with replacement, so that
some of the 15 % fall together; `masking.with_replacement` does so as well. What it then did beyond
that is not repeated: averaging the ids drawn for one position, and counting its loss twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from maskwright.base import config
from maskwright.model.objectives.base.spec import Spec, require_option
from maskwright.model.objectives.masked import Options as Masking

SPEC = Spec(
    rows="documents",
    static_option="masking.static",
    token_parts=("masked",),
    scored_by="its generator",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """`generator_size` is the generator's share of the discriminator's width, heads and inner
    width, `generator_layers` of its layers; the weights are those of the two losses."""

    generator_size: float = 0.25
    generator_layers: float = 1.0
    generator_weight: float = 1.0
    discriminator_weight: float = 50.0
    masking: Masking = field(default_factory=lambda: Masking(mask_rate=0.85, random_rate=0.0))

    def __post_init__(self) -> None:
        for name in ("generator_weight", "discriminator_weight"):
            config.require(name, getattr(self, name), 0.0, 1e6)
        for name in ("generator_size", "generator_layers"):
            require_option(self, name, 0.0 < getattr(self, name) <= 1.0, "0 < share <= 1")
