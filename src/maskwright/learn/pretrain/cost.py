"""What a pretraining costs on this machine: seconds of a step and memory, measured in a few steps.

The network, the objective and the optimizer are the recipe's own; rows come from a sample of its
text. If a whole microbatch takes too long, fewer rows are computed and the time is scaled by
tokens; phases of other lengths are scaled by their operations. Memory is what weights and
activations need by their sizes, with factors fitted to the peaks of recorded runs (docs/plan.md).
`table` estimates all recipes, or the published sizes of families, from one such measurement.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from maskwright.base import catalogue
from maskwright.base.budget import Budget
from maskwright.base.errors import MaskwrightError
from maskwright.base.terminal import quiet
from maskwright.learn.pretrain import build
from maskwright.learn.pretrain.prepare import PreparedCorpus, prepare
from maskwright.learn.pretrain.rows import Microbatches, check_length, held_out_rows, training_rows
from maskwright.learn.pretrain.run import flops_of_phases
from maskwright.learn.pretrain.session import training_bytes
from maskwright.learn.pretrain.text import text_bytes, texts_of
from maskwright.learn.recipes.base.find import find
from maskwright.learn.recipes.base.recipe import Corpus, FamilyModel, Recipe
from maskwright.learn.train import loop
from maskwright.learn.train.optimizers import Parameters, start_optimizer
from maskwright.learn.train.state import Processes, TrainState
from maskwright.model.device import machine, step_cost
from maskwright.model.inference import held_out_loss
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.text.store.loader import Loader

SAMPLE_BYTES, EMBEDDED_BYTES = 1 << 20, 1 << 18
COUNTED_BYTES = 256 << 20  # of a longer text the size of its files is taken
HELD_OUT = 0.1  # of the sample
ENCODER_TARGETS = 0.15  # the share of the positions that an encoder predicts
TRIAL_SHARE = 0.3  # of the seconds, from which on more rows are not tried
# Bytes of each byte that is kept for the backward pass, of each score of a token in training and in
# evaluation, of a run besides.
OF_ACTIVATIONS, OF_SCORES, OF_EVALUATED, OF_RUN = 2.5, 12, 20, 28e6
OF_PROCESS = 280e6  # bytes of Python with torch and this package


@dataclass(frozen=True)
class StepCost:
    """The cost of a recipe's optimizer step on this machine.

    Attributes:
        parameters: number of parameters of the model that is saved.
        tokens: tokens of a step, the mean over the phases of the run.
        flops: floating-point operations of matrix products per token, forward and backward.
        seconds: seconds of a step, the mean over the phases.
        memory: peak bytes of a run, about.
        processor_share: seconds of the processor in a second of the measurement.
        unigram_loss: nats per target of the held-out sample by token frequencies; NaN if unknown.
    """

    parameters: int
    tokens: float
    flops: float
    seconds: float
    memory: int
    processor_share: float = 1.0
    unigram_loss: float = math.nan

    @property
    def seconds_per_token(self) -> float:
        return self.seconds / self.tokens


@dataclass(frozen=True)
class TextSample:
    """The prepared beginning of a recipe's text.

    Attributes:
        tokens: number of tokens of the whole text; exact if the sample is complete.
        complete: whether the sample is the whole text.
    """

    prepared: PreparedCorpus
    tokens: int
    complete: bool


@contextlib.contextmanager
def sampled(recipe: Recipe) -> Iterator[TextSample]:
    """A block in which the beginning of the recipe's text is prepared in a temporary folder.

    Raises:
        DataError, UsageError and others: the text cannot be read.
    """
    corpus, pixels = recipe.corpus, build.pixels(recipe)
    plain = {f: getattr(Corpus(), f) for f in ("weights", "weights_end", "temperature", "mix_by")}
    limit = min(corpus.limit_bytes or COUNTED_BYTES, COUNTED_BYTES)
    corpus = replace(corpus, characters=None, held_out_text=(), limit_bytes=limit, **plain)
    sample_bytes = min(limit, SAMPLE_BYTES if corpus.text else EMBEDDED_BYTES)
    beginning = replace(corpus, limit_bytes=sample_bytes, held_out=HELD_OUT)
    with tempfile.TemporaryDirectory(prefix="maskwright-") as name:
        prepared = prepare(replace(recipe, corpus=beginning), Path(name), quiet, pixels)
        stores = (*prepared.train, prepared.held_out)
        tokens = sum(store.num_tokens for store in stores)
        stored_bytes = sum(int(store.document_bytes.sum()) for store in stores)
        complete = pixels is not None or stored_bytes < sample_bytes
        if not complete:
            (text,) = texts_of(corpus, Path(name))
            all_bytes = sum(len(d.text.encode()) for d in text.for_tokenizer(keep=0))
            all_bytes = round(all_bytes / (1 - corpus.held_out))
            if all_bytes >= COUNTED_BYTES and recipe.corpus.limit_bytes is None:
                all_bytes = max(all_bytes, text_bytes(recipe.corpus))
            tokens = round(tokens * all_bytes / stored_bytes)
        yield TextSample(prepared, tokens, complete)


def measure(recipe: Recipe, sample: TextSample | None = None, *, seconds: float = 2.0) -> StepCost:
    """Measure the steps of `recipe` for about `seconds`, after the model is built; a single step
    may take longer. The seconds of the processor are measured and scaled by the share of it that
    this process had, so that no single pause next to other programs counts.

    Args:
        sample: text for a recipe with this tokenizer; None: it is prepared.

    Raises:
        MaskwrightError: the recipe is impossible, or its text cannot be read.
    """
    if sample is None:
        with sampled(recipe) as sample:
            return measure(recipe, sample, seconds=seconds)
    recipe, prepared = recipe if sample.complete else with_vocabulary(recipe), sample.prepared
    machine.use_threads(recipe.training.threads)
    chosen = machine.choose(recipe.training.precision, recipe.training.device)
    architecture = build.transformer_config(recipe, prepared.words)
    check_length(recipe, architecture)
    network = build.model(recipe, architecture)
    objective = build.objective(recipe, network.to(chosen.device), prepared.words)
    flops, unigram_loss = flops_of_phases(recipe, prepared, objective), math.nan
    optimizer = start_optimizer(recipe.training.optimizer, Parameters(objective, chosen.compute))
    training, phases = recipe.training, recipe.phases
    shortest = min(range(len(phases)), key=lambda number: phases[number].length)
    length, most_rows = phases[shortest].length, phases[shortest].batch // training.microbatches
    source = training_rows(replace(recipe, corpus=Corpus()), prepared.train, length)
    if recipe.objective.spec.predicts != "pixels":
        counts = held_out_loss.token_counts(prepared.train)
        held_out = held_out_rows(recipe, prepared.held_out, length)
        lines = held_out_loss.reference_lines(objective, counts, source, held_out, rows=64)
        unigram_loss = lines.unigram_loss
    budget = Budget(steps=1 << 20)
    plan = loop.TrainingPlan(training.seed, 1, budget, training.schedule, chosen.device, "skip")
    state = TrainState()
    clock = time.process_time if chosen.device.type == "cpu" else time.perf_counter

    def step(rows: int) -> float:
        batches = Microbatches(objective, [(1.0, Loader(source, rows, 0))], plan, state)
        start = clock()
        loop.step(objective, batches, optimizer, plan, state, Processes())
        return clock() - start

    objective.train()
    machine.keep_memory()
    with machine.flushed():
        rows, begin, wall = 1, clock(), time.perf_counter()
        step(rows)  # prepares kernels
        times = [step(rows)]
        while rows < most_rows and times[0] < TRIAL_SHARE * seconds:
            rows = min(most_rows, 2 * rows)
            times = [step(rows)]
        while clock() - begin < seconds:
            times.append(step(rows))
        start = clock()
        optimizer.step(0.0)
        update = clock() - start
        share = (clock() - begin) / (time.perf_counter() - wall)
    per_flop = max(0.0, statistics.median(times) - update) / (rows * length * flops[shortest])
    shares = np.diff([0.0, *(phase.until for phase in phases)])
    tokens = shares * [phase.batch * phase.length for phase in phases]
    return StepCost(
        parameters=objective.product.num_parameters(),
        tokens=float(tokens.sum()),
        flops=float(tokens @ flops / tokens.sum()),
        seconds=(update + per_flop * float(tokens @ flops)) / share,
        memory=_memory(recipe, architecture, chosen.compute, state.targets / state.tokens),
        processor_share=share,
        unigram_loss=unigram_loss,
    )


def estimate(recipe: Recipe, seconds_per_flop: float) -> StepCost | None:
    """Estimate the cost of `recipe` from its number of operations, in milliseconds and without its
    text; None for a model without layers. Operations of further networks of an objective are not
    counted, and the memory is a lower limit; of small models `measure` tells more.

    Args:
        seconds_per_flop: of this machine, from `measure`: seconds / (tokens * flops).

    Raises:
        MaskwrightError: the model family does not know a setting.
    """
    recipe = with_vocabulary(recipe)
    architecture = build.transformer_config(recipe, None)
    with torch.device("meta"):
        network = Transformer(architecture)
    *_, output_stack = architecture.stacks
    share = 1.0 if output_stack == "decoder" else ENCODER_TARGETS
    lengths_of = recipe.objective.spec.lengths
    tokens, flops, start = 0.0, 0.0, 0.0
    for phase in recipe.phases:
        counted = step_cost.cost(network, phase.length, phase.length)
        lengths = [phase.length] * 2
        if lengths_of and len(architecture.stacks) == 2:
            lengths = list(lengths_of(recipe.objective.checked, phase.length))
        operations = sum(
            length * counted.training(stack, share if stack == output_stack else 0.0)
            for stack, length in zip(architecture.stacks, lengths, strict=False)
        )
        rows, start = (phase.until - start) * phase.batch, phase.until
        tokens, flops = tokens + rows * phase.length, flops + rows * operations
    if not flops:
        return None
    return StepCost(
        parameters=network.num_parameters(),
        tokens=tokens,
        flops=flops / tokens,
        seconds=flops * seconds_per_flop,
        memory=_memory(recipe, architecture, machine.choose().compute, share),
    )


def _memory(
    recipe: Recipe, architecture: TransformerConfig, compute: torch.dtype, targets: float
) -> int:
    """Return the peak bytes of a run; `targets`: per token."""
    of_parameters, activations = training_bytes(architecture, compute, recipe)
    tokens = max(phase.batch * phase.length for phase in recipe.phases)
    head = architecture.vocabulary_head is not None
    scores_per_token = targets * architecture.tokens.vocabulary if head else 0.0
    at_once = OF_ACTIVATIONS * activations + OF_SCORES * scores_per_token * tokens
    evaluated = recipe.evaluation.batch * recipe.phases[-1].length * scores_per_token
    evaluation = OF_EVALUATED * min(evaluated, held_out_loss.SCORES_AT_ONCE)
    bytes_of_data = at_once / recipe.training.microbatches + evaluation
    return round(OF_PROCESS + OF_RUN + of_parameters + bytes_of_data)


def with_vocabulary(recipe: Recipe) -> Recipe:
    """Return `recipe` with a network as large as the vocabulary that its tokenizer is to learn,
    which a sample may be too short for."""
    size, model = getattr(recipe.tokenizer, "vocabulary", None), recipe.model
    if size is None or not isinstance(model, FamilyModel):
        return recipe
    return replace(recipe, model=replace(model, settings={"vocab_size": size, **model.settings}))


# ------------------------------------------------------------------------------ tables
MEASURED = "bert-mini"
TOKENS_PER_PARAMETER = 20  # Hoffmann et al. 2022, arXiv:2203.15556, table 3
CostRow = tuple[str, str, str, int, float, float]
"""Name, family, objective, number of parameters, tokens per second, seconds of the training; of
models that are not estimated, such as those without layers, the last three are 0."""


def table(set_name: str) -> list[CostRow]:
    """Return the rows of the recipes, whose seconds are those of their budget, or of the models,
    whose seconds are those of `TOKENS_PER_PARAMETER`."""
    measured = measure(find(MEASURED))
    per_flop = measured.seconds_per_token / measured.flops
    recipes = {name: find(name) for name in catalogue.names("recipes")}
    if set_name == "models":
        return [_row(*model, per_flop, TOKENS_PER_PARAMETER) for model in _models(recipes)]
    return [_row(name, recipe, per_flop) for name, recipe in recipes.items()]


def _models(recipes: dict[str, Recipe]) -> Iterator[tuple[str, Recipe]]:
    """Yield a recipe for each published size of each family that some recipe trains."""
    of_family: dict[str, tuple[Recipe, FamilyModel]] = {}
    for recipe in recipes.values():
        if isinstance(model := recipe.model, FamilyModel):
            of_family.setdefault(model.family, (recipe, model))
    for family in sorted(of_family):
        recipe, model = of_family[family]
        for size, settings in catalogue.load("families", family).SIZES.items():
            words = {key: value for key, value in settings.items() if key == "vocab_size"}
            sized = replace(model, size=size, settings=words)
            yield f"{family}-{size}", replace(recipe, model=sized)


def _row(name: str, recipe: Recipe, per_flop: float, per_parameter: int = 0) -> CostRow:
    family = recipe.model.family if isinstance(recipe.model, FamilyModel) else "-"
    head = (name, family, recipe.objective.name)
    try:
        cost = estimate(recipe, per_flop)
    except MaskwrightError:  # sizes of another kind than the recipe of the family
        cost = None
    if cost is None:
        return (*head, 0, 0.0, 0.0)
    budget, per_token = recipe.training.budget, cost.seconds_per_token
    if per_parameter:
        seconds = per_parameter * cost.parameters * per_token
    elif budget.minutes is not None:
        seconds = 60 * budget.minutes
    else:
        steps = (budget.steps or 0) * cost.seconds
        seconds = steps or (budget.tokens or 0) * per_token or (budget.flops or 0) * per_flop
    return (*head, cost.parameters, 1 / per_token, seconds if math.isfinite(seconds) else 0.0)
