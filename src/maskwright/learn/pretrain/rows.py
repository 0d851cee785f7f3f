"""From stored tokens to the rows that the recipe's objective is trained or evaluated on: their kind
and length, the shares of mixed texts, microbatches; and whether they fit a model's positions."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import Finding, IncompatibleError
from maskwright.learn.pretrain.prepare import PreparedCorpus, names_of
from maskwright.learn.recipes.base.find import require_rows
from maskwright.learn.recipes.base.recipe import PAIRS, Corpus, Folder, Recipe, shares
from maskwright.learn.train import loop
from maskwright.learn.train.settings import Ramp
from maskwright.learn.train.state import TrainState
from maskwright.model.batch import Batch
from maskwright.model.inference import held_out_loss
from maskwright.model.nn.config import Learned, Patches, TransformerConfig
from maskwright.model.objectives.base.objective import Objective
from maskwright.text.store.loader import Loader, ScheduledMixture, mixed
from maskwright.text.store.pairs import SentencePairs
from maskwright.text.store.rows import (
    Images,
    PackedDocuments,
    PackedSentences,
    Rows,
    RowSource,
    Stream,
    Windows,
)
from maskwright.text.store.store import TokenStore


class Microbatches:
    """The microbatches of the next step, as a function of the number of rows used so far and of the
    used share of the budget.

    All microbatches of a step have the same number of rows. When the row length changes, counting
    goes on in the order of the new rows.

    Args:
        phases: (share of the budget, loader): each loader is used until that share is reached.
    """

    def __init__(
        self,
        objective: Objective,
        phases: Sequence[tuple[float, Loader]],
        plan: loop.TrainingPlan,
        state: TrainState,
        ramp: Ramp | None = None,
    ) -> None:
        self.objective, self.phases, self.plan, self.state = objective, phases, plan, state
        self.ramp = ramp or Ramp()

    def __call__(self, step: int, number: int) -> Batch:
        rows, epochs = self.rows(number)
        return self.objective.corrupt(rows, epochs, self.plan.seed, self._progress)

    def rows(self, number: int) -> tuple[Rows, NDArray[np.int64]]:
        """Return the rows of microbatch `number` before corruption, and the epoch of each row."""
        progress, last_loader = self._progress, self.phases[-1][1]
        loader = next(
            (candidate for until, candidate in self.phases if progress < until), last_loader
        )
        size = self.ramp.rows(loader.batch_rows // self.plan.microbatches, progress)
        indices, epochs = loader.take(self.state.samples + number * size, size)
        return loader.rows_of(indices, epochs), epochs

    @property
    def _progress(self) -> float:
        return loop.progress(self.plan, self.state)


NEARLY = 0.9  # a table of positions counts as trained if rows reach this share of it
MOST_POINTS = 4096


def held_out_rows(recipe: Recipe, store: TokenStore, length: int | None = None) -> RowSource:
    """Return the `rows` of held-out text, which do not depend on the recipe's seed."""
    return rows(recipe, store, length, seed=held_out_loss.SEED)


def training_rows(
    recipe: Recipe, stores: Sequence[TokenStore], length: int | None = None
) -> RowSource:
    """Return the `rows` of one store, or of several stores mixed in the recipe's shares."""
    corpus, seed = recipe.corpus, recipe.training.seed
    sources = [rows(recipe, store, length) for store in stores]
    if not corpus.weights_end:
        return mixed(sources, weights_of(corpus, stores), seed=seed)
    begin, end = shares(corpus, [store.num_tokens for store in stores])
    return ScheduledMixture(sources, begin, end, samples_by_progress(recipe), seed=seed)


def rows(
    recipe: Recipe, store: TokenStore, length: int | None = None, *, seed: int | None = None
) -> RowSource:
    """Return the store's tokens as rows; `length` and `seed` default to the recipe's.

    Rows for an objective that predicts the next token have one more token; blocks for an objective
    that shortens them are longer, so that `length` tokens remain.

    Raises:
        IncompatibleError: the objective does not learn from such rows.
    """
    require_rows(recipe)
    kind, length = recipe.row_kind, length or recipe.rows.length
    spec = recipe.objective.spec
    shifted = spec.rows == "stream"
    seed = recipe.training.seed if seed is None else seed
    if kind == "images":
        return Images(store)
    if kind == "documents":
        return PackedDocuments(store, length, seed=seed)
    if kind == "sentences":
        return PackedSentences(store, length + 1 if shifted else length, seed=seed)
    if kind == "stream":
        # A row of a stream has one token more than `length` says.
        return Stream(store, length if _last_is_target(recipe) else length - 1)
    if kind == "windows":
        return Windows(store, length + 1 if shifted else length)
    if kind == "blocks":
        if spec.text_length is not None:
            length = spec.text_length(recipe.objective.checked, length)
        return Windows(store, length, step=length)
    assert kind in PAIRS
    swaps = kind == "swapped-pairs"
    return SentencePairs(store, length, seed=seed, negatives="swapped" if swaps else "foreign")


def _last_is_target(recipe: Recipe) -> bool:
    """Whether the last token of a stream's row is only a target: for objectives that predict the
    next token, and those with further networks, whose student may be a decoder."""
    spec = recipe.objective.spec
    return spec.rows == "stream" or bool(spec.networks)


def weights_of(corpus: Corpus, stores: Sequence[TokenStore]) -> tuple[float, ...]:
    """Return the mean weight of each store over the run; empty if the text is not mixed."""
    if not corpus.mixed:
        return ()
    if isinstance(corpus.weights, tuple) and corpus.weights and not corpus.weights_end:
        return corpus.weights
    start_shares, end_shares = shares(corpus, [store.num_tokens for store in stores])
    return tuple(((start_shares + end_shares) / 2).tolist())


