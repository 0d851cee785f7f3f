"""Selection of method and settings (`--method auto`, `--search N`) by scores on held-out rows.

Candidates are the fitted methods that support the task, and the training of all weights; or the
method that is named. A search adds N other settings of the training. All candidates are compared on
the same folds: as many as fit into the time budget, at least two; those for which there is no time
are left out. Of equal scores the cheaper method wins; on fewer than 20 rows, which do not show that
methods are equally good, the other.

The budget is wall time. It includes the estimates of costs, the trials and the predictions for all
folds. A candidate that would exceed it is stopped after a training step or a fold; only the
cheapest is not, as one has to be selected. The training of the selected method comes after it.

What candidates are scored on follows from the parts of the data:

    only "train"                 its folds. Each fold is then predicted by the method that is best
                                 on the other folds, which gives the reported score. If there is
                                 time, models that have not seen the fold decide it (nested
                                 cross-validation, ten more trainings for five folds: Varma & Simon
                                 2006, doi 10.1186/1471-2105-7-91); else the score may flatter, in a
                                 simulation of four methods that guess by 2 to 3 of 100. The saved
                                 model is of the method that is best on all folds.
    a test part, and 100 or more the validation part, which also chooses the epoch; the model that
    validation rows              was tried is the first seed of the result
    otherwise                    folds of "train", of 1,000 or more rows one; other parts are not
                                 touched

With many rows a search begins with short trials (successive halving: Jamieson & Talwalkar 2016,
arXiv:1502.07943): a third of the settings remains after learning from a ninth of the rows, a third
of these after learning from a third of the rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from maskwright.base import catalogue
from maskwright.base.errors import DataError, UsageError
from maskwright.base.randomness import key, permute
from maskwright.base.report import document
from maskwright.base.report.document import Table, duration
from maskwright.base.report.panel import WorkPanel
from maskwright.base.terminal import Say, counted, decimals, printer, quiet
from maskwright.learn.finetune.cost import OutOfTimeError, seconds_of_training
from maskwright.learn.finetune.cross_validation import (
    DIVIDED_FROM,
    Folding,
    OutOfFold,
    fold,
    fold_outputs,
    is_cross_validated,
    join_folds,
)
from maskwright.learn.finetune.finished_seeds import FoldOutputs
from maskwright.learn.finetune.learner import SELECTABLE, BaseLearner, SeedResult, learner_of
from maskwright.learn.finetune.method import AUTO, FITTED, Method
from maskwright.learn.finetune.methods.base.fitted import STEP
from maskwright.learn.finetune.recipe import FinetuneRecipe, without_effect
from maskwright.learn.finetune.tune import Settings, StepHook, defined, steps_of
from maskwright.learn.tasks.base.choices import Long
from maskwright.learn.tasks.base.task_type import Encoded, Outputs, TaskMetrics, TaskType, task_of
from maskwright.learn.train import loop
from maskwright.model.device.machine import Machine
from maskwright.model.opening.folders import Model
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TEST, TRAIN, VALIDATION

BUDGET = 300.0  # seconds
ESTIMATES = 0.5  # share of the budget after which no further cost is estimated
# The n-th settings of a search are at n times these positions, modulo 1, which cover a cube evenly:
# powers of the real root of x⁴ = x + 1 (Roberts 2018).
SEARCH_STEPS = 1.2207440846057596 ** -np.arange(1.0, 4.0)
# The fewest training rows of a short trial: with fewer, the least number of steps makes it no
# shorter. So many settings have no short trial.
SHORT_TRIAL_ROWS, SEARCH_FINALISTS = 1_000, 3
# With fewer validation rows their choice among methods is worth less than that of all folds.
CHOOSING_ROWS = 100
# Settings that say what is learned: a method without them would learn something else.
LEARNED = ("class_weights", "label_smoothing", "teacher")
UNTOUCHED = "The score of the result comes from rows that the selection has not seen."
NESTED = (
    "The score of the result is nested: each row is predicted by a method that was selected "
    "without this row."
)
ALMOST_NESTED = (
    "The score of the result is that of methods selected for each fold by the predictions for the "
    "others, of models that were trained on the fold, too; so it may be slightly too high."
)


@dataclass(frozen=True)
class MethodSelection:
    """The selected method and how it came about.

    Attributes:
        recipe: with the method and the settings.
        learner: that of the method.
        network: the learner of the training of weights, for the answers of the model as it is.
        record: for `results.json`: "basis", the rows that decided; "assurance", a sentence on how
            the score of the result came about; and "trials", what became of each candidate.
        table: the trials for readers.
        first_seed: the result of the first seed, if the trial trained it.
        out_of_fold: the predictions for all folds by the methods that the others select, if there
            is no other part.
    """

    recipe: FinetuneRecipe
    learner: BaseLearner
    network: BaseLearner
    record: Mapping[str, Any]
    table: Table
    first_seed: SeedResult | None
    out_of_fold: OutOfFold | None


def candidates(
    recipe: FinetuneRecipe,
    trained: Method,
    task_type: TaskType,
    num_rows: int,
    width: int,
    is_repeated: bool,
) -> dict[str, FinetuneRecipe | str]:
    """Return the recipes that are compared, by name; in place of a method that is for fewer rows,
    reads no such long texts, or ignores what `recipe` says should be learned, the reason.

    Args:
        trained: the method that trains weights.
        width: of the network, on which the usual learning rate depends.
        is_repeated: as of `FinetuneRecipe.with_method`.
    """
    by_name: dict[str, FinetuneRecipe | str] = {}
    for name in catalogue.names(FITTED) if recipe.method == AUTO else ():
        method = Method(name)
        assert method.fitted is not None
        idle = without_effect(method)
        try:
            method.fitted.require(task_type, recipe.long)
        except UsageError as error:
            by_name |= {name: error.what} if error.where == "--long" else {}
            continue
        ignored = [name for name in LEARNED if getattr(recipe, name) and name in idle]
        if ignored:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in ignored)
            by_name[name] = f"{options} would have no effect"
        elif num_rows > method.fitted.most_rows:
            by_name[name] = f"it is for at most {method.fitted.most_rows:,} rows"
        else:
            by_name[name] = recipe.with_method(method, is_repeated)
    by_name[trained.name] = usual = recipe.with_method(trained, is_repeated)
    rate, (epochs, least_steps) = recipe.rate or trained.rate(width), recipe.passes
    # With a learning rate the factor of a new head would be another by default.
    head_rate = recipe.head_rate if task_type.head is None else trained.head_factor
    for number in range(1, (recipe.search or 0) + 1):
        rate_position, length_position, batch_position = number * SEARCH_STEPS % 1
        length_factor = 4 ** (length_position - 0.5)
        varied = replace(
            usual,
            rate=float(f"{rate * 16 ** (rate_position - 0.5):.2g}"),
            head_rate=head_rate,
            epochs=max(1, round(epochs * length_factor)),
            least_steps=round(least_steps * length_factor),
            batch=max(recipe.accumulate, int(recipe.batch * 2.0 ** (int(3 * batch_position) - 1))),
        )
        name = f"{trained.name}, rate {varied.rate:g}, {counted(varied.epochs or 0, 'epoch')}"
        by_name[f"{name}, batch {varied.batch}"] = varied
    return by_name


@dataclass
class _Candidate:
    """A recipe that is tried.

    Attributes:
        seconds: of a training, estimated.
        panel: shows the progress.
        end: the time of `time.perf_counter` at which a training is stopped.
        last: the seconds of the last training.
    """

    name: str
    recipe: FinetuneRecipe
    learner: BaseLearner
    settings: Settings
    seconds: float
    machine: Machine | None
    panel: WorkPanel
    end: float = math.inf
    last: float = 0.0
    _outputs: dict[tuple[int, int, int | None], FoldOutputs] = field(default_factory=dict)

    @property
    def method(self) -> Method:
        return self.recipe.methods[0]

    def varied(
        self, name: str, recipe: FinetuneRecipe, settings: Settings, num_rows: int
    ) -> _Candidate:
        """Return a candidate of the same method with other settings."""
        work, usual_work = (steps_of(s, num_rows) * s.batch for s in (settings, self.settings))
        seconds, fields = self.seconds * work / usual_work, (self.machine, self.panel)
        return _Candidate(name, recipe, self.learner, settings, seconds, *fields)

    def learn(self, encoded_parts: Mapping[str, Encoded], **options: Any) -> SeedResult:
        """`BaseLearner.learn` by this method. Raises `OutOfTimeError` after `end`."""
        begin, self.panel.part = self._now(), options["name"]
        options |= {"watch": self._watch, "machine": self.machine}
        result = self.learner.learn(encoded_parts, method=self.method, say=quiet, **options)
        self.last = time.perf_counter() - begin
        return result

    @contextmanager
    def _watch(self, name: str, steps: int, image_tokens: int = 0) -> Iterator[loop.Hook]:
        def step(record: loop.Record) -> None:
            self.panel.part = f"{name}, step {record['step']} of {steps}"
            self._now()

        yield StepHook(step, self.panel.note)

    def _now(self) -> float:
        """Return the time; raises `OutOfTimeError` after `end`."""
        if (now := time.perf_counter()) > self.end:
            raise OutOfTimeError
        return now

    def predict(self, folding: Folding, number: int, without: int | None = None) -> FoldOutputs:
        """Return the outputs for a fold by a model that has not seen it, nor the fold `without`;
        such a model predicts both."""
        key = folding.seed, number, without
        if key not in self._outputs:
            held_out = (number,) if without is None else (number, without)
            settings = replace(self.settings, seed=folding.seed)
            name = f"{self.method.name}-fold-{'-'.join(str(n + 1) for n in held_out)}"
            rows = folding.hold_out(*held_out)
            result = fold_outputs(self.learner, rows, name, settings, self.learn)
            result = result._replace(losses=[])  # those of several methods have no mean
            if without is not None:
                size = len(folding.folds[number])
                second_outputs = result._replace(outputs=result.outputs[size:])
                self._outputs[folding.seed, without, number] = second_outputs
                result = result._replace(outputs=result.outputs[:size])
            self._outputs[key] = result
        return self._outputs[key]

    def metrics(
        self, folding: Folding, numbers: Sequence[int], without: int | None = None
    ) -> TaskMetrics:
        """Return the metrics of the predictions for some folds."""
        outputs = np.concatenate([self.predict(folding, n, without).outputs for n in numbers])
        return self._metrics(
            [folding.data.parts[TRAIN][i] for n in numbers for i in folding.folds[n]], outputs
        )

    def short_trial(self, parts: Dataset, seed: int) -> float:
        """Return the metric on the part "test" after training on the part "train"."""
        settings = replace(self.settings, seed=seed)
        outputs = fold_outputs(self.learner, parts, self.name, settings, self.learn).outputs
        metrics = self._metrics(parts.parts[TEST], outputs)
        return defined(metrics.values[self.learner.task_type.measure])

    def _metrics(self, rows: Sequence[Any], outputs: Outputs) -> TaskMetrics:
        encoded = self.learner.encode(rows)
        calibrated = self.learner.task_type.calibrate(encoded, lambda _: outputs)
        return calibrated.metrics(rows, calibrated.answers(encoded, outputs))


def select_method(
    model: Model | Path,
    data: Dataset,
    recipes: Mapping[str, FinetuneRecipe | str],
    *,
    settings: Callable[[FinetuneRecipe, Method], Settings],
    options: Callable[[Method], Mapping[str, Any]],
    seeds: Sequence[int],
    budget: float | None,
    folds: int,
    require: Callable[..., object],
    length: int | None = None,
    long: Long = "head",
    machine: Machine | None = None,
    stream: TextIO | None = None,
) -> MethodSelection:
    """Try `recipes` and select the best; print a table of them.

    Args:
        recipes: what `candidates` returns.
        settings, options: return the training settings of a recipe and the task options of a
            method.
        seeds: of each repetition if there is no other part; else the first one is tried, or in a
            search one that is not among them.
        budget: seconds that the trials may take; None: `BUDGET`, or any number in a search and if
            each method is trained once.
        require: checks that `out` is free for a `method`, or has a begun one of `candidates`.
        folds, length, long, machine, stream: as for `finetune`.

    Raises:
        DataError: the training rows cannot be divided into folds.
    """
    say, begin = printer(stream), time.perf_counter()
    by_validation = TEST in data.parts and len(data.parts.get(VALIDATION, ())) >= CHOOSING_ROWS
    foldings, num_folds, num_rows = list[Folding](), 1, len(data.parts[TRAIN])
    usable = {name: recipe for name, recipe in recipes.items() if not isinstance(recipe, str)}
    skipped = {name: reason for name, reason in recipes.items() if isinstance(reason, str)}
    usual_recipes = {recipe.method: recipe for recipe in reversed(usable.values())}
    if not by_validation:
        try:
            foldings = fold(data, folds, seeds if is_cross_validated(data) else seeds[:1])
        except DataError as error:
            if not is_cross_validated(data):  # then nothing but the selection needs folds
                error.where = "--method auto" if len(usual_recipes) > 1 else "--search"
                error.advising("choose a method, such as --method full, without a search")
            raise
        if num_rows < DIVIDED_FROM or is_cross_validated(data):
            num_folds = min(len(folding.folds) for folding in foldings)
    for recipe in usual_recipes.values():
        (method,), rivals = recipe.methods, [r.method for r in usable.values() if r is not recipe]
        chosen = {"settings": settings(recipe, method), "options": options(method)}
        require(method=method, candidates=rivals, **chosen)
    is_search, least = len(usual_recipes) < len(usable), min(2, num_folds)
    trial_seed = seeds[-1] + 1 if is_search else seeds[0]
    limit = budget or (BUDGET if num_folds > 1 and not is_search else math.inf)
    end = begin + limit
    within = f" in about {duration(limit)} (--budget)" if math.isfinite(limit) else ""
    subject = "method" if len(usual_recipes) > 1 else "setting"
    say(f"\nselecting a {subject}{within}; if interrupted, the selection begins anew")
    with WorkPanel(f"selecting a {subject}", limit, stream) as panel:
        timed, of_text = list[_Candidate](), 0.0  # seconds that the frozen network needs for a text
        for name, recipe in sorted(usable.items(), key=lambda item: _has_steps(item[1])):
            (method,) = recipe.methods
            candidate = next((c for c in timed if c.recipe.method == recipe.method), None)
            if candidate is None:
                panel.part = f"estimating the time of {method.name}"
                learner = learner_of(model, task_of(data, options(method)), method, length, long)
                trained = settings(recipe, method)
                # Training takes at least as long for each text as three times the frozen network.
                least_time = STEP * steps_of(trained, num_rows) * trained.batch * of_text
                is_hopeless = method.fitted is None and least_time > limit
                estimate_end = begin + (0.0 if is_hopeless else ESTIMATES * limit)
                arguments = learner, data, num_rows, method, trained, machine, estimate_end
                seconds = seconds_of_training(*arguments)
                # Fixed vectors are computed once for all folds.
                seconds *= 1 / num_folds if method.head_alone else len(foldings) or 1
                candidate = _Candidate(name, recipe, learner, trained, seconds, machine, panel)
                if method.head_alone and method.opens_network:
                    of_text = seconds * num_folds / num_rows
                for number in range(0 if method.opens_network or not foldings else least):
                    candidate.predict(foldings[0], number)  # the first one also imports libraries
                    candidate.seconds = candidate.last * len(foldings)
            else:
                candidate = candidate.varied(name, recipe, settings(recipe, method), num_rows)
            timed.append(candidate)
        network = timed[-1].learner
        if is_search:
            searched = [c for c in timed if c.recipe is not usual_recipes[c.recipe.method]]
            judging = {TRAIN: data.parts[TRAIN], TEST: data.parts.get(VALIDATION, [])}
            trial_data = foldings[0].hold_out(0) if foldings else replace(data, parts=judging)
            skipped |= _halve(searched, trial_data, trial_seed, end, say)
            timed = [candidate for candidate in timed if candidate.name not in skipped]
        timed.sort(key=lambda candidate: (candidate.method.opens_network, candidate.seconds))
        is_scored = is_cross_validated(data)  # then the selected method predicts all folds
        of_estimate = sum(len(candidate._outputs) * candidate.last for candidate in timed)
        left = end - time.perf_counter() + of_estimate
        compared = _plan(timed, num_folds, left, skipped, is_scored)
        remaining_folds = num_folds - compared if is_scored else 0
        waiting = [candidate for candidate in timed if candidate.name not in skipped]
        expected = duration(_seconds(waiting, compared, remaining_folds))
        on_folds = f" on {compared} of {counted(num_folds, 'fold')}" if num_folds > 1 else ""
        longest = duration(max(c.seconds for c in waiting) / (len(foldings) or 1))
        afterwards = f"then the selected one is trained, each seed in up to {longest}"
        say(f"{counted(len(waiting), subject)}{on_folds}: about {expected}; {afterwards}")
        measure, tried, trials = timed[0].learner.task_type.measure, list[_Candidate](), list[Any]()
        best, best_value, first_seed = timed[0], -math.inf, None
        num_scored = CHOOSING_ROWS if by_validation else sum(map(len, foldings[0].folds[:compared]))
        while waiting:
            name, started = waiting[0].name, time.perf_counter() - (0.0 if tried else of_estimate)
            panel.ends = time.monotonic() + _seconds(waiting, compared, remaining_folds)
            candidate = waiting.pop(0)
            if trials:
                slowest = max(best.last * len(foldings), candidate.seconds)
                candidate.end = end - remaining_folds * slowest
            try:
                if by_validation:
                    of_seed = replace(candidate.settings, seed=trial_seed)
                    parts = {n: candidate.learner.encode(rows) for n, rows in data.parts.items()}
                    result = candidate.learn(parts, settings=of_seed, eval_part=TEST, name=name)
                    value, score = result.validation, decimals(result.validation)
                else:
                    by_repetition = [candidate.metrics(f, range(compared)) for f in foldings]
                    metric = TaskMetrics.mean(by_repetition).figures[measure]
                    value, score = defined(metric.value), metric.estimate().render()
            except OutOfTimeError:
                spent = duration(time.perf_counter() - started)
                skipped[name] = f"it was stopped after {spent}, as the budget was used up"
                continue
            candidate.end = math.inf
            is_behind_equal = value == best_value and num_scored >= SELECTABLE
            if not trials or (value >= best_value and not is_behind_equal):
                best, best_value = candidate, value
                first_seed = result if by_validation and not is_search else None
                panel.result = f"{name}: {measure} {score}"
            seconds, is_defined = round(time.perf_counter() - started, 1), value > -math.inf
            trial = {"method": name, "value": value if is_defined else None, "score": score}
            trials.append({**trial, "seconds": seconds})
            tried.append(candidate)
            say(f"{name}: {measure} {score}, {duration(seconds)}")
        basis, assurance, out_of_fold = "on the validation part", UNTOUCHED, None
        if not by_validation:
            basis = f"on {counted(num_scored, 'held-out row')} of the training part"
        if is_scored:
            remaining = min(limit, BUDGET) - (time.perf_counter() - begin)
            pairs = sum(trial["seconds"] for trial in trials) * (num_folds - 1) / 2
            # Without two of two folds there is nothing to learn from.
            is_nested = 2 < compared == num_folds and pairs <= remaining
            # Outputs of rows can be taken apart.
            is_nested &= best.learner.task_type.head == "sequence"
            preferred = tried[::-1] if num_scored < SELECTABLE else tried
            compared_ones, assurance = (preferred, best, foldings, compared), ALMOST_NESTED
            if is_nested:
                panel.ends = time.monotonic() + pairs
                for candidate in tried:
                    candidate.end = end
                with suppress(OutOfTimeError):
                    out_of_fold, assurance = _predict_folds(*compared_ones, True), NESTED
            for candidate in tried:
                candidate.end = math.inf
            out_of_fold = out_of_fold or _predict_folds(*compared_ones, False)
    trials += [{"method": name, "not_tried": why} for name, why in skipped.items()]
    usual = {"score": "–", "seconds": math.nan, "not_tried": ""}
    table: Table = {
        "title": f"{subject.capitalize()}s by {measure} {basis}: {best.name} is selected",
        "head": ["", measure, "time", "not tried because"],
        "rows": [
            [trial["method"], trial["score"], duration(trial["seconds"]), trial["not_tried"]]
            for trial in ({**usual, **trial} for trial in trials)
        ],
        "note": f"The best of several scores flatters. {assurance}",
    }
    say("\n" + document.for_terminal(table) + "\n")
    record = {"basis": basis, "assurance": assurance, "trials": trials}
    return MethodSelection(
        best.recipe, best.learner, network, record, table, first_seed, out_of_fold
    )


def _halve(
    searched: Sequence[_Candidate], data: Dataset, seed: int, end: float, say: Say
) -> dict[str, str]:
    """Leave out most of `searched` by successive halving; return the reason for each, by name.

    Args:
        data: has the parts "train" and "test".
        end: the time of `time.perf_counter` from which no trial begins.
    """
    rows, left_out = data.parts[TRAIN], dict[str, str]()
    for divisor in (9, 3):
        count = len(rows) // divisor
        if count < SHORT_TRIAL_ROWS or len(searched) <= SEARCH_FINALISTS:
            continue
        drawn = [rows[i] for i in permute(key("sample", seed), len(rows), np.arange(count))]
        parts, values = replace(data, parts={**data.parts, TRAIN: drawn}, groups={}), {}
        for candidate in searched:
            if time.perf_counter() < end:
                values[candidate.name] = value = candidate.short_trial(parts, seed)
                say(f"{candidate.name}: {decimals(value)} after {counted(count, 'row')}")
            else:
                left_out[candidate.name] = "the budget is used up"
        tried = sorted(values, key=lambda name: -values[name])
        remaining = tried[: max(SEARCH_FINALISTS, math.ceil(len(searched) / 3))]
        reason = f"others are better after {counted(count, 'row')}"
        left_out |= dict.fromkeys(tried[len(remaining) :], reason)
        searched = [candidate for candidate in searched if candidate.name in remaining]
    return left_out


def _has_steps(recipe: FinetuneRecipe) -> tuple[bool, bool]:
    """Return whether training takes steps, so that estimates of other methods come first."""
    (method,) = recipe.methods
    return method.fitted is None, not method.head_alone


def _seconds(candidates: Sequence[_Candidate], compared: int, remaining_folds: int) -> float:
    """Return how long candidates take on the compared folds, and the slowest on the others."""
    seconds = [candidate.seconds for candidate in candidates]
    return compared * sum(seconds) + remaining_folds * max(seconds)


def _plan(
    timed: Sequence[_Candidate],
    num_folds: int,
    limit: float,
    skipped: dict[str, str],
    is_scored: bool,
) -> int:
    """Return on how many folds candidates can be compared in `limit` seconds; if `is_scored`, the
    slowest can also predict the others. Add to `skipped` why some are left out, by name: there is
    no time for two folds, or for the only one. The training of all weights is the first to be left
    out, as fitted methods suit few rows better."""
    least = min(2, num_folds)
    trainings, kept = num_folds if is_scored else least, list[_Candidate]()
    for candidate in sorted(timed, key=lambda c: c.method.fitted is None):
        needed = _seconds([*kept, candidate], least, trainings - least)
        if candidate is timed[0] or needed <= limit:
            kept.append(candidate)
        elif math.isinf(candidate.seconds):
            skipped[candidate.name] = "the budget is too short for it"
        else:
            needs = f"would take about {duration(trainings * candidate.seconds)}"
            left = limit - least * sum(other.seconds for other in kept)
            needs += f", of {duration(max(0.0, left))} left"
            skipped[candidate.name] = f"{counted(trainings, 'training')} {needs}"
    counts = range(num_folds, least, -1)
    rest = num_folds if is_scored else 0
    return next((n for n in counts if _seconds(kept, n, max(0, rest - n)) <= limit), least)


def _predict_folds(
    tried: Sequence[_Candidate],
    best: _Candidate,
    foldings: Sequence[Folding],
    compared: int,
    is_nested: bool,
) -> OutOfFold:
    """Return predictions for each fold by the method that is best on the others of the `compared`
    folds, of equals by the first one of `tried`. Options of the saved model, such as thresholds,
    are chosen by the outputs of `best`."""
    measure = best.learner.task_type.measure

    def selected(folding: Folding, number: int) -> FoldOutputs:
        other_folds = [n for n in range(compared) if n != number]
        without = number if is_nested else None
        values = [defined(c.metrics(folding, other_folds, without).values[measure]) for c in tried]
        return tried[values.index(max(values))].predict(folding, number)

    outputs = [[selected(folding, n) for n in range(len(folding.folds))] for folding in foldings]
    of_best = [best.predict(foldings[0], n) for n in range(len(foldings[0].folds))]
    return join_folds(best.learner, foldings, outputs, of_best)
