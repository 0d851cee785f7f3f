"""Some positions of a batch: where the last layer is computed, if nothing else of it is asked for.

    at        flat positions (b*T + t)         0     3 │ 6     8 9         T = 5, B = 2
    places    of each row, filled up (B, Q)    0 3 0   │ 1 3 4             Q = 3

A last layer's keys and values come from all positions, so these go through it as far as that; its
queries, what follows them, and the norm above are needed only where a state is read. A loss at
15 % of the positions saves most of a layer, a class read at one place of a text nearly all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

# From this share of the positions on, choosing costs more than it saves.
WORTH = 0.75
# Products are compiled for every size that they meet on some machines (linear.py): few sizes.
STEP = 8


@dataclass(frozen=True)
class Selection:
    """Positions in rows of equal width.

    Attributes:
        places: in each row, ascending only if `at` was; a row with fewer repeats its position 0.
        back: where each position of `at` stands among the `places`, flattened.
    """

    places: Int[Tensor, "B Q"]
    back: Int[Tensor, " N"]

    @classmethod
    def of(cls, at: Int[Tensor, " N"], rows: int, length: int) -> Selection | None:
        """The positions `at` of a batch (`rows`, `length`), in any order; None: too many of them to
        be worth it."""
        if len(at) >= WORTH * rows * length:
            return None
        row = at // length
        counts = torch.bincount(row, minlength=rows)
        width = -(-max(1, int(counts.max())) // STEP) * STEP
        if width >= WORTH * length:
            return None
        order = row.argsort(stable=True)
        sorted_row = row[order]
        slot = torch.arange(len(at), device=at.device) - (counts.cumsum(0) - counts)[sorted_row]
        back = torch.empty_like(at)
        back[order] = sorted_row * width + slot
        places = at.new_zeros(rows * width)
        places[back] = at % length
        return cls(places.view(rows, width), back)

    def take(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B Q D"]:
        """What stands at the places."""
        rows, length, width = x.shape
        first = torch.arange(rows, device=x.device)[:, None] * length
        flat = x.reshape(-1, width).index_select(0, (self.places + first).reshape(-1))
        return flat.view(rows, -1, width)

    def pick(self, x: Float[Tensor, "B Q D"]) -> Float[Tensor, "N D"]:
        """What was computed at the places, in the order of `at`."""
        return x.reshape(-1, x.shape[-1]).index_select(0, self.back)
