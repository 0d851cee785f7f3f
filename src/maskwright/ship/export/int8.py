"""Weights in 8 bits, as far as accuracy allows: ONNX Runtime's dynamic quantisation, per channel.

    all products in 8 bits  --costs more than allowed-->  how much each of them costs alone
        --> the worst for their size are left in float32, as few as the budget needs

A few products carry most of the loss (activations with outliers), and leaving these alone brings
nearly all of it back. The loss is that of the task's own measure on held-out rows; of a model
without a task, or without rows, the share of answers that change on ids by chance, which is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import CheckpointError, DataError, IncompatibleError
from maskwright.base.report.tables import Table
from maskwright.model.graph.eight_bits import WEIGHT, has_vnni, write_eight_bits
from maskwright.model.graph.graphs import Graph, Port
from maskwright.model.graph.session import Session
from maskwright.ship.export import proof
from maskwright.ship.export.answers import Rows

SMALLEST = 4096  # numbers of a weight from which on 8 bits save anything
# Outputs that are not looked at where there are others: states for those who want them.
KEPT = ("pooler_output", "present_key", "present_value", "cross_key", "cross_value")
PROBES = ((4, 24), (2, 48))  # rows and tokens by which products are compared


@dataclass(frozen=True)
class Tried:
    """A graph with some products left in float32.

    Attributes:
        left_out: these, by the place of their weights in the network.
        figure: the task's measure, or the share of equal answers.
        loss: what is lost, in points of 100.
        difference: the mean absolute difference of scores from float32.
    """

    left_out: tuple[str, ...]
    figure: float
    loss: float
    difference: float
    bytes: int


@dataclass(frozen=True)
class Quantised:
    """What the search came to.

    Attributes:
        measure: what was measured, and on what.
        float32: the figure of the graph in float32, of as many `float32_bytes`.
        tried: in order, the chosen one last.
        alone: of each product the mean absolute difference that it makes alone, the largest first;
            empty where all could be in 8 bits.
        narrow: weights use 7 of the 8 bits, as processors without VNNI need it.
    """

    measure: str
    float32: float
    float32_bytes: int
    tried: tuple[Tried, ...]
    alone: dict[str, float]
    budget: float
    narrow: bool

    @property
    def chosen(self) -> Tried:
        return self.tried[-1]

    def plain(self) -> dict[str, Any]:
        """As values of JSON."""
        return {
            "weights": "int8, per channel, " + ("7 bits" if self.narrow else "8 bits"),
            "activations": "uint8, ranges by batch",
            "measure": self.measure,
            "budget": self.budget,
            "float32": {"figure": self.float32, "bytes": self.float32_bytes},
            "chosen": vars(self.chosen),
            "tried": [vars(each) for each in self.tried],
            "alone": self.alone,
        }

    def table(self, name: str) -> Table:
        """For a terminal."""
        rows = [["float32", f"{self.float32:.4f}", "", "", f"{self.float32_bytes / 1e6:,.1f} MB"]]
        for each in self.tried:
            what = "all products" if not each.left_out else f"all but {len(each.left_out)}"
            size = f"{each.bytes / 1e6:,.1f} MB"
            loss = f"{each.loss:+.2f}".replace("+", "−") if each.loss > 0 else f"{-each.loss:+.2f}"
            rows.append([what, f"{each.figure:.4f}", loss, f"{each.difference:.1e}", size])
        left = ", ".join(self.chosen.left_out[:8])
        more = len(self.chosen.left_out) - 8
        note = f"at most {self.budget:g} points may be lost" + (
            f"; left in float32: {left}" + (f" and {more} more" if more > 0 else "") if left else ""
        )
        head = ["8 bits", self.measure, "points", "mean difference", "size"]
        return {"title": f"{name}, weights in 8 bits", "head": head, "rows": rows, "note": note}


def quantise(
    graph: Graph, source: Path, target: Path, budget: float, rows: Rows | None
) -> Quantised:
    """Write `source`, the graph in float32, with weights in 8 bits to `target`.

    Args:
        budget: the most that may be lost, in points of 100.
        rows: by which it is measured; None: ids by chance.

    Raises:
        IncompatibleError: no product can be in 8 bits within the budget.
        CheckpointError: the result gives what is no number.
        DataError: the measure is not defined on the rows.
    """
    narrow = not has_vnni()
    sizes = products(source)
    names = list(sizes)
    if not names:
        raise IncompatibleError(
            "there is nothing to put into 8 bits",
            where=graph.name,
            found=f"no weight of {SMALLEST:,} numbers or more",
            do="export without --int8",
        )
    whole = Session(source)
    inputs = [graph.example(each, seed=7) for each in _probes(graph)]
    probes = [{name: tensor.numpy() for name, tensor in each.items()} for each in inputs]
    scored = [port for port in graph.outputs if proof.is_scored(port)] or [
        port for port in graph.outputs if port.name not in KEPT
    ][-1:]
    wanted = [whole.run(given) for given in probes]
    if rows is not None:
        best, reference = rows.figure(graph, whole.run)
        measure = f"{rows.task_type.measure} on {len(rows.encoded.rows)} rows ({rows.part})"
        if not math.isfinite(best):
            raise DataError(
                "what 8 bits cost cannot be measured on these rows",
                where="--data",
                found=f"{measure} is no number",
                wanted="rows whose labels differ",
            )
    else:
        best, reference = 1.0, np.zeros(0)
        what = "same answers" if proof.is_scored(scored[0]) else "cosine with float32"
        measure = f"{what}, ids by chance"

    def differing(session: Session) -> float:
        found = [session.run(given) for given in probes]
        off = [
            np.abs(new[port.name] - old[port.name]).mean()
            for new, old in zip(found, wanted, strict=True)
            for port in scored
        ]
        return float(np.mean(off))

    def agreeing(session: Session) -> float:
        shares = [
            _alike(new[port.name], old[port.name], port)
            for given, old in zip(probes, wanted, strict=True)
            for new in [session.run(given)]
            for port in scored
        ]
        return float(np.mean(shares))

    def tried(left_out: Sequence[str]) -> Tried:
        write_eight_bits(
            source, target, [name for name in names if name not in set(left_out)], narrow
        )
        session = Session(target)
        figure, difference = agreeing(session), differing(session)
        if rows is not None:
            figure, given = rows.figure(graph, session.run)
            difference = float(np.abs(given - reference).mean())
        if not math.isfinite(difference):
            raise CheckpointError(
                "weights in 8 bits give what is no number", where=graph.name, do="leave --int8 out"
            )
        if not math.isfinite(figure):  # as the correlation of equal scores
            figure, loss = 0.0, 100.0
        else:
            loss = round(100 * (best - figure), 6)
        return Tried(tuple(left_out), figure, loss, difference, target.stat().st_size)

    found = [tried(())]
    alone: dict[str, float] = {}
    if found[0].loss > budget and len(names) > 1:
        alone = _alone(source, target, names, narrow, differing)
        # What is large costs size where it is left out, so that harm counts by weight.
        order = sorted(names, key=lambda name: -alone[name] / sizes[name])
        found += _fewest(order, tried, budget)
    if found[-1].loss > budget:
        raise IncompatibleError(
            "weights in 8 bits cost more than is allowed",
            where=f"{graph.name}: --max-loss {budget:g}",
            found=f"{min(each.loss for each in found):.2f} points at least",
            do="allow more, or export without --int8",
        )
    return Quantised(measure, best, source.stat().st_size, tuple(found), alone, budget, narrow)


def products(file: Path) -> dict[str, int]:
    """The names of the nodes whose weights are large constants, and how many numbers these are."""
    import onnx

    model = onnx.load(str(file), load_external_data=False)
    sizes = {each.name: math.prod(each.dims) for each in model.graph.initializer}
    weights = {
        node.name: node.input[WEIGHT[node.op_type]]
        for node in model.graph.node
        if node.op_type in WEIGHT
    }
    return {
        name: sizes[weight] for name, weight in weights.items() if sizes.get(weight, 0) >= SMALLEST
    }


def _probes(graph: Graph) -> list[dict[str, int]]:
    most = min(graph.longest or proof.LONGEST, proof.LONGEST)
    past = 8 if "past" in graph.sizes and most > 16 else 0
    return [
        {"batch": b, "length": min(t, most - past), "past": past, "memory": 12, "choices": 2}
        for b, t in PROBES
    ]


def _alike(new: NDArray[Any], old: NDArray[Any], port: Port) -> float:
    """The share of equal answers; of vectors, which have none, their mean cosine."""
    if proof.is_scored(port):
        return float((proof.best_of(new, port) == proof.best_of(old, port)).mean())
    length = np.linalg.norm(new, axis=-1) * np.linalg.norm(old, axis=-1)
    return float(((new * old).sum(-1) / np.where(length > 0, length, 1.0)).mean())


def _alone(
    source: Path,
    target: Path,
    names: Sequence[str],
    narrow: bool,
    differing: Callable[[Session], float],
) -> dict[str, float]:
    """What each product costs when it alone is in 8 bits, the largest first."""
    found = {}
    for name in names:
        write_eight_bits(source, target, [name], narrow)
        found[name] = differing(Session(target))
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _fewest(
    names: Sequence[str], tried: Callable[[Sequence[str]], Tried], budget: float
) -> list[Tried]:
    """The fewest of `names`, from the front, whose leaving out keeps the budget: doubled until it
    does, then halved back. The best is written last."""
    low, high, most = 0, 1, len(names) - 1  # one at least stays in 8 bits
    found = [tried(names[:high])]
    while found[-1].loss > budget and high < most:
        low, high = high, min(2 * high, most)
        found.append(tried(names[:high]))
    best = found[-1]
    while best.loss <= budget and high - low > 1:
        middle = (low + high) // 2
        found.append(tried(names[:middle]))
        if found[-1].loss <= budget:
            high, best = middle, found[-1]
        else:
            low = middle
    return found if found[-1] is best else [*found, tried(best.left_out)]