def token_counts(recipe: Recipe, prepared: PreparedCorpus) -> NDArray[np.float64]:
    """Return how often each id is among the training tokens, each store with its weight."""
    shares = weights_of(recipe.corpus, prepared.train)
    return held_out_loss.token_counts(prepared.train, shares)


def mixture_of_run(
    recipe: Recipe, rows: RowSource, stores: Sequence[TokenStore]
) -> dict[str, list[str]]:
    """Return {"mixture": lines} with each store's share of the rows; {} if shares do not change.

    Args:
        rows: the rows of the last phase.
    """
    if not isinstance(rows, ScheduledMixture):
        return {}
    samples = int(samples_by_progress(recipe)[-1][0])
    names = names_of(recipe.corpus, stores[0].path.parent.parent)
    listed = ", ".join(
        f"{count / samples:.1%} {name} (read {count / max(1, len(source)):.2g} times)"
        for name, count, source in zip(names, rows.realised(samples), rows.sources, strict=True)
    )
    return {"mixture": [f"rows of the whole run: {listed}"]}


def samples_by_progress(recipe: Recipe) -> list[tuple[float, float]]:
    """Return points (number of rows trained on, share of the budget used), from (0, 0) to (all, 1).
    A row counts as its length in tokens if the budget is in tokens."""
    training, phases = recipe.training, recipe.phases
    budget, micro = training.budget, training.microbatches
    if budget.steps is None and budget.tokens is None:  # the run is not trained
        return [(0.0, 0.0), (1.0, 1.0)]
    points, samples, spent = [(0.0, 0.0)], 0, 0.0
    while spent < budget.total:
        progress = spent / budget.total
        phase = next((p for p in phases if progress < p.until), phases[-1])
        rows = training.ramp.rows(phase.batch // micro, progress) * micro
        cost = 1 if budget.steps is not None else rows * phase.length
        # With a constant batch size, one point covers all steps of a phase.
        fixed = training.ramp.start == 1.0
        steps = max(1, math.ceil((phase.until * budget.total - spent) / cost)) if fixed else 1
        samples, spent = samples + steps * rows, spent + steps * cost
        points.append((float(samples), min(1.0, spent / budget.total)))
    stride = max(1, len(points) // MOST_POINTS)
    return [*points[:-1:stride], (float(samples), 1.0)]


def check_length(recipe: Recipe, network: TransformerConfig, whose: str = "") -> None:
    """Raise IncompatibleError if rows are longer than a stack's table of positions.

    Args:
        whose: the setting that names the model, if it is not the recipe's own model.
    """
    lengths = [phase.length for phase in recipe.phases]
    longest = max(lengths)
    where = "rows.length"
    if recipe.rows.length < longest:
        where = f"training.phases.{lengths.index(longest)}.length"
    for name, stack in network.stacks.items():
        length_read = partial(_length_read, recipe, network, name)
        limit = stack.longest
        needed = length_read(longest)
        if isinstance(network.tokens, Patches) and {*lengths} != {limit}:
            raise IncompatibleError(
                "rows are not as long as the images of the model",
                where=where,
                found=longest,
                wanted=f"{limit}: one for the image, and one for each of its patches",
                do=f"--set rows.length={limit}",
            )
        if limit is None or needed <= limit:
            continue
        longest_fitting = bisect.bisect_right(range(limit + 1), limit, key=length_read) - 1
        raise IncompatibleError(
            "rows are longer than the model's table of positions",
            where=whose or where,
            found=longest if needed == longest else f"{longest}: the {name} reads {needed}",
            wanted=f"at most {limit} ({name})",
            do=f"make {where} {longest_fitting} or less, or give the model more positions"
            if recipe.training.phases or whose
            else f"--set rows.length={longest_fitting}, or give the model more positions",
        )


def untrained_positions(recipe: Recipe, network: TransformerConfig) -> Finding | None:
    """Return a warning that the rows are too short to train all position vectors; None if they are
    long enough, or if the model comes from a folder."""
    if isinstance(recipe.model, Folder):
        return None
    longest = max(phase.length for phase in recipe.phases)
    for name, stack in network.stacks.items():
        table = stack.embeddings.positions
        positions_read = _length_read(recipe, network, name, longest)
        if isinstance(table, Learned) and positions_read < NEARLY * table.length:
            return Finding(
                "untrained-positions",
                f"the {name} has vectors for {table.length:,} positions, of which rows of "
                f"{longest:,} tokens train {positions_read:,}",
                "longer texts will meet untrained vectors",
                "longer rows in training.phases, or a smaller table",
            )
    return None


def _length_read(recipe: Recipe, network: TransformerConfig, stack: str, length: int) -> int:
    """Return the maximum number of tokens that a stack reads of a row of `length` tokens."""
    spec, kind = recipe.objective.spec, recipe.row_kind
    if spec.piece_length is not None:
        return spec.piece_length(recipe.objective.checked)
    if len(network.stacks) == 2 and spec.lengths is not None:
        options = recipe.objective.checked
        # A row of packed texts has at least one special token; other rows may have none.
        text_length = length if kind in ("stream", "windows") else length - 1
        if kind == "blocks" and spec.text_length is not None:
            text_length = spec.text_length(options, length)
        inputs, targets = spec.lengths(options, max(2, text_length))
        return int(max(length, inputs) if stack == "encoder" else targets)
    extra = kind == "stream" and spec.rows != "stream" and _last_is_target(recipe)
    return length + (extra and stack == "encoder")
