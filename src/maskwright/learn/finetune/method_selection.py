"""Selection of method and settings (`--method auto`, `--search N`) by scores on held-out rows.

Candidates are the fitted methods that support the task, and the training of all weights; or the
method that is named. A search adds N other settings of the training. All candidates are compared on
the same folds: as many as fit into the time budget, at least two; those for which there is no time
are left out. There are three folds instead of five if that makes time for more candidates. Of equal
scores the cheaper method wins; on fewer than 20 rows, which do not show that methods are equally
good, the other.

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
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
    FOLDS,
    Folding,
    OutOfFold,
    fold,
    fold_outputs,
    is_cross_validated,
    join_folds,
)
from maskwright.learn.finetune.finished_seeds import FoldOutputs
from maskwright.learn.finetune.learner import SELECTABLE, BaseLearner, SeedResult
from maskwright.learn.finetune.method import AUTO, FITTED, STEP, Method
from maskwright.learn.finetune.recipe import FinetuneRecipe, without_effect
from maskwright.learn.finetune.tune import Settings, StepHook, defined, steps_of
from maskwright.learn.tasks.base.task_type import Encoded, Outputs, TaskMetrics, TaskType
from maskwright.learn.train import loop
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TEST, TRAIN, VALIDATION

BUDGET = 300.0  # seconds
ESTIMATES = 0.5  # share of the budget after which no further cost is estimated
FEWER_FOLDS = 3
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
    rate, (epochs, least_steps) = recipe.rate or trained.rate(width), recipe.passes(trained)
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
    panel: WorkPanel
    seconds: float = math.nan
    end: float = math.inf
    last: float = 0.0
    _outputs: dict[tuple[int, int, int | None], FoldOutputs] = field(default_factory=dict)

    @property
    def method(self) -> Method:
        return self.learner.method

    def varied(
        self, name: str, recipe: FinetuneRecipe, settings: Settings, num_rows: int
    ) -> _Candidate:
        """Return a candidate of the same method with other settings."""
        work, usual_work = (steps_of(s, num_rows) * s.batch for s in (settings, self.settings))
        seconds = self.seconds * work / usual_work
        learner = replace(self.learner, method=recipe.methods[0])
        return _Candidate(name, recipe, learner, settings, self.panel, seconds)

    def learn(self, encoded_parts: Mapping[str, Encoded], **options: Any) -> SeedResult:
        """`BaseLearner.learn` by this method. Raises `OutOfTimeError` after `end`."""
        begin, self.panel.part = self._now(), options["name"]
        result = self.learner.learn(encoded_parts, say=quiet, watch=self._watch, **options)
        self.last = time.perf_counter() - begin
        return result

    @contextmanager
    def _watch(self, name: str, steps: int, image_tokens: int = 0) -> Iterator[loop.Hook]:
        def step(record: loop.Record) -> None:
            self.panel.part = f"{name}, step {record['step']} of {steps}"
            self._now()

        yield StepHook(step)

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

    def refolded(self, factor: float) -> _Candidate:
        """Return the candidate for other folds, of which each has `factor` times as many rows."""
        # Fixed vectors are computed once for all folds.
        seconds = self.seconds * (factor if self.method.head_alone else 1.0)
        return replace(self, seconds=seconds, _outputs={})

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


@dataclass(kw_only=True)
class _Selection:
    """The trials of candidates within a time.

    Attributes:
        foldings: empty if candidates are compared by the validation part.
        num_folds: the largest number of folds on which they can be compared.
        trial_seed: of trainings where no fold has a seed.
        begin: the time of `time.perf_counter` at which the selection began.
        limit: seconds.
        can_refold: whether the rows may be divided into `FEWER_FOLDS` instead.
        skipped: why candidates are left out, by name.
        num_compared: the number of folds on which they are compared.
        estimated: seconds of those trials that were part of the estimates.
        trials: records of the candidates in `tried`.
    """

    data: Dataset
    foldings: Sequence[Folding]
    num_folds: int
    trial_seed: int
    begin: float
    limit: float
    can_refold: bool
    panel: WorkPanel
    say: Say
    skipped: dict[str, str]
    num_compared: int = 1
    estimated: float = 0.0
    tried: list[_Candidate] = field(default_factory=list)
    trials: list[dict[str, Any]] = field(default_factory=list)
    best: _Candidate = field(init=False)

    @property
    def end(self) -> float:
        """The time of `time.perf_counter` at which trials are stopped."""
        return self.begin + self.limit

    @property
    def measure(self) -> str:
        return self.best.learner.task_type.measure

    @property
    def is_scored(self) -> bool:
        """Whether the selected method predicts all folds, as there is no other part."""
        return is_cross_validated(self.data)

    @property
    def num_scored(self) -> int:
        """The number of rows by which candidates are compared."""
        if not self.foldings:
            return CHOOSING_ROWS
        return sum(map(len, self.foldings[0].folds[: self.num_compared]))

    @property
    def preferred(self) -> list[_Candidate]:
        """The tried candidates, of which the first of equals is selected."""
        return self.tried[::-1] if self.num_scored < SELECTABLE else self.tried

    @property
    def remaining_folds(self) -> int:
        """The number of folds that the selected method predicts after the comparison."""
        return self.num_folds - self.num_compared if self.is_scored else 0

    def estimate(
        self,
        usable: Mapping[str, FinetuneRecipe],
        open_candidate: Callable[[str, FinetuneRecipe], _Candidate],
        settings: Callable[[FinetuneRecipe, Method], Settings],
    ) -> list[_Candidate]:
        """Return a candidate for each recipe, with its estimated time."""
        candidates = list[_Candidate]()
        num_rows = len(self.data.parts[TRAIN])
        seconds_of_text = 0.0  # seconds that the frozen network needs for a text
        for name, recipe in sorted(usable.items(), key=lambda item: _has_steps(item[1])):
            (method,) = recipe.methods
            usual = next((c for c in candidates if c.recipe.method == recipe.method), None)
            if usual is not None:
                candidates.append(usual.varied(name, recipe, settings(recipe, method), num_rows))
                continue
            self.panel.part = f"estimating the time of {method.name}"
            candidate = open_candidate(name, recipe)
            trained = candidate.settings
            # Training takes at least as long for each text as three times the frozen network.
            least_time = STEP * steps_of(trained, num_rows) * trained.batch * seconds_of_text
            is_hopeless = method.fitted is None and least_time > self.limit
            seconds = seconds_of_training(
                candidate.learner,
                self.data,
                num_rows,
                trained,
                self.begin + (0.0 if is_hopeless else ESTIMATES * self.limit),
            )
            # Fixed vectors are computed once for all folds.
            seconds *= 1 / self.num_folds if method.head_alone else len(self.foldings) or 1
            candidate.seconds = seconds
            if method.head_alone and method.opens_network:
                seconds_of_text = seconds * self.num_folds / num_rows
            if self.foldings and not method.opens_network:
                for number in range(min(2, self.num_folds)):  # the first also imports libraries
                    candidate.predict(self.foldings[0], number)
                    self.estimated += candidate.last
                candidate.seconds = candidate.last * len(self.foldings)
            candidates.append(candidate)
        return candidates

    def halve(self, timed: list[_Candidate], searched: list[_Candidate]) -> list[_Candidate]:
        """Return `timed` without most of `searched`, which successive halving leaves out."""
        data = self.foldings[0].hold_out(0) if self.foldings else self.data
        rows = data.parts[TRAIN]
        eval_rows = data.parts.get(TEST if self.foldings else VALIDATION, [])
        for divisor in (9, 3):
            count = len(rows) // divisor
            if count < SHORT_TRIAL_ROWS or len(searched) <= SEARCH_FINALISTS:
                continue
            numbers = permute(key("sample", self.trial_seed), len(rows), np.arange(count))
            parts = {**data.parts, TRAIN: [rows[i] for i in numbers], TEST: eval_rows}
            trial_data, values = replace(data, parts=parts, groups={}), dict[str, float]()
            for candidate in searched:
                if time.perf_counter() < self.end:
                    value = candidate.short_trial(trial_data, self.trial_seed)
                    values[candidate.name] = value
                    self.say(f"{candidate.name}: {decimals(value)} after {counted(count, 'row')}")
                else:
                    self.skipped[candidate.name] = "the budget is used up"
            tried = sorted(values, key=lambda name: -values[name])
            remaining = tried[: max(SEARCH_FINALISTS, math.ceil(len(searched) / 3))]
            reason = f"others are better after {counted(count, 'row')}"
            self.skipped |= dict.fromkeys(tried[len(remaining) :], reason)
            searched = [candidate for candidate in searched if candidate.name in remaining]
        return [candidate for candidate in timed if candidate.name not in self.skipped]

    def plan(self, timed: Sequence[_Candidate], subject: str) -> list[_Candidate]:
        """Set `num_compared`; return the candidates for which there is time, the fastest first, and
        print the times. If more of them have time on fewer folds, the rows are divided again."""
        timed = sorted(timed, key=lambda c: (c.method.opens_network, c.seconds))
        limit = self.end - time.perf_counter()
        skipped = self._without_time(timed, limit + self.estimated)
        if skipped and self.can_refold and self.num_folds > FEWER_FOLDS:
            refolded = [c.refolded(self.num_folds / FEWER_FOLDS) for c in timed]
            fewer = replace(self, num_folds=FEWER_FOLDS)
            if len(skipped_then := fewer._without_time(refolded, limit)) < len(skipped):
                timed, skipped = refolded, skipped_then
                seeds = [folding.seed for folding in self.foldings]
                self.foldings = fold(self.data, FEWER_FOLDS, seeds)
                self.num_folds, self.estimated = FEWER_FOLDS, 0.0
        self.skipped |= skipped
        usable = [candidate for candidate in timed if candidate.name not in skipped]
        self.best, self.num_compared = timed[0], self.num_folds
        limit += self.estimated
        while (
            self.num_compared > min(2, self.num_folds)
            and _seconds(usable, self.num_compared, self.remaining_folds) > limit
        ):
            self.num_compared -= 1
        expected = duration(_seconds(usable, self.num_compared, self.remaining_folds))
        on_folds = (
            f" on {self.num_compared} of {self.num_folds} folds" if self.num_folds > 1 else ""
        )
        longest = duration(max(c.seconds for c in usable) / (len(self.foldings) or 1))
        afterwards = f"then the selected one is trained, each seed in up to {longest}"
        self.say(f"{counted(len(usable), subject)}{on_folds}: about {expected}; {afterwards}")
        return usable

    def _without_time(self, timed: Sequence[_Candidate], limit: float) -> dict[str, str]:
        """Return why candidates are left out within `limit` seconds, by name. If there is no time
        for two folds, or for the only one, the training of all weights is left out first, as fitted
        methods suit few rows better; never the fastest."""
        skipped, usable = dict[str, str](), list[_Candidate]()
        min_folds = min(2, self.num_folds)
        num_trainings = self.num_folds if self.is_scored else min_folds
        for candidate in sorted(timed, key=lambda c: c.method.fitted is None):
            needed = _seconds([*usable, candidate], min_folds, num_trainings - min_folds)
            if candidate is timed[0] or needed <= limit:
                usable.append(candidate)
            elif math.isinf(candidate.seconds):
                skipped[candidate.name] = "the budget is too short for it"
            else:
                needs = f"would take about {duration(num_trainings * candidate.seconds)}"
                remaining = limit - min_folds * sum(c.seconds for c in usable)
                needs += f", of {duration(max(0.0, remaining))} left"
                skipped[candidate.name] = f"{counted(num_trainings, 'training')} {needs}"
        return skipped

    def try_candidates(self, waiting: Sequence[_Candidate]) -> SeedResult | None:
        """Try candidates and set `best`; return its training if the validation part decides."""
        best_value, best_result = -math.inf, None
        for number, candidate in enumerate(waiting):
            name, started = candidate.name, time.perf_counter()
            seconds = _seconds(waiting[number:], self.num_compared, self.remaining_folds)
            self.panel.ends = time.monotonic() + seconds
            if self.trials:
                slowest = max(self.best.last * len(self.foldings), candidate.seconds)
                candidate.end = self.end - self.remaining_folds * slowest
            else:
                started -= self.estimated
            try:
                value, score, result = self._try(candidate)
            except OutOfTimeError:
                stopped = f"it was stopped after {duration(time.perf_counter() - started)}"
                self.skipped[name] = f"{stopped}, as the budget was used up"
                continue
            candidate.end = math.inf
            is_behind_equal = value == best_value and self.num_scored >= SELECTABLE
            if not self.trials or (value >= best_value and not is_behind_equal):
                self.best, best_value, best_result = candidate, value, result
                self.panel.result = f"{name}: {self.measure} {score}"
            spent, is_defined = time.perf_counter() - started, value > -math.inf
            trial = {"method": name, "value": value if is_defined else None, "score": score}
            self.trials.append({**trial, "seconds": round(spent, 1)})
            self.tried.append(candidate)
            self.say(f"{name}: {self.measure} {score}, {duration(spent)}")
        return best_result

    def _try(self, candidate: _Candidate) -> tuple[float, str, SeedResult | None]:
        """Return the score of a candidate, as a number and in words, and its training if the
        validation part decides. Raises `OutOfTimeError`."""
        if self.foldings:
            folds = range(self.num_compared)
            by_repetition = [candidate.metrics(folding, folds) for folding in self.foldings]
            metric = TaskMetrics.mean(by_repetition).figures[self.measure]
            return defined(metric.value), metric.estimate().render(), None
        settings = replace(candidate.settings, seed=self.trial_seed)
        parts = {name: candidate.learner.encode(rows) for name, rows in self.data.parts.items()}
        result = candidate.learn(parts, settings=settings, eval_part=TEST, name=candidate.name)
        return result.validation, decimals(result.validation), result

    def predict_folds(self) -> tuple[OutOfFold, str]:
        """Return predictions for each fold by the selected method, and how far the rows of a fold
        took part in its selection."""
        remaining = min(self.limit, BUDGET) - (time.perf_counter() - self.begin)
        pairs = sum(trial["seconds"] for trial in self.trials) * (self.num_folds - 1) / 2
        # Nested models have not seen two folds; of two folds nothing would remain to learn from.
        is_nested = 2 < self.num_compared == self.num_folds and pairs <= remaining
        # Only there the outputs of a fold can be divided by rows.
        if is_nested and self.best.learner.task_type.head == "sequence":
            self.panel.ends = time.monotonic() + pairs
            try:
                for candidate in self.tried:
                    candidate.end = self.end
                return self._predict_folds(is_nested=True), NESTED
            except OutOfTimeError:
                pass
            finally:
                for candidate in self.tried:
                    candidate.end = math.inf
        return self._predict_folds(is_nested=False), ALMOST_NESTED

    def _predict_folds(self, *, is_nested: bool) -> OutOfFold:
        """Predict each fold by the method that is best on the other compared folds. Options of the
        saved model, such as thresholds, are chosen by the outputs of `best`."""
        tried = self.preferred

        def selected(folding: Folding, number: int) -> FoldOutputs:
            other_folds = [n for n in range(self.num_compared) if n != number]
            without = number if is_nested else None
            metrics = [candidate.metrics(folding, other_folds, without) for candidate in tried]
            values = [defined(metric.values[self.measure]) for metric in metrics]
            return tried[values.index(max(values))].predict(folding, number)

        outputs = [[selected(f, number) for number in range(len(f.folds))] for f in self.foldings]
        folding = self.foldings[0]
        outputs_of_best = [self.best.predict(folding, n) for n in range(len(folding.folds))]
        return join_folds(self.best.learner, self.foldings, outputs, outputs_of_best)


def select_method(
    data: Dataset,
    recipes: Mapping[str, FinetuneRecipe | str],
    *,
    learner_for: Callable[[Method], BaseLearner],
    settings: Callable[[FinetuneRecipe, Method], Settings],
    seeds: Sequence[int],
    budget: float | None,
    folds: int | None,
    require: Callable[..., object],
    stream: TextIO | None = None,
) -> MethodSelection:
    """Try `recipes` and select the best; print a table of them.

    Args:
        recipes: what `candidates` returns.
        learner_for, settings: return the learner of a method and the training settings of a recipe.
        seeds: of each repetition if there is no other part; else the first one is tried, or in a
            search one that is not among them.
        budget: seconds that the trials may take; None: `BUDGET`, or any number in a search and if
            each method is trained once.
        require: checks that `out` is free for a learner, or has a begun one of `candidates`.
        folds: as in a recipe; None: `FOLDS`, or `FEWER_FOLDS` if that makes time for candidates.
        stream: as for `finetune`.

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
        option = "--method auto" if len(usual_recipes) > 1 else "--search"
        foldings = _fold(data, folds or FOLDS, seeds, option)
        if num_rows < DIVIDED_FROM or is_cross_validated(data):
            num_folds = min(len(folding.folds) for folding in foldings)
    learners = {name: learner_for(recipe.methods[0]) for name, recipe in usual_recipes.items()}
    for recipe in usual_recipes.values():
        (method,), rivals = recipe.methods, [r.method for r in usable.values() if r is not recipe]
        require(learners[method.name], settings=settings(recipe, method), candidates=rivals)
    is_search = len(usual_recipes) < len(usable)
    limit = budget or (BUDGET if num_folds > 1 and not is_search else math.inf)
    within = f" in about {duration(limit)} (--budget)" if math.isfinite(limit) else ""
    subject = "method" if len(usual_recipes) > 1 else "setting"
    say(f"\nselecting a {subject}{within}; if interrupted, the selection begins anew")
    with WorkPanel(f"selecting a {subject}", limit, stream) as panel:
        selection = _Selection(
            data=data,
            foldings=foldings,
            num_folds=num_folds,
            trial_seed=seeds[-1] + 1 if is_search else seeds[0],
            begin=begin,
            limit=limit,
            can_refold=folds is None and is_cross_validated(data) and not is_search,
            panel=panel,
            say=say,
            skipped=skipped,
        )

        def open_candidate(name: str, recipe: FinetuneRecipe) -> _Candidate:
            (method,) = recipe.methods
            return _Candidate(name, recipe, learners[method.name], settings(recipe, method), panel)

        timed = selection.estimate(usable, open_candidate, settings)
        network = timed[-1].learner
        if is_search:
            searched = [c for c in timed if c.recipe is not usual_recipes[c.recipe.method]]
            timed = selection.halve(timed, searched)
        waiting = selection.plan(timed, subject)
        first_seed = selection.try_candidates(waiting)
        if is_search:
            first_seed = None  # of the seed of trials
        basis, assurance, out_of_fold = "on the validation part", UNTOUCHED, None
        if selection.foldings:
            rows = counted(selection.num_scored, "held-out row")
            basis = f"on {rows} of the training part"
        if selection.is_scored:
            out_of_fold, assurance = selection.predict_folds()
    best, trials, measure = selection.best, selection.trials, selection.measure
    trials += [{"method": name, "not_tried": why} for name, why in skipped.items()]
    title = f"{subject.capitalize()}s by {measure} {basis}: {best.name} is selected"
    table = _trials_table(trials, measure, title, assurance)
    say("\n" + document.for_terminal(table) + "\n")
    record = {"basis": basis, "assurance": assurance, "trials": trials}
    recipe = best.recipe
    if selection.num_folds < num_folds:
        recipe = replace(recipe, folds=selection.num_folds)
    return MethodSelection(recipe, best.learner, network, record, table, first_seed, out_of_fold)


