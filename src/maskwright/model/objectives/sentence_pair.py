"""Next-sentence prediction, alone or added to masked modelling (BERT, Devlin et al. 2018, 3.1).

Half of the pairs are neighbours in one document, half have a second part from another document. The
pooled first position decides. With `masked` set the loss is the sum of both, as BERT was trained;
later work found the pair task weak (RoBERTa, Liu et al. 2019, 4.2), so the sum is a choice here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from maskwright.model.objectives.base.spec import Spec
from maskwright.model.objectives.masked import Options as Masking

SPEC = Spec(rows="pairs", static_option="masking.static", token_parts=("masked",))


@dataclass(frozen=True, kw_only=True)
class Options:
    """`masked` adds masked modelling with the settings `masking`."""

    masked: bool = True
    masking: Masking = field(default_factory=Masking)
