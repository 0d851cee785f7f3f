"""GloVe: products of vectors are log counts of neighbours (Pennington et al. 2014, section 3).

    J = sum over cells of f(X) (w · w~ + b + b~ - log X)²        f(X) = min(1, (X / x_max)^alpha)

X counts the neighbours of each word in the whole training text, a neighbour at a distance d as 1/d.
A step draws cells of X evenly at random. What is saved is w + w~ (section 4.2).

The held-out figure is in nats per word: log X is log p(neighbour | word) up to a constant of the
word, so that a softmax over the products and b~ predicts neighbours. Cells that are empty have no
part in the cost, so the softmax gives them too much, and the figure may stay above the unigram
line; it compares runs of this objective.
"""

from __future__ import annotations

from dataclasses import dataclass

from maskwright.model.objectives.base.spec import Spec, require_option


@dataclass(frozen=True, kw_only=True)
class Options:
    """`window` words on each side are neighbours; `cells` cells are drawn for each position of a
    row."""

    window: int = 10
    x_max: float = 10.0
    alpha: float = 0.75
    cells: int = 8

    def __post_init__(self) -> None:
        require_option(self, "window", 1 <= self.window <= 1000, "1 to 1000")
        require_option(self, "x_max", 0.0 < self.x_max <= 1e9, "above 0")
        require_option(self, "alpha", 0.0 < self.alpha <= 1.0, "0 < alpha <= 1")
        require_option(self, "cells", 1 <= self.cells <= 10_000, "1 to 10,000")


SPEC = Spec(rows="documents")
