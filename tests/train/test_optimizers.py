"""The flat optimizer against torch's own, BERT's variant by hand, and flat parameters; the moving
average of the weights; and learning rates by parameter."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from maskwright.base.budget import Budget
from maskwright.base.errors import CheckpointError, ConfigError, IncompatibleError
from maskwright.learn.train import loop
from maskwright.learn.train.optimizers import (
    AdamWState,
    Average,
    ParameterRates,
    Parameters,
    start_optimizer,
)
from maskwright.learn.train.settings import Adafactor, AdamW, Lamb, Muon, Optimizer, Schedule
from maskwright.learn.train.state import Processes, TrainState
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives import masked
from maskwright.model.objectives.modules.masked import Masked
from toys import VOCABULARY, FixedRows, bert, gpt2


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


# ------------------------------------------------------------------------------ other kinds
STEPS = 6
# rate of a step, counted from 1
RATES = [0.01 * min(1.0, t / 3) for t in range(1, STEPS + 1)]
KINDS = [kind(learning_rate=0.01) for kind in (AdamW, Lamb, Adafactor, Muon)]


class Toy(nn.Module):
    """Named as a Transformer's parameters are: a table, a layer, a norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList([nn.Linear(8, 12), nn.Linear(12, 8)])
        self.norm = nn.LayerNorm(8)


