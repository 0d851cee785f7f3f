"""From a text, a time, memory and disk to a recipe: `plan`.

The size is the largest of `SHAPES` that reads `TOKENS_PER_PARAMETER` tokens for each parameter in
the time (Hoffmann et al. 2022, section 3); the run then lasts for the whole time. Speed and memory
are measured (`cost.py`) on the sizes that come into question.

The held-out loss is predicted from recorded runs (scaling.json): its ratio to the loss of token
frequencies is fitted by least squares, linear in the logarithms of parameters and tokens. The
interval is the 90 % prediction interval of one more run. Far from the recorded sizes there is none.
"""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from maskwright.base.budget import Budget
from maskwright.base.config import to_toml
from maskwright.base.errors import ConfigError, Finding, ResourceError
from maskwright.base.report import document
from maskwright.base.report.document import count, duration, for_terminal, size
from maskwright.base.terminal import Say, quiet, shell_word
from maskwright.learn.pretrain.cost import (
    TOKENS_PER_PARAMETER,
    StepCost,
    TextSample,
    estimate,
    measure,
    sampled,
)
from maskwright.learn.pretrain.session import checkpoint_bytes
from maskwright.learn.recipes.base.find import config_of, find, require_settings, with_text
from maskwright.learn.recipes.base.recipe import FamilyModel, Recipe
from maskwright.model.families.base.family import family
from maskwright.text.tokenizer.training.train import TokenizerChoice

# Layers, width, vocabulary.
SHAPES = [(2, 64, 1024), (2, 128, 2048), (4, 192, 4096), (4, 256, 8192), (6, 384, 8192)]
SHAPES += [(8, 512, 16384), (12, 768, 30522)]
HEAD_WIDTH, FIRST_SHAPE = 64, 2
RATE_EXPONENT = -0.75  # of the learning rate by width
OTHER_FAMILIES = ("gpt2-mini", "modernbert-mini", "electra-mini")
STEPS, SMALLEST_STEP, FEWEST_TOKENS = 1_000, 1_024, 100_000  # tokens of a step, of a run
LONGER = 4
MOST_PASSES = 4.0  # over the text (Muennighoff et al. 2023, section 5)
SHARE_OF_TIME, SECONDS = 0.95, 2.0
RECORDED, INTERVAL, BEYOND = Path(__file__).with_name("scaling.json"), 0.9, 2.0


@dataclass(frozen=True)
class PlannedRun:
    """A recipe and what it costs.

    Attributes:
        tokens: that the run reads.
        passes: how often it reads the whole text; NaN if the text is not known.
        documents: of the whole text; of a long text an estimate.
        disk: bytes of stores and checkpoints.
        loss: held-out loss in nats per target (low, expected, high); None if it is not predicted.
    """

    name: str
    recipe: Recipe
    cost: StepCost
    tokens: float
    passes: float
    documents: float
    disk: float
    loss: tuple[float, float, float] | None

    @property
    def seconds(self) -> float:
        """Seconds of training, without preparation and evaluation."""
        return self.tokens * self.cost.seconds_per_token

    @property
    def cells(self) -> list[str]:
        """The row of a table with the head `HEAD`."""
        return [
            self.name,
            *map(count, (self.cost.parameters, self.tokens, self.tokens / self.cost.tokens)),
            "–" if math.isnan(self.passes) else f"{self.passes:.2g}",
            duration(self.seconds),
            size(self.cost.memory),
            size(self.disk),
            "–" if self.loss is None else "{1:.2f} ({0:.2f} to {2:.2f})".format(*self.loss),
        ]


HEAD = ["plan", "parameters", "tokens", "steps", "passes", "time", "memory", "disk", "loss"]
NOTE = """time of training here and now, without preparation and evaluation; passes over the text;
loss held out, in nats per target, with a 90 % interval from recorded runs (–: none are like it)"""


def plan(
    recipe: Recipe,
    *,
    time: str | None = None,
    memory: float = math.inf,
    disk: float = math.inf,
    write_recipe: Path | None = None,
    say: Say = quiet,
) -> list[PlannedRun]:
    """As `api.plan`, of a recipe with its text; what is printed goes to `say`."""
    budget = None if time is None else Budget.parse(time, where="time", units=("minutes",))
    require_settings(recipe)
    if write_recipe is not None:
        document.require_new(write_recipe, do="choose another --write-recipe")
    plans = _plans(recipe, None if budget is None else budget.minutes, memory, disk)
    rows = [run.cells for run in plans]
    planned = plans[0]
    title = recipe.name
    if not math.isnan(planned.passes):
        words = count(planned.tokens / planned.passes)
        title += f", on {count(planned.documents)} documents of {words} tokens"
    say(for_terminal({"title": title, "head": HEAD, "rows": rows, "note": NOTE}))
    if planned.passes > MOST_PASSES:
        message = f"the text has {count(planned.tokens / planned.passes)} tokens, so each is read "
        message += f"{planned.passes:.0f} times"
        why = f"beyond {MOST_PASSES:.0f} times this adds little (Muennighoff et al. 2023)"
        say(Finding("few-tokens", message, why, "give more text, or less time").line())
    if write_recipe is not None:
        document.write(write_recipe, to_toml(planned.recipe))
        say(f"recipe: {write_recipe}\nnext:\n  maskwright pretrain {shell_word(write_recipe)}")
    return plans