def _fold(data: Dataset, num_folds: int, seeds: Sequence[int], option: str) -> list[Folding]:
    """Return the foldings that candidates are compared on; `option` asks for the comparison."""
    if is_cross_validated(data):
        return fold(data, num_folds, seeds)
    try:
        return fold(data, num_folds, seeds[:1])
    except DataError as error:  # nothing but the selection needs folds
        error.where = option
        error.advising("choose a method, such as --method full, without a search")
        raise


def _trials_table(
    trials: Sequence[Mapping[str, Any]], measure: str, title: str, assurance: str
) -> Table:
    columns = {"method": "", "score": "–", "seconds": math.nan, "not_tried": ""}
    rows = [[trial.get(name, usual) for name, usual in columns.items()] for trial in trials]
    return {
        "title": title,
        "head": ["", measure, "time", "not tried because"],
        "rows": [[name, score, duration(time), reason] for name, score, time, reason in rows],
        "note": f"The best of several scores flatters. {assurance}",
    }


def _has_steps(recipe: FinetuneRecipe) -> tuple[bool, bool]:
    """Return whether training takes steps, so that estimates of other methods come first."""
    (method,) = recipe.methods
    return method.fitted is None, not method.head_alone


def _seconds(candidates: Sequence[_Candidate], compared: int, remaining_folds: int) -> float:
    """Return how long candidates take on the compared folds, and the slowest on the others."""
    seconds = [candidate.seconds for candidate in candidates]
    return compared * sum(seconds) + remaining_folds * max(seconds)
