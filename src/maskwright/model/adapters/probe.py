"""A linear probe (Alain & Bengio 2016, arXiv:1610.01644): one projection from what the model says
of a text, a token or a place to the scores, and nothing between them; the model stands still.

Whatever a family has below its scores (a pooler, a dense layer) is left out of the model for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from maskwright.model.adapters.base.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Probe(Settings):
    """No settings; the heads are those that the caller names."""

    # There is nothing to fold: the weights are the model's own.
    merges: ClassVar[bool] = True
    head_alone: ClassVar[bool] = True
    linear: ClassVar[bool] = True

    kind: Literal["probe"] = "probe"


SETTINGS = Probe
