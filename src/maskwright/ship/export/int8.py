"""8-bit weights within a budget of lost accuracy, by dynamic per-channel quantisation of ONNX
Runtime.

    quantise all products  --loss exceeds the budget-->  measure the effect of each product alone
        --> leave those with the largest effect per weight in float32, as few as possible

A few products cause most of the loss (activations with outliers), and leaving them in float32
recovers nearly all of it. The loss is measured by the task's metric on held-out rows; without a
task or rows, by the share of predictions that change on random token ids.

    rows --task type--> ids --graph, padded batches--> scores --task type--> predictions, metric
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray

from maskwright.base.errors import CheckpointError, DataError, IncompatibleError
from maskwright.base.report.document import Table
from maskwright.learn.tasks.base.task_type import Encoded, TaskType
from maskwright.model.graph.graphs import EMBEDDING, IDS, MASK, SEGMENTS, STATES, Graph, Port
from maskwright.model.graph.session import WEIGHT, Session, has_vnni, write_eight_bits
from maskwright.model.inference.encoded import Collation, EncodedExamples
from maskwright.ship.export import folder
from maskwright.ship.export.folder import Run

BATCH_SIZE = 16  # of labelled rows, sorted by length and padded to the longest of their batch
SMALLEST = 4096  # minimum elements of a weight; smaller ones save no memory
PROBES = ((4, 24), (2, 48))  # (rows, tokens) of the random inputs


@dataclass(frozen=True)
class QuantizationTrial:
    """A quantised graph with some products left in float32.

    Attributes:
        left_out: the names of the products in float32.
        figure: the task's metric, or the agreement with float32 (between 0 and 1).
        loss: the loss of that metric in percentage points.
        difference: the mean absolute difference of scores from those in float32.
    """

    left_out: tuple[str, ...]
    figure: float
    loss: float
    difference: float
    bytes: int


@dataclass(frozen=True)
class Quantization:
    """The result of a quantisation.

    Attributes:
        measure: the name of the metric, with the rows on which it was measured.
        float32: the metric of the graph in float32, whose size is `float32_bytes`.
        tried: all trials in order; the last is the chosen one.
        alone: the mean absolute difference that quantising each product alone causes, by name, in
            descending order; empty if it was not measured.
        budget: the maximum loss in percentage points.
        narrow: whether weights use 7 of the 8 bits, as processors without VNNI need.
    """

    measure: str
    float32: float
    float32_bytes: int
    tried: tuple[QuantizationTrial, ...]
    alone: dict[str, float]
    budget: float
    narrow: bool

    @property
    def chosen(self) -> QuantizationTrial:
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
            "tried": [vars(trial) for trial in self.tried],
            "alone": self.alone,
        }

    def table(self, name: str) -> Table:
        """Return the table of the trials; `name` is that of the graph."""
        rows = [["float32", f"{self.float32:.4f}", "", "", f"{self.float32_bytes / 1e6:,.1f} MB"]]
        for trial in self.tried:
            label = "all products" if not trial.left_out else f"all but {len(trial.left_out)}"
            size = f"{trial.bytes / 1e6:,.1f} MB"
            loss = (
                f"{trial.loss:+.2f}".replace("+", "−") if trial.loss > 0 else f"{-trial.loss:+.2f}"
            )
            rows.append([label, f"{trial.figure:.4f}", loss, f"{trial.difference:.1e}", size])
        float32_names = ", ".join(self.chosen.left_out[:8])
        num_unlisted = len(self.chosen.left_out) - 8
        note = f"at most {self.budget:g} points may be lost"
        if float32_names:
            note += f"; left in float32: {float32_names}"
            note += f" and {num_unlisted} more" if num_unlisted > 0 else ""
        head = ["8 bits", self.measure, "points", "mean difference", "size"]
        return {"title": f"{name}, weights in 8 bits", "head": head, "rows": rows, "note": note}


def quantise(
    graph: Graph, source: Path, target: Path, budget: float, rows: EvaluationRows | None
) -> Quantization:
    """Quantise the graph in the file `source` (float32) and write it to the file `target`.

    Args:
        budget: the maximum loss in percentage points.
        rows: labelled rows on which the loss is measured; None: random token ids.

    Raises:
        IncompatibleError: no product can be quantised within the budget.
        CheckpointError: outputs of the quantised graph are not finite.
        DataError: the metric is undefined on the rows.
    """
    narrow = not has_vnni()
    product_sizes = products(source)
    names = list(product_sizes)
    if not names:
        raise IncompatibleError(
            "there is nothing to put into 8 bits",
            where=graph.name,
            found=f"no weight of {SMALLEST:,} numbers or more",
            do="export without --int8",
        )
    float32_session = Session(source)
    probes = [folder.arrays(graph.example(sizes, seed=7)) for sizes in _probe_sizes(graph)]
    ports = [port for port in graph.outputs if folder.is_scored(port)] or [
        # The embeddings of texts if there are any, else the states.
        port
        for port in graph.outputs
        if port.name in (EMBEDDING, STATES)
    ][-1:]
    expected = [float32_session.run(probe) for probe in probes]
    if rows is not None:
        metric, float32_scores = rows.evaluate(graph, float32_session.run)
        measure = f"{rows.task_type.measure} on {len(rows.encoded.rows)} rows ({rows.source})"
        if not math.isfinite(metric):
            raise DataError(
                "what 8 bits cost cannot be measured on these rows",
                where="--data",
                found=f"{measure} is no number",
                wanted="rows whose labels differ",
            )
    else:
        metric, float32_scores = 1.0, np.zeros(0)
        criterion = "same answers" if folder.is_scored(ports[0]) else "cosine with float32"
        measure = f"{criterion}, ids by chance"

    def mean(measure: Callable[..., Any], session: Session) -> float:
        outputs = [session.run(probe) for probe in probes]
        pairs = zip(outputs, expected, strict=True)
        values = [measure(new[p.name], old[p.name], p) for new, old in pairs for p in ports]
        return float(np.mean(values))

    def run_trial(left_out: Sequence[str]) -> QuantizationTrial:
        write_eight_bits(
            source, target, [name for name in names if name not in set(left_out)], narrow
        )
        session = Session(target)
        figure, difference = mean(_agreement, session), mean(_difference, session)
        if rows is not None:
            figure, row_scores = rows.evaluate(graph, session.run)
            difference = float(np.abs(row_scores - float32_scores).mean())
        if not math.isfinite(difference):
            raise CheckpointError(
                "weights in 8 bits give what is no number", where=graph.name, do="leave --int8 out"
            )
        if not math.isfinite(figure):  # such as the correlation of constant scores
            figure, loss = 0.0, 100.0
        else:
            loss = round(100 * (metric - figure), 6)
        return QuantizationTrial(tuple(left_out), figure, loss, difference, target.stat().st_size)

    trials = [run_trial(())]
    harm: dict[str, float] = {}
    if trials[0].loss > budget and len(names) > 1:
        harm = _harm_of_each(source, target, names, narrow, partial(mean, _difference))
        # Order by the effect per weight, since leaving out large products costs file size.
        order = sorted(names, key=lambda name: -harm[name] / product_sizes[name])
        trials += _fewest(order, run_trial, budget)
    if trials[-1].loss > budget:
        raise IncompatibleError(
            "weights in 8 bits cost more than is allowed",
            where=f"{graph.name}: --max-loss {budget:g}",
            found=f"{min(trial.loss for trial in trials):.2f} points at least",
            do="allow more, or export without --int8",
        )
    return Quantization(measure, metric, source.stat().st_size, tuple(trials), harm, budget, narrow)


def products(file: Path) -> dict[str, int]:
    """Return the nodes of an ONNX file with large constant weights: number of elements by name."""
    import onnx

    model = onnx.load(str(file), load_external_data=False)
    sizes = {tensor.name: math.prod(tensor.dims) for tensor in model.graph.initializer}
    weights = {
        node.name: node.input[WEIGHT[node.op_type]]
        for node in model.graph.node
        if node.op_type in WEIGHT
    }
    return {
        name: sizes[weight] for name, weight in weights.items() if sizes.get(weight, 0) >= SMALLEST
    }


def _probe_sizes(graph: Graph) -> list[dict[str, int]]:
    max_length = min(graph.longest or folder.LONGEST_COMPARED, folder.LONGEST_COMPARED)
    past = 8 if "past" in graph.sizes and max_length > 16 else 0
    sizes = {"past": past, "memory": 12, "projected": 12 if past else 0, "choices": 2}
    return [{**sizes, "batch": b, "length": min(t, max_length - past)} for b, t in PROBES]


def _difference(new: NDArray[Any], old: NDArray[Any], port: Port) -> Any:
    return np.abs(new - old).mean()


def _agreement(new: NDArray[Any], old: NDArray[Any], port: Port) -> float:
    """Return the share of equal predictions, or for embeddings the mean cosine similarity."""
    if folder.is_scored(port):
        return float((folder.best_of(new, port) == folder.best_of(old, port)).mean())
    norm_products = np.linalg.norm(new, axis=-1) * np.linalg.norm(old, axis=-1)
    return float(((new * old).sum(-1) / np.where(norm_products > 0, norm_products, 1.0)).mean())


def _harm_of_each(
    source: Path,
    target: Path,
    names: Sequence[str],
    narrow: bool,
    mean_difference: Callable[[Session], float],
) -> dict[str, float]:
    """Return the mean difference that quantising each product alone causes, in descending order."""
    harm = {}
    for name in names:
        write_eight_bits(source, target, [name], narrow)
        harm[name] = mean_difference(Session(target))
    return dict(sorted(harm.items(), key=lambda item: -item[1]))


def _fewest(
    names: Sequence[str], run_trial: Callable[[Sequence[str]], QuantizationTrial], budget: float
) -> list[QuantizationTrial]:
    """Find the shortest prefix of `names` to leave in float32 so that the loss is within budget, by
    doubling and bisection. Return all trials; the best is run (and so written) last."""
    low, high, most = 0, 1, len(names) - 1  # at least one product is quantised
    trials = [run_trial(names[:high])]
    while trials[-1].loss > budget and high < most:
        low, high = high, min(2 * high, most)
        trials.append(run_trial(names[:high]))
    best = trials[-1]
    while best.loss <= budget and high - low > 1:
        middle = (low + high) // 2
        trials.append(run_trial(names[:middle]))
        if trials[-1].loss <= budget:
            high, best = middle, trials[-1]
        else:
            low = middle
    return trials if trials[-1] is best else [*trials, run_trial(best.left_out)]


# ------------------------------------------------------------------------- labelled rows
@dataclass(frozen=True)
class EvaluationRows:
    """Labelled rows, encoded for a model.

    Attributes:
        source: the split or file of the rows, for messages.
    """

    task_type: TaskType
    encoded: Encoded
    collation: Collation
    source: str

    def evaluate(self, graph: Graph, run: Run) -> tuple[float, NDArray[Any]]:
        """Return the task's metric for the scores that `run` computes, and the scores.

        Raises:
            IncompatibleError: as `scores`.
        """
        row_scores = scores(graph, run, self.encoded.examples, self.collation)
        answers = self.task_type.answers(self.encoded, row_scores)
        metrics = self.task_type.metrics(self.encoded.rows, answers).values
        return float(metrics[self.task_type.measure]), row_scores


def scores(
    graph: Graph, run: Run, examples: EncodedExamples, collation: Collation
) -> NDArray[np.float32]:
    """Compute the scores of examples with a graph; shapes as in `inference.scores.scores`.

    Raises:
        IncompatibleError: texts are split into pieces, or the task generates text.
    """
    names = ("texts in pieces", "texts that are written", "images")
    present = [f is not None for f in (examples.pieces, examples.targets, examples.images)]
    if any(present):
        raise IncompatibleError(
            "one graph does not answer such rows",
            where=graph.name,
            found=", ".join(itertools.compress(names, present)),
            wanted="whole texts with labels",
        )
    lengths = examples.texts.lengths
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    slices = [slice(begin, end) for begin, end in itertools.pairwise(bounds)]
    choices = examples.choices if len(graph.inputs[0].axes) == 3 else 1
    longest = lengths.reshape(-1, choices).max(1)
    text_outputs: list[NDArray[Any]] = [np.zeros(0)] * len(longest)
    order = np.argsort(longest, kind="stable")
    for begin in range(0, len(order), BATCH_SIZE):
        batch = order[begin : begin + BATCH_SIZE]
        texts = (batch[:, None] * choices + np.arange(choices)).reshape(-1)
        inputs = _padded(graph, examples, [slices[text] for text in texts], collation.pad)
        if choices > 1:
            inputs = {name: x.reshape(len(batch), choices, -1) for name, x in inputs.items()}
        outputs = run(inputs)
        for position, index in enumerate(batch):
            text_outputs[index] = _text_output({name: x[position] for name, x in outputs.items()})
    if examples.places is not None:
        return _at_places(text_outputs, examples)
    stacked = np.stack(text_outputs) if text_outputs else np.zeros((0, 1))
    return stacked.reshape(len(examples), -1).astype(np.float32)


def _padded(
    graph: Graph, examples: EncodedExamples, texts: list[slice], pad: int
) -> dict[str, NDArray[Any]]:
    """Return the inputs of a graph by name, (texts, longest text), for slices of the tokens."""
    width = max(text.stop - text.start for text in texts)
    arrays = {
        port.name: np.full((len(texts), width), pad if port.name == IDS else 0, port.dtype)
        for port in graph.inputs
    }
    for row, text in enumerate(texts):
        length = text.stop - text.start
        arrays[IDS][row, :length] = examples.texts.tokens[text]
        arrays[MASK][row, :length] = 1
        if SEGMENTS in arrays and examples.segments is not None:
            arrays[SEGMENTS][row, :length] = examples.segments[text]
    return arrays


def _text_output(outputs: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the embedding, the scores, or the token scores from the outputs of one text."""
    if EMBEDDING in outputs:
        return outputs[EMBEDDING]
    if "start_logits" in outputs:
        return np.stack([outputs["start_logits"], outputs["end_logits"]], -1)
    return outputs["logits"]


def _at_places(text_outputs: list[NDArray[Any]], examples: EncodedExamples) -> NDArray[np.float32]:
    """Return the scores at the `places` of the examples; for spans, log-probabilities of the start
    and end positions in each text."""
    assert examples.places is not None
    ends = np.cumsum(examples.places.lengths)[:-1]
    place_scores = []
    for text, positions in zip(text_outputs, np.split(examples.places.tokens, ends), strict=True):
        logits = text[positions]
        if examples.labels.ndim == 2 and len(logits):  # start and end of a span
            logits = scipy.special.log_softmax(logits, axis=0)
        place_scores.append(logits)
    return np.concatenate(place_scores).astype(np.float32)
