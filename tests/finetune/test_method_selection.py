"""`--method auto`: the best of the methods by held-out rows, within a budget, and its score."""

from __future__ import annotations

import io
import json
import math
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from finetune.test_command import table
from finetune.test_fitted_methods import parts
from maskwright.api import finetune_file
from maskwright.base.errors import DataError, StoppedError, UsageError
from maskwright.learn.finetune import command, cross_validation, learner, method_selection, run
from maskwright.learn.finetune.bag_of_words_learner import BagOfWordsLearner
from maskwright.learn.finetune.method import Method
from maskwright.learn.finetune.recipe import FinetuneRecipe, read
from maskwright.learn.finetune.tune import Settings
from maskwright.learn.tasks.base.task_type import task_for
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.prepare import prepare
from maskwright.text.tables.rows import ALL, TEST, TRAIN
from small_tasks import results_of

BRIEFLY: dict[str, Any] = {"method": "auto", "epochs": 1, "least_steps": 1, "batch": 16}
USUAL = {"epochs": None, "least_steps": None, "batch": 32}


def set_costs(patch: pytest.MonkeyPatch, **costs: float) -> None:
    cost = lambda learner, *_: costs.get(learner.method.name, 0.0)  # noqa: E731
    patch.setattr(method_selection, "seconds_of_training", cost)


def tried(out: Path) -> dict[str, float]:
    trials = results_of(out)["selection"]["trials"]
    return {trial["method"]: trial["value"] for trial in trials if "value" in trial}