def _plans(recipe: Recipe, minutes: float | None, memory: float, disk: float) -> list[PlannedRun]:
    with contextlib.ExitStack() as stack:
        if minutes is None:
            sample = stack.enter_context(sampled(recipe))
            return [_planned(recipe.name, recipe, measure(recipe, sample), sample)]
        seconds, runs = SHARE_OF_TIME * 60 * minutes, dict[int, PlannedRun]()
        samples = dict[int, TextSample]()
        shape, largest = FIRST_SHAPE, len(SHAPES) - 1
        while shape not in runs:
            shaped = _shaped(recipe, shape)
            samples[shape] = stack.enter_context(sampled(shaped))
            cost = measure(shaped, samples[shape], seconds=SECONDS / 2)
            shaped = _in_time(shaped, cost, seconds)
            runs[shape] = run = _planned("", shaped, cost, samples[shape])
            least = FEWEST_TOKENS * cost.seconds_per_token
            if cost.memory > memory or run.disk > disk or least > seconds:
                if shape == 0:
                    raise _infeasible(run, minutes, memory, disk)
                largest = min(largest, shape - 1)
            per_flop = cost.seconds_per_token / cost.flops
            for shape in range(largest, -1, -1):
                guess = estimate(_shaped(recipe, shape), per_flop) or cost
                guess = runs[shape].cost if shape in runs else guess
                least = TOKENS_PER_PARAMETER * guess.parameters * guess.seconds_per_token
                if least <= seconds:
                    break
        tokens, plans = runs[shape].tokens, list[PlannedRun]()
        kinds = [("the plan", recipe, shape), ("smaller", recipe, shape - 1)]
        kinds += [("larger", recipe, shape + 1)] * (shape < len(SHAPES) - 1)
        others = [with_text(find(name), recipe.corpus.text) for name in OTHER_FAMILIES]
        kinds += [(base.name, base, shape) for base in others if base.name != recipe.name]
        for name, base, number in kinds:
            if number < 0:
                continue
            shaped = _with_batch(_shaped(base, number), tokens)
            if base is not recipe or number not in samples:
                samples[number] = stack.enter_context(sampled(shaped))
            sample = samples[number]
            cost = measure(shaped, sample, seconds=SECONDS / (4 if plans else 1))
            run = _planned(name, _in_time(shaped, cost, seconds), cost, sample)
            if plans and (cost.memory > memory or run.disk > disk):
                continue
            plans.append(run)
            if len(plans) == 1:
                shaped = _in_time(shaped, cost, LONGER * seconds)
                plans.append(_planned(f"{LONGER} times as long", shaped, cost, sample))
        return plans


