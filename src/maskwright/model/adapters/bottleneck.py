"""Bottleneck adapters: down to a few units, an activation, up again, beside a skip connection.

    h + up(activation(down(h)))         h is what half a layer gives to the residual

After each half of a layer, cross-attention's too (Houlsby et al. 2019, arXiv:1902.00751, section
2.1), or only after the feed-forward half (Pfeiffer et al. 2020, arXiv:2005.00247). `up` begins at
zero: the papers begin near the identity, here it is the identity. Norms stay as they are, where
Houlsby et al. train them, too. The adapter stands before the dropout of the residual branch. It
cannot be folded into weights, for what it does is not linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from maskwright.model.adapters.base.settings import Settings
from maskwright.model.nn.config import Activation


@dataclass(frozen=True, kw_only=True)
class Bottleneck(Settings):
    """`width` units inside; after every half of a layer, or only after the feed-forward half."""

    kind: Literal["bottleneck"] = "bottleneck"
    width: int = 64
    activation: Activation = "gelu"
    after: Literal["both", "feed_forward"] = "both"

    def __post_init__(self) -> None:
        self.require("width", 1 <= self.width <= 1 << 16, "1 to 65,536")


SETTINGS = Bottleneck