def test_the_best_method_is_saved_and_its_score_is_nested(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = table(tmp_path / "data.csv", "classification", 36), tmp_path / "out"
    with data.open("a") as file:  # a class that pairs of folds leave without a row
        file.write("the rare one,other\nanother rare one,other\n")
    trained, fold_outputs = list[tuple[set[str], set[str]]](), method_selection.fold_outputs

    def record(candidate: Any, part: Any, *args: Any) -> cross_validation.FoldOutputs:
        trained.append(tuple({row.where for row in part.parts[n]} for n in ("train", "test")))
        return fold_outputs(candidate, part, *args)

    monkeypatch.setattr(method_selection, "fold_outputs", record)
    finetune_file(model, data, out, **BRIEFLY, folds=3, stream=(stream := io.StringIO()))
    said = stream.getvalue()
    values, results = tried(out), results_of(out)
    assert next(iter(values)) == "bag-of-words" and {"embeddings", "contrastive", "full"} < {
        *values
    }
    assert max(values, key=values.__getitem__) == results["method"]
    assert all(f"{name}: accuracy" in said for name in values)
    # Three folds and three pairs of them for each method, and nothing twice.
    assert len(trained) == 6 * len(values)
    assert not any(train & test for train, test in trained)
    assert results["asked"] == "out-of-fold"
    assert results["selection"]["assurance"] == method_selection.NESTED
    assert results["table"]["rows"][0][0] == f"auto ({results['method']}), out of fold"
    recipe = read(out / "finetune.toml")
    assert (recipe.method, recipe.epochs is None) == (results["method"], True)


def selection_of(data: Dataset, **fields: Any) -> Any:
    """A selection that begins now, without a limit."""
    usual = {"foldings": [], "num_folds": 1, "trial_seed": 0, "limit": math.inf, "say": print}
    usual["can_refold"] = False
    fields = {**usual, "panel": SimpleNamespace(), "skipped": {}, **fields}
    return method_selection._Selection(data=data, begin=time.perf_counter(), **fields)


def test_a_selection_on_noise_does_not_flatter(tmp_path: Path) -> None:
    """Twenty methods that guess: the best one looks better than chance, the reported score not."""
    draw = np.random.default_rng(0)
    lines = [f"text {n},{'ab'[label]}\n" for n, label in enumerate(draw.integers(0, 2, 300))]
    (tmp_path / "data.csv").write_text("text,label\n" + "".join(lines))
    data = prepare(tmp_path / "data.csv", division=None)
    data.parts[TRAIN] = data.parts.pop(ALL, data.parts.get(TRAIN, []))
    foldings = cross_validation.fold(data, 5, [0])
    method = Method("bag-of-words")
    bag = BagOfWordsLearner(tmp_path, task_for("classification", ("a", "b")), method)
    recipe = FinetuneRecipe(model="", data="", method="bag-of-words")
    guesses = [method_selection._Candidate("", recipe, bag, Settings(), None) for _ in range(20)]
    for candidate in guesses:
        for number, rows in enumerate(foldings[0].folds):
            outputs = draw.normal(size=(len(rows), 2)).astype(np.float32)
            candidate._outputs[0, number, None] = cross_validation.FoldOutputs(outputs, [], 0.0)
    scores = [c.metrics(foldings[0], range(5)).values["accuracy"] for c in guesses]
    fields = {"foldings": foldings, "num_folds": 5, "num_compared": 5, "tried": guesses}
    selection = selection_of(data, limit=0.0, **fields)  # no time for nested folds
    selection.best = guesses[int(np.argmax(scores))]
    joined, _ = selection.predict_folds()
    (result,) = joined.results
    truth = [row.label for row in joined.data.parts["out-of-fold"]]
    reported = float(np.mean(np.asarray(result.answers) == truth))
    assert max(scores) > 0.55 and reported < 0.53


def test_validation_rows_select_and_what_was_trained_is_not_trained_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(method_selection, "CHOOSING_ROWS", 60)
    data, out, learn = parts(tmp_path / "data", "classification"), tmp_path / "out", []
    original = learner.Learner.learn

    def record(self: Any, encoded: Any, settings: Settings, **named: Any) -> Any:
        learn.append((self.method.name, settings.seed, len(encoded["train"].rows)))
        return original(self, encoded, settings, **named)

    monkeypatch.setattr(learner.Learner, "learn", record)
    monkeypatch.setattr(method_selection, "seconds_of_training", lambda *_: 1.0)
    candidates = command.candidates
    two = "embeddings", "full"
    monkeypatch.setattr(command, "candidates", lambda *a: {n: candidates(*a)[n] for n in two})
    settings = {**BRIEFLY, "epochs": 8, "rate": 1e-2, "seeds": 2}
    finetune_file(model, data, out, **settings, stream=io.StringIO())
    results = results_of(out)
    assert results["asked"] == "test" and "validation" in results["selection"]["basis"]
    seeds = [seed for name, seed, _ in learn if name == results["method"]]
    assert seeds == ([0, 1] if results["method"] == "full" else [0])


@pytest.mark.parametrize("has_parts", [False, True])
def test_a_search_uses_the_settings_that_are_best_on_held_out_rows(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_parts: bool
) -> None:
    monkeypatch.setattr(method_selection, "CHOOSING_ROWS", 60)
    data = tmp_path / "data.csv"
    _ = parts(data, "classification") if has_parts else table(data, "classification", 60)
    original, trained = learner.Learner.learn, set[tuple[int, int, float]]()

    def record(self: Any, encoded: Any, settings: Settings, **named: Any) -> Any:
        rate = settings.optimizer.learning_rate
        if interrupts and settings.seed == 1:
            raise interrupts.pop()
        trained.add((settings.seed, settings.batch, rate))
        result = original(self, encoded, settings, **named)
        return replace(result, tuned=replace(result.tuned, figures=[settings.batch * rate]))

    monkeypatch.setattr(learner.Learner, "learn", record)
    monkeypatch.setattr(method_selection, "seconds_of_training", lambda *_: 1.0)
    settings = {**BRIEFLY, "method": "full", "search": 3, "folds": None if has_parts else 2}
    settings |= {"seeds": 2, "stream": io.StringIO()}
    interrupts = [KeyboardInterrupt()] if has_parts else []
    if has_parts:  # after the first seed of the result; the same command goes on
        with pytest.raises(KeyboardInterrupt):
            finetune_file(model, data, tmp_path / "out", **settings)
    finetune_file(model, data, tmp_path / "out", **settings)
    values, recipe = tried(tmp_path / "out"), read(tmp_path / "out" / "finetune.toml")
    best = max(values, key=values.__getitem__)
    rate = f", rate {recipe.rate:g}, 1 epoch, batch {recipe.batch}" if recipe.rate else ""
    assert len(values) == 4 and best == f"full{rate}" and recipe.search is None
    by_seed = [{run[1:] for run in trained if run[0] == seed} for seed in range(3)]
    if has_parts:  # no seed of the result was tried
        assert [len(runs) for runs in by_seed] == [1, 1, 4]
    else:  # the result has the score of the trials, whose seeds are its repetitions
        assert [len(runs) for runs in by_seed] == [4, 4, 0]


@pytest.mark.parametrize(
    ("count", "sizes", "names"),
    [(9000, [1000] * 12 + [3000] * 4, "6 5 4"), (4500, [1500] * 12, "6 5 4 11"), (90, [], None)],
)
def test_short_trials_leave_the_best_settings(
    count: int, sizes: list[int], names: str | None, tmp_path: Path
) -> None:
    trials, said = list[int](), list[str]()

    class Candidate:
        def __init__(self, number: int) -> None:
            self.number, self.name = number, str(number)

        def short_trial(self, parts: Any, seed: int) -> float:
            trials.append(len({*parts.parts[TRAIN]}))
            return self.number % 7

    data = Dataset(task=None, parts={TRAIN: [*range(count)]})  # type: ignore[arg-type]
    candidates: Any = [Candidate(number) for number in range(12)]
    remaining = selection_of(data, say=said.append).halve(candidates, candidates)
    assert trials == sizes and len(said) == len(sizes)
    expected = {*(names.split() if names else map(str, range(12)))}
    assert {candidate.name for candidate in remaining} == expected
    assert not sizes or not selection_of(data, limit=-math.inf).halve(candidates, candidates)


def test_what_the_budget_does_not_allow_is_not_tried(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = table(tmp_path / "data.csv", "classification", 36)
    set_costs(monkeypatch, full=90.0, contrastive=9.0)
    finetune_file(
        model, data, tmp_path / "out", **BRIEFLY, folds=3, budget=100, class_weights="balanced"
    )
    results = results_of(tmp_path / "out")
    assert {*tried(tmp_path / "out")} == {"embeddings", "contrastive"}
    assert results["selection"]["assurance"] != method_selection.UNTOUCHED
    reasons = {t["method"]: t["not_tried"] for t in results["selection"]["trials"][-2:]}
    assert "--class-weights" in reasons["bag-of-words"] and "180" not in reasons["full"]


@pytest.mark.parametrize("folds", [None, 5])
def test_fewer_folds_make_time_for_a_method(
    folds: int | None, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = table(tmp_path / "data.csv", "classification", 36), tmp_path / "out"
    set_costs(monkeypatch, full=1e9, contrastive=1000.0)  # 5 trainings or 3 of them
    finetune_file(model, data, out, **BRIEFLY, folds=folds, budget=4000)
    is_refolded = folds is None
    assert ("contrastive" in tried(out)) is is_refolded
    assert results_of(out)["folds"] == (3 if is_refolded else 5)
    assert read(out / "finetune.toml").folds == (3 if is_refolded else 5)


def test_vectors_that_serve_all_folds_cost_each_of_fewer_folds_more() -> None:
    for name, factor in (("embeddings", 2.0), ("contrastive", 1.0)):
        learner_of_method: Any = SimpleNamespace(method=Method(name))
        fields: tuple[Any, ...] = (name, None, learner_of_method, None, None)
        candidate = method_selection._Candidate(*fields, seconds=3.0)
        candidate._outputs[0, 0, None] = cross_validation.FoldOutputs(np.zeros(1), [], 0.0)
        refolded = candidate.refolded(2.0)
        assert (refolded.seconds, refolded._outputs) == (3.0 * factor, {})


@pytest.mark.parametrize(("budget", "num_tried"), [(100, 2), (1e6, 4)])
def test_a_training_that_is_slower_than_estimated_is_stopped(
    budget: float, num_tried: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock of 30 seconds for each training step."""
    data, clock = table(tmp_path / "data.csv", "classification", 60), [0.0]
    set_costs(monkeypatch)
    times = SimpleNamespace(perf_counter=lambda: clock[0], monotonic=time.monotonic)
    monkeypatch.setattr(method_selection, "time", times)
    after_step = method_selection.StepHook.after_step

    def slowly(*args: Any) -> None:
        clock[0] += 30.0
        after_step(*args)

    monkeypatch.setattr(method_selection.StepHook, "after_step", slowly)
    finetune_file(model, data, tmp_path / "out", **BRIEFLY, folds=3, budget=budget)
    methods = ["bag-of-words", "embeddings", "contrastive", "full"]
    assert [n for n in tried(tmp_path / "out") if n in methods] == methods[:num_tried]
    assert (100.0 < clock[0] <= 130.0) is (num_tried == 2)


def test_the_predictions_of_all_folds_are_within_the_budget() -> None:
    def plan(limit: float, is_scored: bool) -> tuple[int, set[str]]:
        costs = {"bag-of-words": 1.0, "embeddings": 2.0, "full": 10.0}
        timed: Any = [
            SimpleNamespace(name=n, seconds=s, method=Method(n)) for n, s in costs.items()
        ]
        data = Dataset(task=None, parts={TRAIN: []} | ({} if is_scored else {TEST: []}))  # type: ignore[arg-type]
        selection = selection_of(data, num_folds=5, limit=limit + 0.5)
        selection.plan(timed, "method")
        return selection.num_compared, {*selection.skipped}

    assert plan(65.0, True) == plan(65.0, False) == (5, set())
    assert plan(60.0, True) == (3, set()) and plan(60.0, False) == (4, set())
    assert plan(50.0, True) == (5, {"full"}) and plan(50.0, False) == (3, set())


@pytest.mark.parametrize(("budget", "is_hopeless"), [(100, True), (1000, False)])
def test_the_time_of_what_is_hopeless_is_not_estimated(
    budget: float, is_hopeless: bool, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, ends = table(tmp_path / "data.csv", "classification", 36), dict[str, float]()

    def cost(*args: Any) -> float:
        ends[args[0].method.name] = args[-1]
        return (40.0, 40.0, 40.0)[len(ends) - 1]  # the fourth, that of full, ends the test

    monkeypatch.setattr(method_selection, "seconds_of_training", cost)
    with pytest.raises(IndexError):
        finetune_file(model, data, tmp_path / "out", **BRIEFLY, budget=budget)
    assert (ends["full"] < ends["embeddings"]) is is_hopeless


@pytest.mark.parametrize("is_over", [False, True])
def test_the_estimate_of_a_time_is_given_up_at_its_end(
    model: Path, tmp_path: Path, is_over: bool
) -> None:
    data = prepare(table(tmp_path / "data.csv", "classification", 60))
    end = time.perf_counter() + (-1.0 if is_over else 1e6)
    for method in (Method("full"), Method("embeddings")):
        task_type = task_for("classification", data.labels.names if data.labels else ())
        part = learner.learner_of(model, task_type, method, None, "head", None)
        arguments = part, data, 60, Settings(batch=8), end
        assert (method_selection.seconds_of_training(*arguments) == math.inf) is is_over


@pytest.mark.parametrize(("rows", "is_cheapest"), [(12, False), (60, True)])
def test_a_tie_is_decided_by_cost_only_where_rows_can_show_it(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, is_cheapest: bool
) -> None:
    data = table(tmp_path / "data.csv", "classification", rows)
    monkeypatch.setattr(method_selection, "defined", lambda value: 0.5)
    set_costs(monkeypatch, full=90.0, contrastive=90.0)
    preferred, predict_folds = list[str](), method_selection._Selection._predict_folds

    def record(selection: Any, **options: Any) -> Any:
        preferred.append(selection.preferred[0].method.name)
        return predict_folds(selection, **options)

    monkeypatch.setattr(method_selection._Selection, "_predict_folds", record)
    finetune_file(model, data, tmp_path / "out", **BRIEFLY, folds=3, budget=100)
    first, *_, last = tried(tmp_path / "out")
    assert results_of(tmp_path / "out")["method"] == (first if is_cheapest else last)
    assert preferred == [first if is_cheapest else last]  # in each fold, too


@pytest.mark.parametrize(
    ("settings", "rows", "kind", "where"),
    [
        ({"budget": 0.0}, 60, UsageError, "--budget"),
        ({"budget": 9.0, "method": "full"}, 60, UsageError, "--budget"),
        ({"search": 0}, 60, UsageError, "--search"),
        ({"search": 2, "method": "embeddings", **USUAL}, 60, UsageError, "--search"),
        ({"search": 2, "curve": (20,)}, 60, UsageError, "--search"),
        ({}, 4, DataError, "--folds"),
        ({"measure": "spearman"}, 60, UsageError, "--measure"),
        ({"test": 40}, 4, DataError, "--method auto"),
        ({"bytes": 1e18}, 60, StoppedError, "out"),
        ({"epochs": 2}, 60, UsageError, "unfinished/seed-0-fold-1"),
        ({}, 60, KeyboardInterrupt, "work"),  # the control
    ],
)
def test_mistakes_are_told_before_any_work(
    settings: dict[str, Any],
    rows: int,
    kind: type[BaseException],
    where: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(*args: Any) -> None:
        raise KeyboardInterrupt("work")

    (data := tmp_path / "data").mkdir()
    settings, out = {**BRIEFLY, **settings}, tmp_path / "out"
    for name, count in (("train", rows), ("test", settings.pop("test", 0))):
        if count:
            table(data / f"{name}.csv", "classification", count)
    num_bytes = settings.pop("bytes", 0)
    monkeypatch.setattr(run, "disk_bytes", lambda *_: num_bytes)
    if is_unfinished := kind is KeyboardInterrupt or where.startswith("unfinished"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(cross_validation, "join_folds", work)
            finetune_file(model, data, out, **{**BRIEFLY, "method": "full"})
    monkeypatch.setattr(method_selection, "seconds_of_training", work)
    with pytest.raises(kind) as error:
        finetune_file(model, data, out, **settings)
    assert str(getattr(error.value, "where", error.value)).endswith(where)
    assert (out / "unfinished").exists() is is_unfinished
    assert kind is not DataError or not out.exists()


def test_a_task_with_one_method_is_trained_as_ever(model: Path, tmp_path: Path) -> None:
    data = table(tmp_path / "data.csv", "classification", 60)
    for method in ("auto", "full"):
        settings = {**BRIEFLY, "method": method, "long": "pieces-mean", "seeds": 1, "folds": 2}
        finetune_file(model, data, tmp_path / method, **settings, stream=io.StringIO())
    files = ("model/model.safetensors", "results.json", "finetune.toml")
    ours, theirs = (
        [(tmp_path / method / name).read_bytes() for name in files] for method in ("auto", "full")
    )
    assert ours[0] == theirs[0] and ours[2] == theirs[2]
    assert "selection" not in json.loads(ours[1])


def test_auto_is_the_default_and_keeps_only_what_applies() -> None:
    assert FinetuneRecipe.__dataclass_fields__["method"].default == "auto"
    recipe = FinetuneRecipe(model="m", data="d", method="auto", epochs=4, seeds=2, length=9)
    bag = recipe.with_method(Method("bag-of-words"), is_repeated=False)
    assert (bag.epochs, bag.seeds, bag.length) == (None, None, None)
    assert recipe.with_method(Method("bag-of-words"), is_repeated=True).seeds == 2
    full = recipe.with_method(Method("full"), is_repeated=False)
    assert (full.epochs, full.seeds, full.length, full.budget) == (4, 2, 9, None)
