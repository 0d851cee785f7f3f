"""How far a fine-tuned model is from its initial weights, and what that says of new rows.

    distance    of the weights from those that the training began with, by part of the network
    gap         the metric on training rows minus that on the evaluated rows
    bound       on the error in classes of whole texts, PAC-Bayes (base/metrics/pac_bayes.py)

The initial weights are the pretrained ones, and those of a new head, which the seed determines.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskwright.base.metrics.pac_bayes import DELTA, DRAWS, PacBayesBound, bound_error
from maskwright.base.randomness import integers, key, torch_seed
from maskwright.base.report.document import Table, figure
from maskwright.base.terminal import counted
from maskwright.learn.finetune.conclusion import read_results
from maskwright.learn.finetune.learner import Learner, reader
from maskwright.learn.finetune.recipe import NAME
from maskwright.learn.finetune.recipe import read as read_recipe
from maskwright.learn.finetune.result import RESULTS
from maskwright.learn.tasks.base.task_type import TaskMetrics, TaskType
from maskwright.model.opening.open import open_merged

BATCH = 64  # training rows on which a draw of weights is evaluated
LAYER = re.compile(r"(encoder|decoder)\.blocks\.(\d+)\.")
HEADS = ("heads.", "pooler.", "vocabulary_head.")


def measure_generalisation(
    folder: Path, task_type: TaskType, rows: Sequence[Any], metrics: Mapping[str, TaskMetrics]
) -> tuple[list[Table], dict[str, Any]]:
    """Return distances, gap and bound of the model in the result `folder`, as tables and as JSON.

    Args:
        task_type: of the model, with the options that were chosen.
        rows: all training rows.
        metrics: of "training rows" and of "evaluated rows".

    Raises:
        IncompatibleError: an adapter cannot be merged into the weights.
    """
    recipe = read_recipe(folder / NAME)
    (method,), seed = recipe.methods, int(read_results(folder / RESULTS)["chosen"])
    opened = open_merged(folder)
    assert opened.task is not None
    length, long = opened.task.length, opened.task.long
    learner = Learner.of(Path(recipe.model), task_type, method, length, long)  # type: ignore[arg-type]
    start, _ = learner.initial_network(seed)
    initial = {name: p.detach() for name, p in start.model.named_parameters()}
    tuned = {name: p.detach().clone() for name, p in opened.network.named_parameters()}
    changed = {name for name, weight in tuned.items() if not torch.equal(weight, initial[name])}
    read = reader(opened.network, task_type, learner.frame, learner.collation)
    if method.fitted is not None and method.head_alone:
        read = functools.partial(learner.frozen_vectors.scores, opened.network)

    def error_of(deviation: float, draw: int) -> float:
        generator = torch.Generator().manual_seed(torch_seed(key("noise", seed, draw)))
        with torch.no_grad():
            for name, parameter in opened.network.named_parameters():
                if name in changed:
                    parameter.normal_(0.0, deviation, generator=generator).add_(tuned[name])
        drawn = integers(key("sample", seed, draw), BATCH, len(rows))
        encoded = task_type.encode([rows[number] for number in drawn], learner.frame)
        answers = task_type.answers(encoded, read(encoded))
        return 1.0 - task_type.metrics(encoded.rows, answers).values["accuracy"]

    distances, bound, guess = _distances(initial, tuned), None, math.nan
    if task_type.head == "sequence" and task_type.problem != "number":
        bound = bound_error(distances["all"][0] ** 2, len(rows), error_of)
        guess = 1 - max(Counter(row.label for row in rows).values()) / len(rows)
    measure = task_type.measure
    estimates = {name: by_rows.figures[measure].estimate() for name, by_rows in metrics.items()}
    training, evaluated = estimates.values()
    estimates["gap"] = training.minus(evaluated)
    tables: list[Table] = [
        {
            "title": "Distance of the weights from those before training",
            "head": ["", "L2", "relative"],
            "rows": [[name, *map(figure, values)] for name, values in distances.items()],
            "note": "Relative: divided by the norm of the weights before training.",
        },
        {
            "title": "From training rows to new ones",
            "head": ["", measure],
            "rows": [[name, estimate.render()] for name, estimate in estimates.items()],
            "note": _sentence(bound, guess),
        },
    ]
    plain = {name: estimate.to_json() for name, estimate in estimates.items()}
    plain_bound = None if bound is None else {**vars(bound), "delta": DELTA, "guess": guess}
    return tables, {"distances": distances, **plain, "bound": plain_bound}


def _distances(
    initial: Mapping[str, Tensor], tuned: Mapping[str, Tensor]
) -> dict[str, tuple[float, float]]:
    """Return (L2, L2 divided by the initial norm) by part of the network, and of "all" weights."""
    squares: dict[str, list[float]] = {}
    for name, weights in tuned.items():
        layer = LAYER.match(name)
        group = "head" if name.startswith(HEADS) else "embeddings"
        group = f"{layer[1]} layer {int(layer[2]) + 1}" if layer else group
        for total in (squares.setdefault(group, [0, 0]), squares.setdefault("all", [0, 0])):
            total[0] += float((weights - initial[name]).double().square().sum())
            total[1] += float(initial[name].double().square().sum())
    squares["all"] = squares.pop("all")
    return {n: (math.sqrt(a), math.sqrt(a / max(1e-30, b))) for n, (a, b) in squares.items()}


def _sentence(bound: PacBayesBound | None, guess: float) -> str:
    """Return what the bound says, and on which assumptions; `guess`: the error of the most frequent
    answer of the training rows."""
    if bound is None:
        return "A PAC-Bayes bound is computed for classes of whole texts alone."
    divergence = f"KL {bound.divergence:.3g} nats, {counted(bound.rows, 'training row')}"
    if bound.error is None or bound.value >= guess:
        value = f"{figure(bound.value)}, where always the most frequent answer errs on"
        return f"The PAC-Bayes bound is vacuous: {value} {figure(guess)} ({divergence})."
    return (
        f"PAC-Bayes: with probability {1 - DELTA:g}, weights drawn around the trained ones err on "
        f"at most {figure(bound.value)} of new rows ({figure(bound.error)} of training rows, "
        f"{DRAWS} draws; deviation {bound.deviation:.3g}, {divergence}). Prior: Gaussian around "
        "the weights before training, which must not depend on these rows; posterior: Gaussian "
        "around the trained ones; the rows are a random sample of what the model will read."
    )
