"""What it takes to draw the weights of a model of base size, beside PyTorch's own truncated normal.

    python -m benchmarks.draws

The two take turns; the ratio is the median over the rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from maskwright.model.families.base.family import family
from maskwright.model.nn.initialise import build

DEVIATION, ROUNDS = 0.02, 5


def seconds(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def main() -> None:
    config = family("bert").config({"model_type": "bert", "vocab_size": 30_522})
    shapes = [p.shape for p in build(config).parameters()]

    def theirs() -> None:
        for shape in shapes:
            nn.init.trunc_normal_(torch.empty(shape), 0.0, DEVIATION, -2 * DEVIATION, 2 * DEVIATION)

    turns = [(seconds(lambda: build(config)), seconds(theirs)) for _ in range(ROUNDS)]
    ours, other = (statistics.median(side) for side in zip(*turns, strict=True))
    ratio = statistics.median(b / a for a, b in turns)
    count = sum(shape.numel() for shape in shapes)
    print(f"{count:,} weights: ours {ours:.2f} s, trunc_normal_ {other:.2f} s, ratio {ratio:.1f}")


if __name__ == "__main__":
    main()
