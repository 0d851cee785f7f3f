"""Masked-image modelling: the pixels of hidden patches are predicted from the patches that are seen
(SimMIM, Xie et al. 2022, arXiv:2111.09886, sections 3.1 to 3.4; BEiT, arXiv:2106.08254, predicts
codes of patches in their place).

Hidden patches are drawn anew each time, single ones, all equally likely. The loss is the mean
absolute error of their values, which are normalised as the image processor says; that of
transformers adds 1e-5 to the number of hidden pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

from maskwright.model.objectives.base.spec import Spec, require_option

SPEC = Spec(rows="images", predicts="pixels")


@dataclass(frozen=True, kw_only=True)
class Options:
    """`rate` is the share of the patches of an image that is hidden."""

    rate: float = 0.6

    def __post_init__(self) -> None:
        require_option(self, "rate", 0.0 < self.rate < 1.0, "0 < rate < 1")