def gradients(step: int, scale: float = 1.0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {
        n: scale * torch.randn(p.shape, generator=generator) for n, p in Toy().named_parameters()
    }


def ours(settings: Optimizer, compute: torch.dtype = torch.float32) -> dict[str, Tensor]:
    state = start_optimizer(settings, Parameters(Toy(), compute))
    for step, rate in enumerate(RATES):
        feed(state.parameters, step)
        state.step(rate)
    return state.parameters.state()


def feed(parameters: Parameters, step: int) -> None:
    for name, gradient in gradients(step).items():
        parameters.view(parameters.gradient, name).copy_(gradient)


def theirs(
    make: Callable[[list[nn.Parameter], list[nn.Parameter]], list[torch.optim.Optimizer]],
    rates: list[float] = RATES,
) -> dict[str, Tensor]:
    """The same with other optimizers, given the parameters that decay and those that do not."""
    module = Toy()
    matrices = [p for p in module.parameters() if p.dim() > 1]
    rest = [p for p in module.parameters() if p.dim() <= 1]
    optimizers = make(matrices, rest)
    for step, rate in enumerate(rates):
        for name, parameter in module.named_parameters():
            parameter.grad = gradients(step)[name]
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group.get("factor", 1.0)
            optimizer.step()
    return {n: p.detach() for n, p in module.named_parameters()}


def distance(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    """The largest difference, relative to a tensor's largest value."""
    assert first.keys() == second.keys()
    return max(float((first[n] - second[n]).abs().max() / second[n].abs().max()) for n in second)


def lamb(correction: bool, ratio: bool = True) -> dict[str, Tensor]:
    """LAMB written down tensor by tensor, in float64."""
    decay, beta1, beta2, epsilon = 0.1, 0.9, 0.98, 1e-8
    weights = {n: p.detach().double() for n, p in Toy().named_parameters()}
    first = {n: torch.zeros_like(w) for n, w in weights.items()}
    second = {n: torch.zeros_like(w) for n, w in weights.items()}
    for step, rate in enumerate(RATES):
        for name, gradient in gradients(step).items():
            g, w = gradient.double(), weights[name]
            m = first[name] = beta1 * first[name] + (1 - beta1) * g
            v = second[name] = beta2 * second[name] + (1 - beta2) * g * g
            if correction:
                m, v = m / (1 - beta1 ** (step + 1)), v / (1 - beta2 ** (step + 1))
            u = m / (v.sqrt() + epsilon)
            if w.dim() > 1:
                u = u + decay * w
                u = u * (w.norm() / u.norm() if ratio else 1.0)
            weights[name] = w - rate * u
    return {n: w.float() for n, w in weights.items()}


@pytest.mark.parametrize("correction", [True, False])
def test_lamb_is_the_plain_reference(correction: bool) -> None:
    usual = {"learning_rate": 0.01, "decay": 0.1, "beta2": 0.98, "epsilon": 1e-8}
    settings = Lamb(**usual, bias_correction=correction)
    assert distance(ours(settings), lamb(correction)) < 1e-6
    # The controls: without the ratio, and with the other correction, it is another optimizer.
    assert distance(ours(settings), lamb(correction, ratio=False)) > 1e-3
    assert distance(ours(settings), lamb(not correction)) > 1e-5


def test_lamb_moves_a_matrix_of_zeros() -> None:
    module = nn.Linear(3, 2, bias=False)
    nn.init.zeros_(module.weight)
    state = start_optimizer(Lamb(learning_rate=0.1), Parameters(module))
    state.parameters.gradient.fill_(2.0)
    state.step(0.1)
    assert torch.allclose(module.weight, torch.tensor(-0.1), rtol=1e-5)


def test_adafactor_is_torchs() -> None:
    # torch bounds the rate by t^-½, which these rates stay below.
    reference = theirs(
        lambda *groups: [
            torch.optim.Adafactor(group, eps=(1e-30, 1e-3), weight_decay=decay)
            for group, decay in zip(groups, (0.1, 0.0), strict=True)
        ]
    )
    mine = ours(Adafactor(learning_rate=0.01, decay=0.1))
    assert distance(mine, reference) < 1e-6
    assert distance(ours(Adafactor(learning_rate=0.01)), reference) > 1e-4


@pytest.mark.parametrize("relative", [True, False])
def test_adafactor_is_the_reference_librarys(relative: bool) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers.optimization import Adafactor as Reference

    options = {"lr": 1.0, "scale_parameter": relative, "relative_step": False}
    reference = theirs(lambda matrices, rest: [Reference(matrices + rest, **options)])
    mine = ours(Adafactor(learning_rate=0.01, relative=relative))
    assert distance(mine, reference) < 1e-6
    assert distance(ours(Adafactor(learning_rate=0.01, relative=not relative)), reference) > 1e-4


def test_adafactor_leaves_rows_without_a_gradient_where_they_are() -> None:
    module = nn.Embedding(3, 4)
    state = start_optimizer(Adafactor(learning_rate=0.1), Parameters(module))
    before = module.weight.detach().clone()
    state.parameters.view(state.parameters.gradient, "weight")[1] = 1e-3
    for _ in range(3):
        state.step(0.1)
    assert torch.isfinite(module.weight).all()
    assert torch.equal(module.weight[0], before[0]) and not torch.equal(module.weight[1], before[1])


@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
def test_muon_is_torchs_two(adjust: str) -> None:
    def make(matrices: list[nn.Parameter], rest: list[nn.Parameter]) -> list[torch.optim.Optimizer]:
        table, *layers = matrices
        groups = [{"params": [table], "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        others = torch.optim.AdamW([{**g, "factor": 0.3} for g in groups], eps=1e-6)
        return [torch.optim.Muon(layers, weight_decay=0.1, adjust_lr_fn=adjust), others]

    mine = Muon(learning_rate=0.01, adjust=adjust, adam_rate=0.3)
    assert distance(ours(mine), theirs(make)) < 1e-6
    assert distance(ours(AdamW(learning_rate=0.01)), theirs(make)) > 1e-3


@pytest.mark.parametrize("make", [bert, gpt2])
def test_muon_takes_the_matrices_of_layers_and_no_others(make: Callable[[], Transformer]) -> None:
    state = start_optimizer(Muon(learning_rate=0.01), Parameters(make()))
    moments = {n.removeprefix("second.") for n in state.state() if n.startswith("second.")}
    linear = ("query", "key", "value", "output", "up", "down")
    names = state.parameters.spans.keys()
    matrices = {n for n in names if n.split(".")[-2] in linear and n.endswith(".weight")}
    assert names - moments == matrices and len(matrices) == 6 * 2


def test_muon_needs_layers() -> None:
    with pytest.raises(IncompatibleError, match="adamw"):
        start_optimizer(Muon(learning_rate=0.01), Parameters(nn.Linear(3, 2)))


@pytest.mark.parametrize("settings", KINDS, ids=lambda s: s.kind)
@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16])
def test_what_an_optimizer_remembers_returns(settings: Optimizer, compute: torch.dtype) -> None:
    whole = start_optimizer(settings, Parameters(Toy(), compute))
    for step in range(STEPS):
        if step == 3:
            saved = {n: t.clone() for n, t in whole.state().items()}
            masters = {n: t.clone() for n, t in whole.parameters.state().items()}
        feed(whole.parameters, step)
        whole.step(0.01)
    other = start_optimizer(settings, Parameters(Toy(), compute))
    other.parameters.load(masters)
    other.load(saved, 3)
    forgetful = start_optimizer(settings, Parameters(Toy(), compute))
    forgetful.parameters.load(masters)
    for step in range(3, STEPS):
        for state in (other, forgetful):
            feed(state.parameters, step)
            state.step(0.01)
    assert torch.equal(other.parameters.masters, whole.parameters.masters)
    assert all(torch.equal(t, other.state()[n]) for n, t in whole.state().items())
    # The control: with the weights alone it is another run.
    assert not torch.equal(forgetful.parameters.masters, whole.parameters.masters)
    with pytest.raises(CheckpointError, match=r"first|second|row"):
        other.load(dict(list(saved.items())[1:]), 3)
    with pytest.raises(CheckpointError):
        other.parameters.load({n: t.flatten()[:1] for n, t in masters.items()})


@pytest.mark.parametrize("kind", [AdamW, Lamb, Muon])
def test_a_weight_without_a_gradient_stays_a_number(kind: type[AdamW | Lamb | Muon]) -> None:
    """With the smallest epsilon there is; with 0 the step would be 0/0."""
    state = start_optimizer(kind(learning_rate=0.1, epsilon=1e-36), Parameters(Toy()))
    state.parameters.clear()
    state.parameters.zero_untouched()
    state.step(0.1)
    assert state.parameters.masters.isfinite().all()


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *((kind, "epsilon", 0.0) for kind in (AdamW, Lamb, Adafactor, Muon)),
        (AdamW, "epsilon", 1e-50),  # 0 in float32
        *((AdamW, "learning_rate", -1.0), (Lamb, "beta2", 1.0), (Adafactor, "exponent", 0.5)),
        *((Muon, "iterations", 0), (Muon, "momentum", 1.0)),
    ],
)
def test_settings_out_of_range_are_named(kind: type[Optimizer], name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"training\.optimizer\.{name}"):
        kind(**{"learning_rate": 0.1, name: value})
