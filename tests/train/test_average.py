"""The moving average of the weights: by hand, in the loop, and in the model's place for a while."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from maskwright.base.budget import Budget
from maskwright.base.errors import CheckpointError
from maskwright.learn.train import loop
from maskwright.learn.train.distribute import Processes
from maskwright.learn.train.optimizers.settings import AdamW
from maskwright.learn.train.optimizers.states import start_optimizer
from maskwright.learn.train.parameters import Average, Parameters
from maskwright.learn.train.schedule import Schedule
from maskwright.learn.train.state import TrainState
from maskwright.model.objectives import masked
from maskwright.model.objectives.modules.masked import Masked
from toys import VOCABULARY, FixedRows, bert


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
