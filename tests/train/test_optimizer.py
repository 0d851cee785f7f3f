"""The flat optimizer against torch's own, BERT's variant by hand, and flat parameters."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from maskwright.base.errors import CheckpointError
from maskwright.learn.train.optimizers.settings import AdamW
from maskwright.learn.train.optimizers.states import AdamWState
from maskwright.learn.train.parameters import Parameters


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 5))


def loss_of(module: nn.Module, seed: int) -> torch.Tensor:
    ids = torch.randint(0, 11, (4, 3), generator=torch.Generator().manual_seed(seed))
    out = module(ids)
    return (out.float() ** 2).sum()


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
        parameters.clear()
        loss_of(ours, step).backward()
        parameters.zero_untouched()
        state.step(0.01)
        reference.zero_grad()
        loss_of(theirs, step).backward()
        reference.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(mine, other, rtol=1e-6, atol=1e-7)


def test_without_bias_correction_the_first_step_is_by_hand() -> None:
    module = nn.Linear(1, 1, bias=False)
    parameters = Parameters(module)
    settings = AdamW(learning_rate=0.1, decay=0.0, epsilon=1e-6, bias_correction=False)
    state = AdamWState(parameters, settings)
    before = module.weight.detach().clone()
    parameters.gradient.fill_(2.0)
    state.step(0.1)
    # m = 0.1 * 2, v = 0.001 * 4; BERT's update is m / (sqrt(v) + eps), uncorrected.
    expected = before - 0.1 * 0.2 / (0.004**0.5 + 1e-6)
    assert torch.allclose(module.weight, expected, rtol=1e-5)
    # The control: with the correction the step is another one (lr * sign).
    corrected = nn.Linear(1, 1, bias=False)
    twin = Parameters(corrected)
    start = corrected.weight.detach().clone()
    twin.gradient.fill_(2.0)
    AdamWState(twin, AdamW(learning_rate=0.1, decay=0.0)).step(0.1)
    assert torch.allclose(corrected.weight, start - 0.1, rtol=1e-4)


def test_microbatches_add_up_in_float32() -> None:
    whole, split = network(), network()
    ours = Parameters(whole)
    ours.clear()
    (loss_of(whole, 1) + loss_of(whole, 2)).backward()
    ours.zero_untouched()
    parts = Parameters(split)
    parts.clear()
    loss_of(split, 1).backward()
    loss_of(split, 2).backward()
    parts.zero_untouched()
    assert torch.allclose(ours.gradient, parts.gradient, rtol=1e-6, atol=1e-7)


def test_what_gets_no_gradient_counts_as_zero_and_not_as_last_steps() -> None:
    module = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    parameters = Parameters(module)
    parameters.clear()
    (module[0](torch.ones(1, 2)).sum() + module[1](torch.ones(1, 2)).sum()).backward()
    parameters.zero_untouched()
    assert parameters.view(parameters.gradient, "1.weight").abs().sum() > 0
    parameters.clear()
    module[0](torch.ones(1, 2)).sum().backward()
    parameters.zero_untouched()
    assert parameters.view(parameters.gradient, "1.weight").abs().sum() == 0


def test_tied_weights_are_one_parameter() -> None:
    module = nn.ModuleDict({"table": nn.Embedding(7, 4), "head": nn.Linear(4, 7, bias=False)})
    module["head"].weight = module["table"].weight
    parameters = Parameters(module)
    assert parameters.masters.numel() == 28
    parameters.clear()
    module["head"](module["table"](torch.tensor([1]))).sum().backward()
    parameters.zero_untouched()
    assert module["head"].weight.data_ptr() == module["table"].weight.data_ptr()
    assert parameters.gradient.abs().sum() > 0


def test_bfloat16_computes_narrow_and_remembers_wide() -> None:
    module = network()
    wide = copy.deepcopy(module.state_dict())
    parameters = Parameters(module, torch.bfloat16)
    assert all(p.dtype == torch.bfloat16 for p in module.parameters())
    for name, tensor in parameters.state().items():
        assert torch.equal(tensor, wide[name])
    state = AdamWState(parameters, AdamW(learning_rate=1e-5, decay=0.0))
    before = parameters.masters.clone()
    parameters.clear()
    loss_of(module, 1).backward()
    parameters.zero_untouched()
    state.step(1e-5)
    moved = (parameters.masters - before).abs().max()
    assert 0 < moved < 2e-5  # far below what bfloat16 could have held
    assert torch.equal(module[2].weight, parameters.view(parameters.masters, "2.weight").bfloat16())


def test_state_returns_bit_for_bit_and_strangers_are_refused() -> None:
    parameters = Parameters(network())
    state = AdamWState(parameters, AdamW(learning_rate=0.01))
    parameters.gradient.normal_()
    state.step(0.01)
    saved = {n: t.clone() for n, t in state.state().items()}
    masters = {n: t.clone() for n, t in parameters.state().items()}
    twin = Parameters(network())
    other = AdamWState(twin, AdamW(learning_rate=0.01))
    twin.load(masters)
    other.load(saved, 1)
    assert torch.equal(twin.masters, parameters.masters)
    assert torch.equal(other.first, state.first) and torch.equal(other.second, state.second)
    with pytest.raises(CheckpointError, match="first"):
        other.load({n: t for n, t in saved.items() if not n.startswith("first")}, 1)
    with pytest.raises(CheckpointError):
        twin.load({n: t.flatten()[:1] for n, t in masters.items()})
