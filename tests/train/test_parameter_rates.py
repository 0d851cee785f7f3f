"""A step times a factor is a step at another rate; a factor of 0 holds."""

from __future__ import annotations

import pytest
import torch

from maskwright.base.errors import ConfigError
from maskwright.learn.train.optimizers.settings import AdamW, Lamb, Optimizer
from maskwright.learn.train.optimizers.states import ParameterRates, start_optimizer
from maskwright.learn.train.parameters import Parameters


def parameters() -> Parameters:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3))
    return Parameters(module)


def moved(optimizer: Optimizer, factors: dict[str, float] | None, rate: float) -> torch.Tensor:
    p = parameters()
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
    names = list(parameters().named)
    p = parameters()
    factors = {n: factor if n.startswith("1.") else 1.0 for n in names}
    mixed = moved(optimizer, factors, 0.01)
    usual, other_rate = moved(optimizer, None, 0.01), moved(optimizer, None, 0.01 * factor)
    for name in names:
        wanted = other_rate if name.startswith("1.") else usual
        if isinstance(optimizer, AdamW):
            torch.testing.assert_close(p.view(mixed, name), p.view(wanted, name))
        # The control: the other rate would be seen.
        other = usual if name.startswith("1.") else other_rate
        assert not torch.allclose(p.view(mixed, name), p.view(other, name), rtol=1e-4)


def test_a_parameter_that_is_held_stays_and_is_let_go() -> None:
    p = parameters()
    before = p.masters.clone()
    held = [n for n in p.named if n.startswith("0.")]
    state = ParameterRates(
        start_optimizer(AdamW(learning_rate=1.0), p),
        lambda step: {n: float(n not in held or step >= 2) for n in p.named},
    )
    for step in range(3):
        p.gradient.fill_(1.0)
        state.step(0.01)
        for name in p.named:
            same = torch.equal(p.view(p.masters, name), p.view(before, name))
            assert same is (name in held and step < 2), (step, name)
    assert state.steps == state.inner.steps == 3
    assert set(state.state()) == {f"{m}.{n}" for m in ("first", "second") for n in p.named}


def test_what_is_held_has_no_part_in_the_length_that_is_clipped() -> None:
    p = parameters()
    held = [n for n in p.named if n.startswith("0.")]
    state = ParameterRates(
        start_optimizer(AdamW(learning_rate=1.0), p),
        lambda step: {n: float(n not in held or step >= 1) for n in p.named},
    )
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
    p = parameters()
    with pytest.raises(ConfigError, match="no learning-rate factor"):
        ParameterRates(start_optimizer(AdamW(learning_rate=1.0), p), lambda step: {"0.weight": 1.0})
