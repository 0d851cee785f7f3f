"""What a pretraining costs on this machine: seconds of a step and memory, measured in a few steps.

The network, the objective and the optimizer are the recipe's own; rows come from a sample of its
text, or of generated text where it names none. If a whole microbatch takes too long, fewer rows are
computed and the time is scaled by tokens; phases of other lengths are scaled by their operations.
Everything is in a temporary folder, which is removed.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from maskwright.base.budget import Budget
from maskwright.base.memory import resident
from maskwright.base.randomness import key, uniforms
from maskwright.base.terminal import quiet
from maskwright.learn.pretrain import build
from maskwright.learn.pretrain.prepare import PreparedCorpus, prepare
from maskwright.learn.pretrain.rows import Microbatches, training_rows
from maskwright.learn.pretrain.run import flops_of_phases
from maskwright.learn.pretrain.session import training_bytes
from maskwright.learn.pretrain.text import text_bytes, texts_of
from maskwright.learn.recipes.base.recipe import Corpus, FamilyModel, Recipe, TokenizerFolder
from maskwright.learn.train import loop
from maskwright.learn.train.optimizers import Parameters, start_optimizer
from maskwright.learn.train.state import Processes, TrainState
from maskwright.model.device import machine, step_cost
from maskwright.model.nn.transformer import Transformer
from maskwright.text.images.processor import ImageProcessor
from maskwright.text.store.loader import Loader

SAMPLE_BYTES = 1 << 20
COUNTED_BYTES = 256 << 20  # of a longer text the size of its files is taken
HELD_OUT_OF_SAMPLE = 0.1
GENERATED_DOCUMENTS, GENERATED_WORDS, GENERATED_VOCABULARY = 64, 1200, 512
ENCODER_TARGETS = 0.15  # the share of the positions that an encoder predicts
TRIAL_SHARE = 0.3  # of the seconds, from which on more rows are not tried


@dataclass(frozen=True)
class StepCost:
    """The cost of a recipe's optimizer step on this machine.

    Attributes:
        parameters: number of parameters of the model that is saved.
        tokens: tokens of a step, the mean over the phases of the run.
        flops: floating-point operations of matrix products per token, forward and backward.
        seconds: seconds of a step, the mean over the phases.
        memory: peak bytes of the process.
    """

    parameters: int
    tokens: float
    flops: float
    seconds: float
    memory: int

    @property
    def seconds_per_token(self) -> float:
        return self.seconds / self.tokens


@dataclass(frozen=True)
class TextSample:
    """The prepared beginning of a recipe's text.

    Attributes:
        tokens: number of tokens of the whole text, its held-out part included; exact if the text
            is not longer than the sample. 0: the text is generated.
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
        IncompatibleError: the recipe reads images and names none.
    """
    with tempfile.TemporaryDirectory(prefix="maskwright-") as name:
        folder, corpus = Path(name), recipe.corpus
        (folder / "run").mkdir()
        unmixed = replace(
            corpus,
            weights=(),
            weights_end=(),
            temperature=None,
            mix_by=None,
            characters=None,
            held_out_text=(),
            held_out=HELD_OUT_OF_SAMPLE,
        )
        tokenizer = recipe.tokenizer
        if not corpus.text:
            (folder / "text.txt").write_text(_generated(), encoding="utf-8")
            unmixed = Corpus(text=(str(folder / "text.txt"),), held_out=HELD_OUT_OF_SAMPLE)
            if not isinstance(tokenizer, TokenizerFolder | ImageProcessor):
                size = min(tokenizer.vocabulary, GENERATED_VOCABULARY)
                tokenizer = replace(tokenizer, vocabulary=size, min_frequency=1)
        limit = min(corpus.limit_bytes or COUNTED_BYTES, COUNTED_BYTES)
        beginning = replace(unmixed, limit_bytes=min(limit, SAMPLE_BYTES))
        shortened = replace(recipe, corpus=beginning, tokenizer=tokenizer)
        prepared = prepare(shortened, folder / "run", quiet, build.pixels(recipe))
        stores = (*prepared.train, prepared.held_out)
        tokens = sum(store.num_tokens for store in stores) if corpus.text else 0
        sample_bytes = sum(int(store.document_bytes.sum()) for store in stores)
        complete = bool(corpus.text) and (build.pixels(recipe) or sample_bytes < SAMPLE_BYTES)
        if corpus.text and not complete:
            (text,) = texts_of(replace(unmixed, limit_bytes=limit), folder)
            all_bytes = sum(len(d.text.encode()) for d in text.for_tokenizer(keep=0))
            all_bytes = round(all_bytes / (1 - HELD_OUT_OF_SAMPLE))
            if corpus.limit_bytes is None and all_bytes >= COUNTED_BYTES:
                all_bytes = max(all_bytes, text_bytes(corpus))
            tokens = round(tokens * all_bytes / sample_bytes)
        yield TextSample(prepared, tokens, bool(complete))


def measure(
    recipe: Recipe,
    sample: TextSample | None = None,
    *,
    seconds: float = 2.0,
    clock: Callable[[], float] = time.perf_counter,
) -> StepCost:
    """Measure the steps of `recipe` for about `seconds`, after the model is built; a single step
    may take longer.

    Args:
        sample: text for a recipe with this tokenizer; None: it is prepared.
        clock: returns the time in seconds.

    Raises:
        MaskwrightError: the recipe is impossible, or its text cannot be read.
    """
    if sample is None:
        with sampled(recipe) as sample:
            return measure(recipe, sample, seconds=seconds, clock=clock)
    recipe, prepared = recipe if sample.complete else with_vocabulary(recipe), sample.prepared
    machine.use_threads(recipe.training.threads)
    chosen = machine.choose(recipe.training.precision, recipe.training.device)
    architecture = build.transformer_config(recipe, prepared.words)
    network = build.model(recipe, architecture).to(chosen.device)
    objective = build.objective(recipe, network, prepared.words)
    flops = flops_of_phases(recipe, prepared, objective)
    parameters = Parameters(objective, chosen.compute)
    optimizer = start_optimizer(recipe.training.optimizer, parameters)
    training, phases = recipe.training, recipe.phases
    shortest = min(range(len(phases)), key=lambda number: phases[number].length)
    length, most_rows = phases[shortest].length, phases[shortest].batch // training.microbatches
    source = training_rows(recipe, prepared.train, length)
    plan = loop.TrainingPlan(
        seed=training.seed,
        microbatches=1,
        budget=Budget(steps=1 << 20),
        schedule=training.schedule,
        device=chosen.device,
        on_nonfinite="skip",
    )
    state = TrainState()

    def step(rows: int) -> float:
        batches = Microbatches(objective, [(1.0, Loader(source, rows, 0))], plan, state)
        start = clock()
        loop.step(objective, batches, optimizer, plan, state, Processes())
        return clock() - start

    objective.train()
    machine.keep_memory()
    machine.forget_peak(chosen.device)
    with machine.flushed():
        rows, begin = 1, clock()
        step(rows)  # prepares kernels
        times, small = [step(rows)], resident()
        while rows < most_rows and times[0] < TRIAL_SHARE * seconds:
            rows = min(most_rows, 2 * rows if times[0] < TRIAL_SHARE * seconds / 2 else rows + 1)
            times = [step(rows)]
        while clock() - begin < seconds:
            times.append(step(rows))
        memory = machine.peak_memory(chosen.device)
        start = clock()
        optimizer.step(0.0)
        update = clock() - start
    per_flop = max(0.0, statistics.median(times) - update) / (rows * length * flops[shortest])
    untils = [0.0, *(phase.until for phase in phases)]
    shares = np.diff(untils)
    tokens = np.array([phase.batch * phase.length for phase in phases])
    return StepCost(
        parameters=objective.product.num_parameters(),
        tokens=float(shares @ tokens),
        flops=float((shares * tokens) @ flops / (shares @ tokens)),
        seconds=update + per_flop * float((shares * tokens) @ flops),
        memory=memory + (memory - small) * (most_rows - rows) // max(1, rows),
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
    tokens, flops, start = 0.0, 0.0, 0.0
    for phase in recipe.phases:
        counted = step_cost.cost(network, phase.length, phase.length)
        lengths = recipe.objective.spec.lengths
        read, written = (
            lengths(recipe.objective.checked, phase.length) if lengths else [phase.length] * 2
        )
        operations = sum(
            (written if stack == "decoder" and len(architecture.stacks) == 2 else read)
            * counted.training(stack, share if stack == output_stack else 0.0)
            for stack in architecture.stacks
        )
        steps = phase.until - start
        tokens += steps * phase.batch * phase.length
        flops += steps * phase.batch * operations
        start = phase.until
    if not flops:
        return None
    of_parameters, activations = training_bytes(architecture, machine.choose().compute, recipe)
    return StepCost(
        parameters=network.num_parameters(),
        tokens=tokens,
        flops=flops / tokens,
        seconds=flops * seconds_per_flop,
        memory=of_parameters + activations // recipe.training.microbatches,
    )


def with_vocabulary(recipe: Recipe) -> Recipe:
    """Return `recipe` with a network as large as the vocabulary that its tokenizer is to learn,
    which a sample may be too short for."""
    size, model = getattr(recipe.tokenizer, "vocabulary", None), recipe.model
    if size is None or not isinstance(model, FamilyModel):
        return recipe
    return replace(recipe, model=replace(model, settings={"vocab_size": size, **model.settings}))


def _generated() -> str:
    """Return documents of sentences of made-up words, whose frequencies follow Zipf's law."""
    letters, draws = np.array(list("etaoinshrdlu")), uniforms(key("draw", 0), 12_000)
    spelled = letters[(draws * len(letters)).astype(int)].reshape(2_000, 6)
    words = ["".join(word[: 2 + rank % 5]) for rank, word in enumerate(spelled)]
    zipf = np.cumsum(1 / np.arange(1, len(words) + 1))
    documents = []
    for number in range(GENERATED_DOCUMENTS):
        points = zipf[-1] * uniforms(key("draw", 1, number), GENERATED_WORDS)
        chosen = np.searchsorted(zipf, points)
        sentences = [
            " ".join(words[index] for index in chosen[begin : begin + 12]).capitalize() + "."
            for begin in range(0, GENERATED_WORDS, 12)
        ]
        documents.append(" ".join(sentences))
    return "\n\n".join(documents) + "\n"
