"""Where the time of a masked-language step goes, and how much of the matrix units it reaches.

    python -m benchmarks.where --model mini --dropout 0.0

The peak is what one large bfloat16 (or float32) product reaches on this machine in the same run,
before and after the steps; the step's operations are those of its matrix products, forward and
backward (model/device/step_cost.py). Shares come from PyTorch's profiler, which slows the step a
little: they are shares of its own total.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.pretrain import BATCH, LENGTH, SHAPES, VOCABULARY, our_worker
from benchmarks.turns import Turn
from maskwright.model.device import machine
from maskwright.model.device.step_cost import cost

WARM_UP, COUNTED = 3, 8
# The first that fits: words in an operation's name, and whether the vocabulary is in its shapes.
GROUPS: tuple[tuple[str, tuple[str, ...], bool | None], ...] = (
    ("products of the vocabulary head", ("::mm", "::addmm", "::mv", "::addmv"), True),
    ("products of the body", ("::mm", "::addmm", "_linear_pointwise", "::linear"), None),
    ("products of attention", ("::bmm", "::baddbmm"), None),
    ("attention in one call", ("attention",), None),
    ("optimizer, norm and copies of the weights", ("adam", "vector_norm"), None),
    ("the rest of the vocabulary loss", ("::",), True),
    ("norms", ("layer_norm", "rms_norm"), None),
    ("activations", ("gelu", "relu", "silu", "tanh", "clamp_min", "threshold"), None),
    ("softmax", ("softmax",), None),
    ("copies and layouts", ("::copy_", "::cat", "::contiguous", "::clone", "::fill_"), None),
    ("sums of bias gradients", ("::sum",), None),
)
OTHER = "everything else (residuals, dropout, lookups, Python)"


def peak(dtype: torch.dtype, device: torch.device, size: int = 4096) -> float:
    """Operations per second of the best of some products of size × 1024 × size."""
    left = torch.randn(size, 1024, device=device).to(dtype)
    right = torch.randn(1024, size, device=device).to(dtype)
    best = 0.0
    for _ in range(20):
        begun = time.perf_counter()
        torch.mm(left, right)
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = max(best, 2 * 1024 * size * size / (time.perf_counter() - begun))
    return best


def group(event: Any, vocabulary: int) -> str:
    """The group of a profiled operation."""
    name = str(event.key).lower()
    shapes = [size for shape in event.input_shapes for size in shape if isinstance(size, int)]
    for title, words, of_vocabulary in GROUPS:
        fits = of_vocabulary is None or of_vocabulary == (vocabulary in shapes)
        if fits and any(word in name for word in words):
            return title
    return OTHER


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--model", choices=SHAPES, default="mini")
    read.add_argument("--dropout", type=float, default=0.0)
    read.add_argument("--precision", default="auto")
    a = read.parse_args()
    a.batch, a.lengths, a.steps = BATCH[a.model], "full", WARM_UP + 2 * COUNTED
    chosen = machine.choose(a.precision)
    before = peak(chosen.compute, chosen.device)
    profiler = profile(activities=[ProfilerActivity.CPU], record_shapes=True)

    class Watched(Turn):
        """Nobody to take turns with; the second half of the steps is profiled."""

        def __init__(self) -> None:
            super().__init__()
            self.ends: list[float] = []

        def begin(self) -> None:
            pass

        def end(self, loss: float) -> None:
            self.ends.append(time.perf_counter())
            if len(self.ends) == WARM_UP + COUNTED:
                profiler.start()

    turn = Watched()
    network = our_worker(a, turn).product
    profiler.stop()
    best = max(before, peak(chosen.compute, chosen.device))
    ends = turn.ends[WARM_UP - 1 : WARM_UP + COUNTED]
    median = statistics.median(later - earlier for earlier, later in itertools.pairwise(ends))
    tokens = a.batch * LENGTH
    operations = tokens * cost(network, LENGTH).training("encoder", 0.15)
    print(
        f"BERT-{a.model}, {chosen.name}, dropout {a.dropout}: {median * 1e3:,.0f} ms, "
        f"{tokens / median:,.0f} tokens/s, {operations / median / 1e12:.2f} of "
        f"{best / 1e12:.2f} TFLOP/s = {operations / median / best:.0%} of the measured peak"
    )
    totals: dict[str, float] = {}
    for event in profiler.key_averages(group_by_input_shape=True):
        title = group(event, VOCABULARY)
        totals[title] = totals.get(title, 0.0) + event.self_cpu_time_total
    print("\n| part | share |\n|---|---|")
    for title, total in sorted(totals.items(), key=lambda item: -item[1]):
        print(f"| {title} | {total / sum(totals.values()):.0%} |")


if __name__ == "__main__":
    main()
