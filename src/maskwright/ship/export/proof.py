"""That what was exported computes what the model computes: it is read again, run, and compared.

    compare(graph, run, …)  ->  Compared      the largest difference of any output over shapes that
                                              include one row, one token and the longest text; the
                                              share of equal answers; milliseconds at three shapes

The reference is the graph's own module in float32, which is the network itself. `require_equal`
refuses what differs by more than rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.base.errors import CheckpointError
from maskwright.base.report.tables import Table
from maskwright.model.graph.graphs import Graph, Port

# The most that float32 may differ from float32, beside the largest number of the output where that
# is above 1.
TOLERANCE = 1e-4
# (rows, tokens) at which outputs are compared, and at which time is measured; the longest that is
# compared where a model reads texts of any length.
COMPARED = ((1, 1), (3, 2), (3, 17))
TIMED = ((1, 16), (1, 128), (8, 64))
LONGEST = 1024
PAST, MEMORY = 5, 7
REPEATS, SECONDS = 15, 1.5  # of a timing, at most
Run = Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]]


@dataclass(frozen=True)
class Compared:
    """What came of a comparison of one graph.

    Attributes:
        difference: the largest absolute difference of any output.
        relative: the same beside the largest absolute number of that output, or 1.
        agreement: the share of rows or positions whose largest score is the same one.
        milliseconds, of_torch: the median by shape, of what was exported and of the module.
        bytes: of its files.
    """

    graph: str
    difference: float
    relative: float
    agreement: float
    milliseconds: Mapping[str, float]
    of_torch: Mapping[str, float]
    bytes: int

    def plain(self) -> dict[str, Any]:
        """As values of JSON."""
        return {**vars(self), "milliseconds": dict(self.milliseconds)} | {
            "of_torch": dict(self.of_torch)
        }


def compare(graph: Graph, run: Run, num_bytes: int, *, timed: bool = True) -> Compared:
    """Compare what `run` gives with what the graph's module gives.

    Args:
        run: takes the inputs by name and gives the outputs by name.
        num_bytes: of the files that it was read from.
    """
    differences: list[float] = []
    relative: list[float] = []
    equal: list[NDArray[np.bool_]] = []
    for number, sizes in enumerate(_sizes(graph, COMPARED)):
        inputs = graph.example(sizes, seed=number)
        wanted, given = graph.run(inputs), run(_arrays(inputs))
        for port in graph.outputs:
            ours, theirs = wanted[port.name].numpy(), np.asarray(given[port.name])
            if ours.shape != theirs.shape:
                raise CheckpointError(
                    "an output of the export has another shape",
                    where=f"{graph.name}: {port.name}",
                    found=theirs.shape,
                    wanted=ours.shape,
                )
            off = _largest(ours - theirs)
            differences.append(off)
            relative.append(off / (_largest(ours) or 1.0))
            if is_scored(port):
                equal.append(best_of(ours, port).ravel() == best_of(theirs, port).ravel())
    times: dict[str, float] = {}
    of_torch: dict[str, float] = {}
    if timed:
        for sizes in _sizes(graph, TIMED, longest=False):
            inputs = graph.example(sizes)
            arrays, shape = _arrays(inputs), f"{sizes['batch']}×{sizes['length']}"
            times[shape] = _milliseconds(lambda arrays=arrays: run(arrays))  # type: ignore[misc]
            of_torch[shape] = _milliseconds(
                lambda inputs=inputs: graph.run(inputs)  # type: ignore[misc]
            )
    agreement = float(np.concatenate(equal).mean()) if equal else 1.0
    return Compared(
        graph.name, worst(differences), worst(relative), agreement, times, of_torch, num_bytes
    )


def require_equal(found: Compared, where: object, tolerance: float = TOLERANCE) -> None:
    """Refuse an export that differs by more than rounding.

    Raises:
        CheckpointError: naming the difference.
    """
    if found.relative <= tolerance:  # which no NaN is
        return
    raise CheckpointError(
        "the export gives other numbers than the model; it was taken away",
        where=where,
        found=f"{found.graph}: a difference of {found.difference:.2g}",
        wanted=f"at most {tolerance:g}",
        do="report it with the model's config.json; until then use the model with maskwright",
    )


def worst(differences: Iterable[float]) -> float:
    """The largest of them, 0 at least; NaN where one is, which `max` would pass over."""
    return float(np.max([0.0, *differences]))


def is_scored(port: Port) -> bool:
    """Whether an output is scores, of which the largest is the answer."""
    return port.name.endswith("logits")


def best_of(scores: NDArray[Any], port: Port) -> NDArray[Any]:
    """Which score of each row or position is the largest; of one score its sign."""
    if port.axes[-1] == 1:
        return scores[..., 0] > 0
    return scores.argmax(-1)


def table(title: str, compared: Sequence[Compared]) -> Table:
    """The comparisons, for a terminal."""
    shapes = list(dict.fromkeys(shape for each in compared for shape in each.milliseconds))
    rows = [
        [
            each.graph,
            f"{each.bytes / 1e6:,.1f} MB",
            f"{each.difference:.1e}",
            f"{each.agreement:.2%}",
            *(
                f"{each.milliseconds[s]:.1f} ({each.of_torch[s]:.1f})"
                if s in each.milliseconds
                else ""
                for s in shapes
            ),
        ]
        for each in compared
    ]
    head = ["graph", "size", "largest difference", "same answers", *(f"ms at {s}" for s in shapes)]
    note = "rows × tokens; in brackets the same module in PyTorch, float32" if shapes else ""
    return {"title": title, "head": head, "rows": rows, "note": note}


def _sizes(
    graph: Graph, pairs: Sequence[tuple[int, int]], *, longest: bool = True
) -> list[dict[str, int]]:
    """The sizes at which the graph is asked, within what it reads."""
    most = min(graph.longest or LONGEST, LONGEST)
    past = PAST if "past" in graph.sizes and most > PAST else 0
    wanted = [*pairs, (1, most)] if longest else list(pairs)
    lengths = [(rows, min(length, most - past)) for rows, length in wanted]
    made = [
        {"batch": rows, "length": length, "past": past, "memory": MEMORY, "choices": 2}
        for rows, length in dict.fromkeys(lengths)
    ]
    if past and longest:
        made.append({**made[0], "past": 0, "length": min(3, most)})  # a prompt, and no past
    return made


def _arrays(inputs: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in inputs.items()}


def _largest(numbers: NDArray[Any]) -> float:
    return float(np.abs(numbers).max()) if numbers.size else 0.0


def _milliseconds(call: Callable[[], object]) -> float:
    call()
    found: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(found) < REPEATS and (len(found) < 3 or time.perf_counter() < end):
        begin = time.perf_counter()
        call()
        found.append(1000 * (time.perf_counter() - begin))
    return median(found)
