"""Prefix tuning (Li & Liang 2021, arXiv:2101.00190): keys and values of positions that are not
there, in front of those of every layer, for every query to see.

    keys, values  =  [prefix of this layer | those of the text]          positions and masks of the
                                                                         text stay as they are

All attention of all stacks has its own: an encoder's, a decoder's, and what a decoder reads of its
memory. The prefix comes after rotary positions, has no learned distance, and is seen through every
window. With `hidden` it is made by a small network over one table of vectors (section 4.3), which
is trained and can be dropped afterwards.

A fresh prefix cannot leave a model's outputs as they were: softmax gives each key a share. What
holds instead: the prefix made of the keys and values of earlier tokens does what those tokens in
front would do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from maskwright.model.adapters.base.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Prefix(Settings):
    """`length` positions; `hidden` is the width of the network that makes them, None: none does."""

    silent: ClassVar[bool] = False

    kind: Literal["prefix"] = "prefix"
    length: int = 20
    hidden: int | None = None

    def __post_init__(self) -> None:
        self.require("length", 1 <= self.length <= 1 << 16, "1 to 65,536")
        self.require("hidden", self.hidden is None or 1 <= self.hidden <= 1 << 16, "1 to 65,536")


SETTINGS = Prefix
