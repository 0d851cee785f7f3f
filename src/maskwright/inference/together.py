"""What several askers want of one network, or of networks that share their weights, read together.

scores_of_all([Asked(topics, …), Asked(moods, …)])   ->  scores of each, in order
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.inference.encoded import Collation, Examples
from maskwright.inference.scores import Scored, scores


@dataclass(frozen=True)
class Asked:
    """What one asker wants.

    Attributes:
        objective: what gives the scores; its `product` is a prepared network.
        examples: what is asked about.
        collation: how the network reads texts.
    """

    objective: Scored
    examples: Examples
    collation: Collation


def scores_of_all(requests: Sequence[Asked]) -> list[NDArray[np.float32]]:
    """`scores` of each, in order."""
    return [scores(each.objective, each.examples, each.collation) for each in requests]
