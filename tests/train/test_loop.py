"""The loop: equal for equal keys, indifferent to how a step is split, and honest about NaN."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.base.budget import Budget
from maskwright.base.errors import DataError
from maskwright.learn.train import loop
from maskwright.learn.train import state as state_module
from maskwright.learn.train.optimizers import AdamWState, Parameters
from maskwright.learn.train.settings import AdamW, Schedule
from maskwright.learn.train.state import Processes, TrainState
from maskwright.model.objectives import hybrid, masked
from maskwright.model.objectives.base.objective import Loss, Objective, Part
from maskwright.model.objectives.modules.hybrid import Hybrid
from maskwright.model.objectives.modules.masked import Masked
from toys import VOCABULARY, FixedRows, bert

BATCH = 8


class Batches:
    """Rows in order, `parts` microbatches per step."""

    def __init__(self, objective: Objective, parts: int = 1, *, pairs: bool = False) -> None:
        self.objective, self.parts = objective, parts
        self.source = FixedRows(pairs=pairs)

    def __call__(self, step: int, number: int) -> Any:
        size = BATCH // self.parts
        first = (step * BATCH + number * size) % len(self.source)
        rows = self.source.rows(np.arange(first, first + size), 0)
        return self.objective.corrupt(rows, np.full(size, step), 0)


def plan_of(
    steps: int = 100, parts: int = 1, schedule: Schedule | None = None, **options: Any
) -> loop.TrainingPlan:
    budget = options.pop("budget", Budget(steps=steps))
    return loop.TrainingPlan(
        seed=3, microbatches=parts, budget=budget, schedule=schedule or Schedule(), **options
    )


WARM = Schedule(kind="linear", warmup=0.1)


def begun(
    objective: Objective, compute: torch.dtype = torch.float32, **settings: Any
) -> AdamWState:
    return AdamWState(Parameters(objective, compute), AdamW(learning_rate=1e-2, **settings))


class Collect:
    """Collects the records, and the weights after each step if asked; stops after some steps."""

    def __init__(self, steps: int = -1, optimizer: AdamWState | None = None) -> None:
        self.records: list[dict[str, Any]] = []
        self.weights: list[torch.Tensor] = []
        self.steps, self.optimizer, self.stop = steps, optimizer, loop.StopFlag()

    def after_step(self, state: TrainState, record: dict[str, Any]) -> None:
        self.records.append(record)
        if self.optimizer is not None:
            self.weights.append(self.optimizer.parameters.masters.clone())
        self.stop.raised = len(self.records) == self.steps

    def at_end(self, state: TrainState) -> None:
        pass


def run(
    objective: Objective,
    steps: int,
    *,
    parts: int = 1,
    pairs: bool = False,
    compute: torch.dtype = torch.float32,
) -> tuple[list[dict[str, Any]], AdamWState, TrainState]:
    optimizer, hook, state = begun(objective, compute), Collect(steps), TrainState()
    batches, plan = Batches(objective, parts, pairs=pairs), plan_of(parts=parts, schedule=WARM)
    loop.train(objective, batches, optimizer, plan, state, hooks=[hook], stop=hook.stop)
    return hook.records, optimizer, state


def mlm(dropout: float = 0.0) -> Masked:
    return Masked(bert(dropout=dropout), masked.Options(), VOCABULARY)


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_a_step_does_not_depend_on_how_it_is_split(parts: int) -> None:
    whole, one, _ = run(mlm(), 1)
    split, two, _ = run(mlm(), 1, parts=parts)
    assert whole[0]["targets"] == split[0]["targets"]
    assert split[0]["loss"] == pytest.approx(whole[0]["loss"], rel=1e-6)
    largest = one.parameters.gradient.abs().max()
    assert (one.parameters.gradient - two.parameters.gradient).abs().max() <= 1e-6 * largest


def test_a_stopped_run_continues_as_if_nothing_had_happened() -> None:
    whole, uninterrupted, _ = run(mlm(dropout=0.1), 8)
    start, before, state = run(mlm(dropout=0.1), 3)
    objective = mlm(dropout=0.1)
    optimizer = begun(objective)
    optimizer.parameters.load({n: t.clone() for n, t in before.parameters.state().items()})
    optimizer.load({n: t.clone() for n, t in before.state().items()}, before.steps)
    state = TrainState.from_json(state.to_json(), "here")
    plan, batches = plan_of(schedule=WARM), Batches(objective)
    objective.train()
    rest = [loop.step(objective, batches, optimizer, plan, state, Processes()) for _ in range(5)]
    assert start + rest == whole
    assert torch.equal(optimizer.parameters.masters, uninterrupted.parameters.masters)
    # The control: a state that forgot one step gives another run.
    forgetful = TrainState(step=state.step - 1)
    again = loop.step(objective, batches, optimizer, plan, forgetful, Processes())
    assert again["loss"] != whole[-1]["loss"]


def test_what_is_not_a_number_stops_before_the_weights_change() -> None:
    objective = mlm()
    optimizer = begun(objective)
    parameters = optimizer.parameters
    parameters.view(parameters.masters, "product.tokens.weight")[7, 0] = float("nan")
    before = parameters.masters.clone()
    with pytest.raises(loop.DivergedError, match="step 1"):
        loop.train(objective, Batches(objective), optimizer, plan_of(5), TrainState())
    assert torch.equal(before.isnan(), parameters.masters.isnan())
    assert torch.equal(before.nan_to_num(), parameters.masters.nan_to_num())


class Torn(Masked):
    """Whose loss is no number in the second microbatch of each step of `odd`."""

    def __init__(self, whole: Masked, odd: set[int]) -> None:
        super().__init__(whole.product, masked.Options(), VOCABULARY)
        self.odd, self.calls = odd, -1

    def forward(self, batch: Any) -> Any:
        self.calls += 1
        loss = super().forward(batch)
        if divmod(self.calls, 2)[0] in self.odd and self.calls % 2:
            ((name, part),) = loss.parts.items()
            loss = type(loss)({name: type(part)(part.total * float("nan"), part.weight)})
        return loss


def torn(odd: set[int], steps: int, **keys: Any) -> Collect:
    objective = Torn(mlm(), odd)
    optimizer = begun(objective)
    hook, plan = Collect(optimizer=optimizer), plan_of(steps, parts=2, on_nonfinite="skip")
    batches = Batches(objective, 2)
    loop.train(objective, batches, optimizer, plan, TrainState(**keys), hooks=[hook])
    return hook


def test_F41_a_step_without_a_number_is_skipped_where_that_is_asked_for() -> None:
    run, whole = torn({1, 2}, 5), torn(set(), 5)
    assert [r["kind"] for r in run.records] == ["train", "skipped", "skipped", "train", "train"]
    assert [r.get("in_a_row") for r in run.records] == [None, 1, 2, None, None]
    assert torch.equal(run.weights[0], run.weights[2])
    assert run.weights[4].isfinite().all() and not torch.equal(run.weights[4], run.weights[2])
    assert run.records[-1]["tokens"] == 5 * run.records[0]["tokens"]
    assert [r["kind"] for r in whole.records] == ["train"] * 5
    assert not torch.equal(whole.weights[2], whole.weights[0]), "the control"


def test_F41_too_many_in_a_row_stop_the_run_and_say_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SKIPS", 2)
    with pytest.raises(loop.DivergedError, match="step 4, after 2") as caught:
        torn({1, 2, 3}, 5)
    report = caught.value.report
    assert report["skipped_before"] == 2 and report["step"] == 4
    assert report["loss"] == "nan" and report["microbatches"]["1"] == "nan"
    assert np.isfinite(report["microbatches"]["0"])
    assert report["gradients_not_finite"] and report["weights_not_finite"] == []
    # A resumed run remembers how many there were.
    with pytest.raises(loop.DivergedError, match="step 1, after 2"):
        torn({0}, 5, skipped=2)
    assert torn({0}, 5, skipped=1).records[0]["in_a_row"] == 2


def test_all_processes_go_by_the_clock_of_the_first() -> None:
    """Or a budget in minutes would end, and a rate fall, here sooner than there."""

    class Second(Processes):
        def totals(self, values: Any) -> list[float]:
            first = values == [0.0] and self.asked.pop(0)
            return [77.0] if first else [float(v) for v in values]

    objective = mlm()
    second = Second(rank=1, world=2)
    object.__setattr__(second, "asked", [True, False])
    object.__setattr__(second, "sum", lambda vector: None)
    object.__setattr__(second, "share", lambda count: range(count))
    plan = plan_of(budget=Budget(minutes=1))
    state = loop.train(
        objective, Batches(objective), begun(objective), plan, TrainState(), processes=second
    )
    assert state.step == 1 and state.seconds == 77.0


@pytest.mark.parametrize("compute", [torch.bfloat16, torch.float16])
def test_narrow_numbers_follow_float32(compute: torch.dtype) -> None:
    wide, _, _ = run(mlm(), 20)
    narrow, _, _ = run(mlm(), 20, compute=compute)
    losses = [np.array([r["loss"] for r in records]) for records in (wide, narrow)]
    assert np.abs(losses[0] - losses[1]).max() < 0.05
    assert not np.array_equal(*losses)


def test_what_was_trained_leaves_memory_with_its_module() -> None:
    def trained() -> weakref.ref[Parameters]:
        _, optimizer, _ = run(mlm(), 2)
        return weakref.ref(optimizer.parameters)

    gone = trained()
    gc.collect()
    assert gone() is None


def two_kinds(share: float = 0.1) -> Hybrid:
    return Hybrid(bert(), hybrid.Options(causal_share=share), VOCABULARY)


class Only:
    """The first microbatch of the step `at`, whatever step it is, and no other."""

    def __init__(self, batches: Batches, at: int) -> None:
        self.batches, self.at = batches, at

    def __call__(self, step: int, number: int) -> Any:
        return None if number else self.batches(self.at, 0)


def test_a_part_without_targets_is_not_shown_and_not_made_up() -> None:
    plan = plan_of(parts=4)
    seen = set()
    for step in range(16):
        objective = two_kinds(0.3)
        batches = Batches(objective, 4)
        optimizer = begun(objective, clip=0.0)
        only = Only(batches, step)
        record = loop.step(objective, only, optimizer, plan, TrainState(), Processes())
        twin = two_kinds(0.3)
        batch = Batches(twin, 4)(step, 0)
        counts, loss = twin.counts(batch), twin(batch)
        loss.scaled(counts).backward()
        means = {n: float(p.total.detach()) / counts[n] for n, p in loss.parts.items() if counts[n]}
        assert record["parts"] == pytest.approx(means, rel=1e-5)
        assert record["targets"] == sum(counts.values())
        for name, parameter in twin.named_parameters():
            gradient = optimizer.parameters.view(optimizer.parameters.gradient, name)
            wanted = torch.zeros_like(gradient) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)
        weights = {"masked": 0.7, "causal": 0.3} if len(means) == 2 else dict.fromkeys(means, 1.0)
        wanted = sum(weights[name] * mean for name, mean in means.items())
        assert record["loss"] == pytest.approx(wanted, rel=1e-5)
        seen.add(tuple(means))
    assert seen == {("masked",), ("causal",), ("masked", "causal")}


class Side(Processes):
    """One of two processes: the first writes down what it gives, the second finds it there."""

    given: list[Any] = []  # noqa: RUF012

    def totals(self, numbers: list[float]) -> list[float]:
        if self.first:
            self.given.append(list(numbers))
            return numbers
        return [a + b for a, b in zip(self.given.pop(0), numbers, strict=True)]

    def sum(self, vector: torch.Tensor) -> None:
        if self.first:
            self.given.append(vector.clone())
        else:
            vector.add_(self.given.pop(0))


def test_a_process_without_a_microbatch_makes_the_same_step() -> None:
    plan = plan_of(parts=2)
    made = []
    for rank in (0, 1):
        objective = two_kinds(0.5)
        batches, optimizer, state = Batches(objective), begun(objective), TrainState()
        side = Side(rank, 2)
        record = loop.step(objective, Only(batches, 0), optimizer, plan, state, side)
        made.append((optimizer.parameters.masters, state, record["parts"], record["targets"]))
    assert torch.equal(made[0][0], made[1][0]) and not Side.given
    assert made[0][1:] == made[1][1:] and len(made[0][2]) == 2
    with pytest.raises(DataError, match="targets"):
        loop.step(objective, lambda step, n: None, optimizer, plan, TrainState(), Processes())


class Faint(Masked):
    """Whose gradients are mostly below the smallest number of float16."""

    def forward(self, batch: Any) -> Any:
        ((name, part),) = super().forward(batch).parts.items()
        return Loss({name: Part(part.total * 1e-7, part.weight)})


def test_float16_needs_a_scaled_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_norm(compute: torch.dtype) -> float:
        objective = Faint(bert(), masked.Options(), VOCABULARY)
        return float(run(objective, 1, compute=compute)[0][0]["gradient_norm"])

    wide, narrow = first_norm(torch.float32), first_norm(torch.float16)
    assert narrow == pytest.approx(wide, rel=0.02)
    monkeypatch.setattr(loop, "SCALE_BITS", 0)
    assert first_norm(torch.float16) < 0.7 * wide, "the control"


def test_an_overflow_of_float16_is_skipped_and_the_scale_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "SCALE_BITS", 30)
    monkeypatch.setattr(state_module, "SCALE_STEPS", 3)
    records, optimizer, state = run(mlm(), 40, compute=torch.float16)
    kinds = [r["kind"] for r in records]
    overflows = kinds.index("train")
    assert overflows > 5 and set(kinds[:overflows]) == {"skipped"}
    assert [r["loss_scale"] for r in records[:3]] == [2.0**30, 2.0**29, 2.0**28]
    assert "skipped" in kinds[overflows + 3 :], "the scale was doubled until it was too large"
    assert optimizer.parameters.masters.isfinite().all()
    plain = state.to_json()
    assert plain["scale_bits"] == state.scale_bits and TrainState.from_json(plain, "") == state
