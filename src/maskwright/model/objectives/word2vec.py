"""word2vec with negative sampling (Mikolov et al. 2013, arXiv:1301.3781 and 1310.4546).

`skip-gram`: the vector of each word in the window predicts the word in the middle; `cbow`: their
mean does. Windows are shrunk evenly at random, frequent words are left out at random before windows
are formed, and neither crosses the edge of a document. The loss of a prediction is that of one word
that was there and `negative` drawn ones that were not, in nats; a drawn word that happens to be the
right one counts for nothing, as in the authors' program.

The held-out figure is in nats per word: at the optimum a score is log p(word | context) minus the
log probability of being drawn (Levy & Goldberg 2014, section 3), up to a constant, so that a
softmax over their sum predicts words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from maskwright.model.objectives.base.spec import Spec, require_option


@dataclass(frozen=True, kw_only=True)
class Options:
    """`window` words on each side, at most; `negative` drawn words, in proportion to their count to
    the `power`; a word of the relative frequency f is kept with probability sqrt(s/f) + s/f, where
    s is the `sample` (0: all words are kept)."""

    kind: Literal["skip-gram", "cbow"] = "skip-gram"
    window: int = 5
    negative: int = 5
    power: float = 0.75
    sample: float = 1e-3

    def __post_init__(self) -> None:
        require_option(self, "window", 1 <= self.window <= 1000, "1 to 1000")
        require_option(self, "negative", 1 <= self.negative <= 1000, "1 to 1000")
        require_option(self, "power", 0.0 < self.power <= 1.0, "0 < power <= 1")
        require_option(self, "sample", 0.0 <= self.sample < 1.0, "0 <= sample < 1")


SPEC = Spec(rows="documents")
