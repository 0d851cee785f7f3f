"""Sentence-order prediction added to masked modelling (ALBERT, Lan et al. 2019, 3.1 and 4.1).

Both parts of a pair are consecutive in one document; for half of the pairs they stand in the wrong
order, so that topic alone gives nothing away. All else is next-sentence prediction; the masks are
n-grams of one to three words.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from maskwright.model.objectives import sentence_pair
from maskwright.model.objectives.base.spec import Spec
from maskwright.model.objectives.masked import Options as Masking

SPEC = Spec(rows="swapped-pairs", static_option="masking.static", token_parts=("masked",))
MODULES = "sentence_pair"


@dataclass(frozen=True, kw_only=True)
class Options(sentence_pair.Options):
    """As of `sentence-pair`, with n-grams for masks."""

    masking: Masking = field(default_factory=lambda: Masking(unit="ngram"))
