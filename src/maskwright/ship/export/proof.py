"""Comparison of an export with the model.

    compare(graph, run, …) -> GraphComparison    maximum difference of outputs over input shapes
                                                 that include one row, one token and the longest
                                                 text; share of equal predictions; milliseconds for
                                                 three shapes

The reference is the graph's PyTorch module in float32, which is the network itself. `require_equal`
raises an error if the difference exceeds rounding errors.
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

# Maximum accepted difference in float32, relative to the maximum absolute value of an output.
TOLERANCE = 1e-4
# (rows, tokens) of the inputs for comparing outputs, and for measuring time; maximum text length.
COMPARED = ((1, 1), (3, 2), (3, 17))
TIMED = ((1, 16), (1, 128), (8, 64))
LONGEST = 1024
PAST, MEMORY = 5, 7
REPEATS, SECONDS = 15, 1.5  # maximum per timing
# A function that runs a graph: from inputs by name to outputs by name.
Run = Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]]


@dataclass(frozen=True)
class GraphComparison:
    """The result of the comparison of one graph.

    Attributes:
        difference: the maximum absolute difference of any output.
        relative: the maximum difference relative to the maximum absolute value of its output.
        agreement: the share of rows or positions with the same highest score.
        milliseconds, of_torch: the median time of the export and of the PyTorch module, by shape.
        bytes: the size of its files.
    """

    graph: str
    difference: float
    relative: float
    agreement: float
    milliseconds: Mapping[str, float]
    of_torch: Mapping[str, float]
    bytes: int

    def plain(self) -> dict[str, Any]:
        """Return the attributes as JSON values."""
        return {**vars(self), "milliseconds": dict(self.milliseconds)} | {
            "of_torch": dict(self.of_torch)
        }


def compare(graph: Graph, run: Run, num_bytes: int, *, timed: bool = True) -> GraphComparison:
    """Compare the outputs of `run` with those of the PyTorch module of the graph.

    Args:
        run: runs the export.
        num_bytes: the size of the files of the export.
    """
    differences: list[float] = []
    relative: list[float] = []
    equal: list[NDArray[np.bool_]] = []
    for number, sizes in enumerate(_sizes(graph, COMPARED)):
        inputs = graph.example(sizes, seed=number)
        expected, actual = graph.run(inputs), run(_arrays(inputs))
        for port in graph.outputs:
            reference, exported = expected[port.name].numpy(), np.asarray(actual[port.name])
            if reference.shape != exported.shape:
                raise CheckpointError(
                    "an output of the export has another shape",
                    where=f"{graph.name}: {port.name}",
                    found=exported.shape,
                    wanted=reference.shape,
                )
            difference = _largest(reference - exported)
            differences.append(difference)
            relative.append(difference / (_largest(reference) or 1.0))
            if is_scored(port):
                equal.append(best_of(reference, port).ravel() == best_of(exported, port).ravel())
    times: dict[str, float] = {}
    torch_times: dict[str, float] = {}
    if timed:
        for sizes in _sizes(graph, TIMED, longest=False):
            inputs = graph.example(sizes)
            arrays, shape = _arrays(inputs), f"{sizes['batch']}×{sizes['length']}"
            times[shape] = _milliseconds(lambda arrays=arrays: run(arrays))  # type: ignore[misc]
            torch_times[shape] = _milliseconds(
                lambda inputs=inputs: graph.run(inputs)  # type: ignore[misc]
            )
    agreement = float(np.concatenate(equal).mean()) if equal else 1.0
    return GraphComparison(
        graph.name, worst(differences), worst(relative), agreement, times, torch_times, num_bytes
    )


def require_equal(comparison: GraphComparison, where: object, tolerance: float = TOLERANCE) -> None:
    """Check that the relative difference of an export is at most `tolerance`.

    Raises:
        CheckpointError: it is larger, or NaN.
    """
    if comparison.relative <= tolerance:  # False for NaN
        return
    raise CheckpointError(
        "the export gives other numbers than the model; it was taken away",
        where=where,
        found=f"{comparison.graph}: a difference of {comparison.difference:.2g}",
        wanted=f"at most {tolerance:g}",
        do="report it with the model's config.json; until then use the model with maskwright",
    )


def worst(differences: Iterable[float]) -> float:
    """Return the maximum difference, at least 0; NaN if one is NaN, which `max` might ignore."""
    return float(np.max([0.0, *differences]))


def is_scored(port: Port) -> bool:
    """Return whether an output has scores, of which the highest is the prediction."""
    return port.name.endswith("logits")


def best_of(scores: NDArray[Any], port: Port) -> NDArray[Any]:
    """Return the index of the highest score of each row or position; the sign of single scores."""
    if port.axes[-1] == 1:
        return scores[..., 0] > 0
    return scores.argmax(-1)


def table(title: str, compared: Sequence[GraphComparison]) -> Table:
    """Return the table of the comparisons."""
    shapes = list(dict.fromkeys(shape for c in compared for shape in c.milliseconds))
    rows = [
        [
            comparison.graph,
            f"{comparison.bytes / 1e6:,.1f} MB",
            f"{comparison.difference:.1e}",
            f"{comparison.agreement:.2%}",
            *(
                f"{comparison.milliseconds[s]:.1f} ({comparison.of_torch[s]:.1f})"
                if s in comparison.milliseconds
                else ""
                for s in shapes
            ),
        ]
        for comparison in compared
    ]
    head = ["graph", "size", "largest difference", "same answers", *(f"ms at {s}" for s in shapes)]
    note = "rows × tokens; in brackets the same module in PyTorch, float32" if shapes else ""
    return {"title": title, "head": head, "rows": rows, "note": note}


def _sizes(
    graph: Graph, pairs: Sequence[tuple[int, int]], *, longest: bool = True
) -> list[dict[str, int]]:
    """Return the sizes of input axes by name for each pair (rows, tokens) and for the `longest`
    text, limited to what the graph accepts."""
    longest_text = min(graph.longest or LONGEST, LONGEST)
    past = PAST if "past" in graph.sizes and longest_text > PAST else 0
    shapes = [*pairs, (1, longest_text)] if longest else list(pairs)
    clipped_shapes = [(rows, min(length, longest_text - past)) for rows, length in shapes]
    sizes = [
        {"batch": rows, "length": length, "past": past, "memory": MEMORY, "choices": 2}
        for rows, length in dict.fromkeys(clipped_shapes)
    ]
    if past and longest:
        sizes.append({**sizes[0], "past": 0, "length": min(3, longest_text)})  # no cache
    return sizes


def _arrays(inputs: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in inputs.items()}


def _largest(numbers: NDArray[Any]) -> float:
    return float(np.abs(numbers).max()) if numbers.size else 0.0


def _milliseconds(call: Callable[[], object]) -> float:
    """Return the median time of a call in milliseconds, after one call to warm up."""
    call()
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < REPEATS and (len(times) < 3 or time.perf_counter() < end):
        begin = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - begin))
    return median(times)
