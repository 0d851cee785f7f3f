"""The flat optimizer against torch's own, BERT's variant by hand, and flat parameters; the moving
average of the weights; and learning rates by parameter."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from maskwright.base.budget import Budget
from maskwright.base.errors import CheckpointError, ConfigError
from maskwright.learn.train import loop
from maskwright.learn.train.optimizers import (
    AdamWState,
    Average,
    ParameterRates,
    Parameters,
    start_optimizer,
)
from maskwright.learn.train.settings import AdamW, Lamb, Optimizer, Schedule
from maskwright.learn.train.state import Processes, TrainState
from maskwright.model.objectives import masked
from maskwright.model.objectives.modules.masked import Masked
from toys import VOCABULARY, FixedRows, bert


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 5))


def loss_of(module: nn.Module, seed: int) -> torch.Tensor:
    ids = torch.randint(0, 11, (4, 3), generator=torch.Generator().manual_seed(seed))
    out = module(ids)
    return (out.float() ** 2).sum()


def backward(parameters: Parameters, *losses: torch.Tensor) -> None:
    parameters.clear()
    for loss in losses:
        loss.backward()
    parameters.zero_untouched()


def test_ten_steps_equal_torch_with_bert_groups() -> None:
    ours, theirs = network(), network()
    parameters = Parameters(ours)
    state = AdamWState(parameters, AdamW(learning_rate=0.01, decay=0.1, clip=0.0, epsilon=1e-8))
    decayed = [p for p in theirs.parameters() if p.dim() > 1]
    plain = [p for p in theirs.parameters() if p.dim() <= 1]
    reference = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=0.01
    )
    for step in range(10):
        backward(parameters, loss_of(ours, step))
        state.step(0.01)
        reference.zero_grad()
        loss_of(theirs, step).backward()
        reference.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(mine, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("corrected", "step"),
    # BERT's, uncorrected: m = 0.1 * 2, v = 0.001 * 4; corrected it is the sign alone.
    [(False, 0.2 / (0.004**0.5 + 1e-6)), (True, 1.0)],
)
def test_the_first_step_is_by_hand(corrected: bool, step: float) -> None:
    module = nn.Linear(1, 1, bias=False)
    parameters, before = Parameters(module), module.weight.detach().clone()
    settings = AdamW(learning_rate=0.1, decay=0.0, epsilon=1e-6, bias_correction=corrected)
    parameters.gradient.fill_(2.0)
    AdamWState(parameters, settings).step(0.1)
    assert torch.allclose(module.weight, before - 0.1 * step, rtol=1e-5)


def test_what_gets_no_gradient_counts_as_zero_and_not_as_last_steps() -> None:
    module = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    parameters = Parameters(module)
    backward(parameters, module[0](torch.ones(1, 2)).sum() + module[1](torch.ones(1, 2)).sum())
    assert parameters.view(parameters.gradient, "1.weight").abs().sum() > 0
    backward(parameters, module[0](torch.ones(1, 2)).sum())
    assert parameters.view(parameters.gradient, "1.weight").abs().sum() == 0


def test_bfloat16_computes_narrow_and_remembers_wide() -> None:
    module = network()
    wide = copy.deepcopy(module.state_dict())
    parameters = Parameters(module, torch.bfloat16)
    assert all(p.dtype == torch.bfloat16 for p in module.parameters())
    for name, tensor in parameters.state().items():
        assert torch.equal(tensor, wide[name])
    state = AdamWState(parameters, AdamW(learning_rate=1e-5, decay=0.0))
    before = parameters.masters.clone()
    backward(parameters, loss_of(module, 1))
    state.step(1e-5)
    moved = (parameters.masters - before).abs().max()
    assert 0 < moved < 2e-5  # far below what bfloat16 could have held
    assert torch.equal(module[2].weight, parameters.view(parameters.masters, "2.weight").bfloat16())


def test_three_steps_by_hand() -> None:
    parameters = Parameters(nn.Linear(1, 1, bias=False))
    parameters.masters.fill_(1.0)
    average = Average(parameters, 0.75)
    found = []
    for weight in (3.0, 5.0, -3.0):
        parameters.masters.fill_(weight)
        average.update()
        found.append(float(average.vector))
    # 0.75 * 1 + 0.25 * 3, and so on.
    assert found == [1.5, 2.375, 1.03125]


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16])
def test_it_stands_in_for_the_weights_and_gives_them_back(compute: torch.dtype) -> None:
    module = nn.Linear(5, 3)
    parameters = Parameters(module, compute)
    average = Average(parameters, 0.9)
    average.vector.normal_()
    own = parameters.masters.clone()
    inputs = torch.randn(2, 5).to(compute)
    before = module(inputs)
    with average.in_place():
        weight = average.state()["weight"].to(compute)
        assert torch.equal(module.weight, weight)
        assert not torch.equal(module(inputs), before)
    assert torch.equal(module(inputs), before) and torch.equal(parameters.masters, own)
    with pytest.raises(ZeroDivisionError), average.in_place():
        _ = 1 / 0
    assert torch.equal(parameters.masters, own)


def test_the_loop_moves_it_after_every_step() -> None:
    objective = Masked(bert(), masked.Options(), VOCABULARY)
    rows = FixedRows(8).all
    optimizer = start_optimizer(AdamW(learning_rate=1e-2), Parameters(objective))
    average = Average(optimizer.parameters, 0.5)
    plan = loop.TrainingPlan(seed=0, microbatches=1, budget=Budget(steps=9), schedule=Schedule())
    expected, state = average.vector.clone(), TrainState()
    for _ in range(3):
        batches = lambda step, number: objective.corrupt(rows, rows.ids, step)  # noqa: E731
        loop.step(objective, batches, optimizer, plan, state, Processes(), average)
        expected = 0.5 * expected + 0.5 * optimizer.parameters.masters
    assert torch.allclose(average.vector, expected, rtol=1e-6, atol=1e-8)
    assert not torch.allclose(average.vector, optimizer.parameters.masters, rtol=1e-4)
    assert state.samples == 24


def test_an_average_of_another_model_is_refused() -> None:
    average = Average(Parameters(nn.Linear(2, 2)), 0.9)
    saved = {n: t + 1 for n, t in average.state().items()}
    average.load(saved)
    assert all(torch.equal(t, saved[n]) for n, t in average.state().items())
    with pytest.raises(CheckpointError, match="bias"):
        average.load({"weight": saved["weight"]})


def two_layers() -> Parameters:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3))
    return Parameters(module)


def trained_masters(
    optimizer: Optimizer, factors: dict[str, float] | None, rate: float
) -> torch.Tensor:
    p = two_layers()
    state = start_optimizer(optimizer, p)
    if factors is not None:
        state = ParameterRates(state, lambda step: factors)
    for step in range(3):
        torch.manual_seed(step)
        p.gradient.normal_()
        state.step(rate)
    return p.masters.clone()


@pytest.mark.parametrize(
    "optimizer", [AdamW(learning_rate=1.0, decay=0.1), Lamb(learning_rate=1.0)]
)
@pytest.mark.parametrize("factor", [0.25, 10.0])
def test_a_factor_is_a_rate(optimizer: Optimizer, factor: float) -> None:
    names = list(two_layers().named)
    p = two_layers()
    factors = {n: factor if n.startswith("1.") else 1.0 for n in names}
    mixed = trained_masters(optimizer, factors, 0.01)
    rates = [trained_masters(optimizer, None, rate) for rate in (0.01, 0.01 * factor)]
    for name in names:
        other, wanted = rates if name.startswith("1.") else reversed(rates)
        if isinstance(optimizer, AdamW):
            torch.testing.assert_close(p.view(mixed, name), p.view(wanted, name))
        # The control: the other rate would be seen.
        assert not torch.allclose(p.view(mixed, name), p.view(other, name), rtol=1e-4)


def holding(p: Parameters, steps: int) -> tuple[ParameterRates, list[str]]:
    """An optimizer that freezes the first layer for some steps, and the names of its parameters."""
    held = [n for n in p.named if n.startswith("0.")]
    inner = start_optimizer(AdamW(learning_rate=1.0), p)
    factors = lambda step: {n: float(n not in held or step >= steps) for n in p.named}  # noqa: E731
    return ParameterRates(inner, factors), held


def test_a_parameter_that_is_held_stays_and_is_let_go() -> None:
    p = two_layers()
    before = p.masters.clone()
    state, held = holding(p, 2)
    for step in range(3):
        p.gradient.fill_(1.0)
        state.step(0.01)
        for name in p.named:
            same = torch.equal(p.view(p.masters, name), p.view(before, name))
            assert same is (name in held and step < 2), (step, name)
    assert state.steps == state.inner.steps == 3
    assert set(state.state()) == {f"{m}.{n}" for m in ("first", "second") for n in p.named}


def test_what_is_held_has_no_part_in_the_length_that_is_clipped() -> None:
    p = two_layers()
    state, held = holding(p, 1)
    p.gradient.normal_()
    moving = torch.cat([p.view(p.gradient, n).flatten() for n in p.named if n not in held])
    torch.testing.assert_close(state.norm(), torch.linalg.vector_norm(moving))
    assert state.norm() < 0.9 * p.norm()  # the control
    p.view(p.gradient, held[0]).view(-1)[0] = float("inf")
    assert not torch.isfinite(state.norm())  # would be remembered, so it has to show
    p.gradient.normal_()
    state.step(0.01)
    torch.testing.assert_close(state.norm(), p.norm())  # let go


def test_a_parameter_without_a_factor_is_refused() -> None:
    p = two_layers()
    with pytest.raises(ConfigError):
        ParameterRates(start_optimizer(AdamW(learning_rate=1.0), p), lambda step: {"0.weight": 1.0})
