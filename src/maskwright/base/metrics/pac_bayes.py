"""A PAC-Bayes bound on the error of a randomised predictor (McAllester 1999, doi
10.1145/307400.307435), in the form of Maurer (2004, arXiv:cs/0411099).

For a prior P over weights that does not depend on the n training rows, with probability 1 - δ over
these rows, for all posteriors Q:

    kl(q̂ ‖ q) ≤ (KL(Q ‖ P) + ln(2 √n / δ)) / n

q̂ and q are the errors, on training rows and on new rows of the same distribution, of a predictor
whose weights are drawn from Q for every prediction. P is Gaussian around the initial weights and Q
around the trained ones, both with the deviation σ in every direction, so that KL(Q ‖ P) is the
squared distance of the weights divided by 2 σ². σ is selected from a grid, for which δ is divided
by the size of the grid (union bound). q̂ is itself bounded by the errors of some draws (Chernoff's
bound in the form of kl; Langford & Caruana 2002). Each of both bounds takes half of δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import rel_entr

DEVIATIONS = tuple(10.0 ** (step / 4) for step in range(8, -17, -1))  # 100 to 0.0001
DELTA = 0.05
TRIALS, DRAWS = 8, 100  # to select a deviation, and for the selected one
VACUOUS = 0.99  # a bound from here on is given as 1


@dataclass(frozen=True)
class PacBayesBound:
    """The bound.

    Attributes:
        value: upper bound on the error on new rows with probability 1 - `DELTA`; 1 if it is
            vacuous.
        error: mean error of the draws on training rows; None if no deviation is worth a draw.
        deviation, divergence: the selected σ, and KL(Q ‖ P) in nats.
    """

    value: float
    error: float | None
    deviation: float
    divergence: float
    rows: int


def kl_inverse(share: float, limit: float) -> float:
    """Return the largest q with kl(share ‖ q) ≤ `limit`, for Bernoulli distributions."""
    low, high = share, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        divergence = rel_entr(share, middle) + rel_entr(1 - share, 1 - middle)
        low, high = (middle, high) if divergence <= limit else (low, middle)
    return high


def bound_error(
    squared_distance: float, rows: int, error_of: Callable[[float, int], float]
) -> PacBayesBound:
    """Bound the error of the predictor whose weights are drawn around the trained ones.

    Args:
        squared_distance: of all trained weights from their initial values.
        rows: number of training rows.
        error_of: returns an unbiased estimate (0 to 1) of the error on training rows of a new draw
            of weights; its arguments are the deviation and the number of the draw.
    """
    confidence = math.log(2 * math.sqrt(rows) * len(DEVIATIONS) / (DELTA / 2))

    def divergence(deviation: float) -> float:
        return squared_distance / (2 * deviation**2)

    def bound(error: float, deviation: float) -> float:
        return kl_inverse(error, (divergence(deviation) + confidence) / rows)

    def mean_error(deviation: float, draws: range) -> float:
        return math.fsum(error_of(deviation, draw) for draw in draws) / len(draws)

    lowest, selected = VACUOUS, DEVIATIONS[-1]
    for deviation in DEVIATIONS:
        if bound(0.0, deviation) >= lowest:  # as will be that of every smaller deviation
            break
        value = bound(mean_error(deviation, range(TRIALS)), deviation)
        if value < lowest:
            lowest, selected = value, deviation
    error, value = None, 1.0
    if lowest < VACUOUS:
        error = mean_error(selected, range(TRIALS, TRIALS + DRAWS))
        value = bound(kl_inverse(error, math.log(2 / DELTA) / DRAWS), selected)
    value = value if value < VACUOUS else 1.0
    return PacBayesBound(value, error, selected, divergence(selected), rows)
