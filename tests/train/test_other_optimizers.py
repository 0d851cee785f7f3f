"""LAMB, Adafactor and Muon: against a plain reference, other libraries' own, and by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from maskwright.base.errors import CheckpointError, ConfigError, IncompatibleError
from maskwright.learn.train.optimizers import Parameters, start_optimizer
from maskwright.learn.train.settings import Adafactor, AdamW, Lamb, Muon, Optimizer
from maskwright.model.nn.transformer import Transformer
from toys import bert, gpt2

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