def _shaped(recipe: Recipe, shape: int) -> Recipe:
    """Return `recipe` with a model of `SHAPES[shape]`, with a learning rate for its width."""
    layers, width, vocabulary = SHAPES[shape]
    model, training = recipe.model, recipe.training
    if not isinstance(model, FamilyModel) or not isinstance(recipe.tokenizer, TokenizerChoice):
        raise ConfigError(
            "the model of this recipe has a size, or a tokenizer, of its own",
            where="--recipe",
            found=recipe.name,
            wanted=f"a recipe of a new model, such as bert-mini, {', '.join(OTHER_FAMILIES)}",
            do="leave out --time to see what it costs as it is",
        )
    member = family(model.family)
    settings = {**(member.sizes[model.size] if model.size else {}), **model.settings}
    settings.pop("vocab_size", None)
    scaled = member.scaled(settings, width, layers, heads=max(2, width // HEAD_WIDTH))
    before = config_of(model, {"vocab_size": vocabulary}).width
    rate = training.optimizer.learning_rate * (width / before) ** RATE_EXPONENT
    optimizer = replace(training.optimizer, learning_rate=float(f"{rate:.3g}"))
    return replace(
        recipe,
        name=f"{recipe.name}-{layers}x{width}",
        model=replace(model, size=None, settings=scaled),
        tokenizer=replace(recipe.tokenizer, vocabulary=vocabulary),
        training=replace(training, optimizer=optimizer, phases=(), microbatches=1),
    )


def _with_batch(recipe: Recipe, tokens: float) -> Recipe:
    """Return `recipe` with a smaller batch where a run of `tokens` would have few steps."""
    rows = max(1, max(SMALLEST_STEP, tokens / STEPS) / recipe.rows.length)
    batch = min(recipe.training.batch, 2 ** round(math.log2(rows)))
    return replace(recipe, training=replace(recipe.training, batch=batch))


def _in_time(recipe: Recipe, cost: StepCost, seconds: float) -> Recipe:
    """Return `recipe` with as many steps as last `seconds`, evaluated and saved five times."""
    steps = max(1, int(seconds / cost.seconds))
    every = -(-steps // 5)
    return replace(
        recipe,
        training=replace(recipe.training, budget=Budget(steps=steps)),
        evaluation=replace(recipe.evaluation, every=every),
        checkpoints=replace(recipe.checkpoints, every=every),
    )


def _planned(name: str, recipe: Recipe, cost: StepCost, sample: TextSample) -> PlannedRun:
    budget = recipe.training.budget
    tokens_each = {"steps": cost.tokens, "tokens": 1, "flops": 1 / max(1, cost.flops)}
    tokens = budget.total * tokens_each.get(budget.unit, 60 / cost.seconds_per_token)
    vocabulary = sample.prepared.held_out.vocabulary_size
    uniform_loss = math.log(max(1, vocabulary))
    store = sample.tokens * (2 if vocabulary < 1 << 16 else 4)
    stores = (*sample.prepared.train, sample.prepared.held_out)
    sum_of_tokens = max(1, sum(s.num_tokens for s in stores))
    return PlannedRun(
        name=name,
        recipe=recipe,
        cost=cost,
        tokens=tokens,
        passes=tokens / sample.tokens if sample.tokens else math.nan,
        documents=sum(s.num_documents for s in stores) * sample.tokens / sum_of_tokens,
        disk=store + checkpoint_bytes(cost.parameters, recipe, sample.prepared.held_out.path),
        loss=expected_loss(
            recipe.objective.name, cost.parameters, tokens, cost.unigram_loss, uniform_loss
        ),
    )


def _infeasible(run: PlannedRun, minutes: float, memory: float, disk: float) -> ResourceError:
    """The error that names the limit which the smallest model exceeds, and what is feasible."""
    limits = [("--memory", size(memory), size(run.cost.memory))] * (run.cost.memory > memory)
    limits += [("--disk", size(disk), size(run.disk))] * (run.disk > disk)
    least = FEWEST_TOKENS * run.cost.seconds_per_token / SHARE_OF_TIME
    where, limit, needed = [*limits, ("--time", duration(60 * minutes), duration(least + 1))][0]
    return ResourceError(
        "no model can be trained within this limit",
        where=where,
        found=limit,
        wanted=f"at least {needed}: {count(FEWEST_TOKENS)} tokens, {count(run.cost.parameters)} "
        "parameters",
        do=f"raise {where}",
    )


def expected_loss(
    objective: str, parameters: float, tokens: float, unigram_loss: float, uniform_loss: float
) -> tuple[float, float, float] | None:
    """Return the held-out loss in nats per target with its 90 % prediction interval, as (low,
    expected, high), at most `uniform_loss`; None if no recorded run of the objective is nearly as
    small or as large, or had such a text."""
    recorded = [r for r in json.loads(RECORDED.read_text())["runs"] if r["objective"] == objective]
    sizes = np.log([[r["parameters"], r["tokens"]] for r in recorded] or np.ones((1, 2)))
    point, beyond = np.log([[parameters, tokens]]), math.log(BEYOND)
    outside = (point < sizes.min(0) - beyond).any() or (point > sizes.max(0) + beyond).any()
    unigrams = [r["unigram_loss"] for r in recorded] or [math.nan]
    if not min(unigrams) / BEYOND <= unigram_loss <= max(unigrams) * BEYOND:
        return None  # not a text like those of the runs
    if outside or len(sizes) <= 4:
        return None
    features, asked_for = (np.c_[np.ones(len(x)), x] for x in (sizes, point))
    ratios = np.array([r["loss"] / r["unigram_loss"] for r in recorded])
    weights = np.linalg.lstsq(features, ratios, rcond=None)[0]
    freedom = len(ratios) - features.shape[1]
    variance = ((ratios - features @ weights) ** 2).sum() / freedom
    leverage = float((asked_for @ np.linalg.pinv(features.T @ features) @ asked_for.T).item())
    half = float(stdtrit(freedom, (1 + INTERVAL) / 2)) * math.sqrt(variance * (1 + leverage))
    ratio = float((asked_for @ weights).item())
    losses = (unigram_loss * r for r in (ratio - half, ratio, ratio + half))
    low, expected, high = (min(loss, uniform_loss) for loss in losses)
    return low, expected, high
