"""Every method of adaptation through the same body of tests, beside a small model of every family;
a new method is tested by being there. Each law has its control."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from checkpoint.small import RECURRENT, TEXTS, model_of, readable, small
from maskwright.base import catalogue
from maskwright.base.config import from_plain, to_plain
from maskwright.base.errors import CheckpointError, ConfigError, IncompatibleError, UsageError
from maskwright.model.adapters.base import folder
from maskwright.model.adapters.base.adapter import Adapter
from maskwright.model.adapters.base.adapter import attach as attach_adapter
from maskwright.model.adapters.base.settings import Settings
from maskwright.model.families.base.family import family
from maskwright.model.nn.transformer import Transformer

METHODS = catalogue.names("adapters")
FAMILIES = [*TEXTS, "vit"]
# Families without biases, which what trains biases refuses.
BARE = [("bitfit", "llama"), ("bitfit", "modernbert"), ("bitfit", "t5")]
# What changes layers finds none, and says so.
BARE += [(m, "static-vectors") for m in METHODS if m not in ("head", "probe")]
# Layers of cells have biases, and vectors may stand in front of what they read.
WITHOUT_CELLS = ("bottleneck", "ia3", "lora", "prefix")
BARE += [(m, name) for m in WITHOUT_CELLS if m in METHODS for name in RECURRENT]
BARE += [("prompt", "elmo")]  # whose words are made of characters
BARE += [("prompt", "vit")]  # which has a position for each patch and no more
CASES = [(m, name) for m in METHODS for name in FAMILIES if (m, name) not in BARE]
# Sizes that fit small models; everything else stays at its default.
SMALL: dict[str, dict[str, Any]] = {
    "lora": {"rank": 2, "alpha": 4.0},
    "bottleneck": {"width": 3},
    "prefix": {"length": 3},
    "prompt": {"length": 3},
}
# Shared layers, a decoder, two stacks: where a law is not about the family.
FEW = [case for case in CASES if case[1] in ("albert", "gpt2", "bart")]
FOREIGN = ("lora", "ia3")  # what peft has a form for
TOKENS = torch.arange(30).reshape(2, 15) * 7 % 61


def settings_of(method: str, **options: Any) -> Settings:
    return catalogue.load("adapters", method).SETTINGS(**{**SMALL.get(method, {}), **options})


def model(name: str) -> Transformer:
    """A small one, with a classifier where the family has one."""
    return copy.deepcopy(built(name))


@functools.cache
def built(name: str) -> Transformer:
    member = family(name)
    kinds = [k for k, kit in member.architectures.items() if kit.heads] or [None]
    kind = next((k for k in kinds if k and "SequenceClassification" in k), kinds[0])
    # The tokens here have no separator that would tell which of them are a question.
    keys = {"global_attention": "first"} if name == "led" else {}
    return model_of(small(member, kind, **keys))


@torch.no_grad()
def outputs(network: Transformer) -> Tensor:
    """Hidden states of all stacks, and the scores of heads. Without gradients: whether a query has
    one decides which kernel computes attention, and kernels agree only to rounding."""
    return graph(network)


def graph(network: Transformer) -> Tensor:
    if network.encoder is None:
        parts = [network.decode(TOKENS)]
    elif network.decoder is None:
        parts = [network.encode(readable(network, TOKENS))]
    else:
        memory = network.encode(TOKENS[:, :6])
        parts = [memory, network.decode(TOKENS[:, 6:], memory=memory)]
    for head in network.config.heads:
        picked = parts[-1][:, 0] if head.pools else parts[-1]
        parts.append(network.head(head.name, picked))
    return torch.cat([part.flatten() for part in parts])


def attach(network: Transformer, method: str) -> Adapter:
    """With the model's heads."""
    generator = torch.Generator().manual_seed(0)
    return attach_adapter(settings_of(method), network, generator, heads=list(network.heads))


def attached(name: str, method: str) -> tuple[Transformer, Adapter]:
    network = model(name)
    return network, attach(network, method)


@torch.no_grad()
def stir(adapter: Adapter, seed: int = 1) -> None:
    """As training would: other values everywhere."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in adapter.trainable().values():
        parameter += 0.05 * torch.randn(parameter.shape, generator=generator)


def bits(network: Transformer) -> dict[str, tuple[Tensor, bool]]:
    return {n: (p.detach().clone(), p.requires_grad) for n, p in network.named_parameters()}


def same(one: dict[str, tuple[Tensor, bool]], two: dict[str, tuple[Tensor, bool]]) -> bool:
    return one.keys() == two.keys() and all(
        torch.equal(one[n][0], two[n][0]) and one[n][1] == two[n][1] for n in one
    )


def hooked(network: Transformer) -> bool:
    return any(
        m._forward_hooks or m._forward_pre_hooks or getattr(m, "before", None)
        for m in network.modules()
    )


# ------------------------------------------------------------------------------ the contract
@pytest.mark.parametrize("method", METHODS)
def test_a_file_is_its_registration(method: str) -> None:
    module = catalogue.load("adapters", method)
    assert isinstance(module, ModuleType) and module.__doc__ and "arXiv:" in module.__doc__
    settings = settings_of(method)
    assert settings.kind == method
    assert from_plain(type(settings), to_plain(settings)) == settings


@pytest.mark.parametrize(("method", "name"), BARE)
def test_a_model_without_anything_to_train_is_refused(method: str, name: str) -> None:
    network = model(name)
    with pytest.raises((IncompatibleError, ConfigError)) as refused:
        attach(network, method)
    assert refused.value.where in ("bitfit.parts", "lora.targets", "ia3.outputs", "kind", "prompt")
    assert same(bits(network), bits(model(name)))


# ------------------------------------------------------------------------------ the laws
@pytest.mark.parametrize(("method", "name"), CASES)
def test_a_fresh_adapter_changes_no_output(method: str, name: str) -> None:
    """Bit for bit; of a prefix and a prompt, which are new positions, not. Values that are not
    fresh change the output."""
    before = outputs(model(name))
    network, adapter = attached(name, method)
    after = outputs(network)
    # PyTorch has another kernel for products of rows alone with weights that do not train.
    equal = torch.allclose if name == "elmo" else torch.equal
    assert equal(before, after) is adapter.settings.silent
    assert before.shape == after.shape and after.isfinite().all()
    stir(adapter)
    assert not torch.allclose(outputs(network), after, atol=1e-4)


@pytest.mark.parametrize(("method", "name"), CASES)
def test_only_what_is_declared_trains(method: str, name: str) -> None:
    network, adapter = attached(name, method)
    stir(adapter)
    declared = {id(p) for p in adapter.trainable().values()}

    def training() -> set[int]:
        for parameter in network.parameters():
            parameter.grad = None
        graph(network).square().sum().backward()
        return {id(p) for p in network.parameters() if p.grad is not None and p.grad.any()}

    assert training() == declared
    assert {id(p) for p in network.parameters() if p.requires_grad} == declared
    assert {n for n in adapter.trainable() if n.startswith("heads.")} == {
        n for n, _ in network.named_parameters() if n.startswith("heads.")
    }
    network.tokens.weight.requires_grad_(True)  # the control
    assert training() != declared


@pytest.mark.parametrize(("method", "name"), CASES)
def test_detached_is_as_before_bit_for_bit(method: str, name: str) -> None:
    fresh = model(name)
    fresh.tokens.weight.requires_grad_(False)
    network, adapter = attached(name, method)
    adapter.detach()
    network.tokens.weight.requires_grad_(False)  # a flag of the user's comes back too
    adapter = attach(network, method)
    with pytest.raises(UsageError):
        attach(network, method)  # beside another one
    stir(adapter)
    assert not same(bits(network), bits(fresh))  # the control
    assert hooked(network) is bool(adapter.branches)
    adapter.detach()
    assert same(bits(network), bits(fresh))
    assert torch.equal(outputs(network), outputs(fresh))
    assert "adapters" not in dict(network.named_modules())
    assert not hooked(network)
    with pytest.raises(UsageError, match="detached"):
        adapter.detach()


MERGING = [case for case in CASES if settings_of(case[0]).merges]


@pytest.mark.parametrize("method", [m for m in METHODS if not settings_of(m).merges])
def test_what_is_no_weight_is_not_merged(method: str) -> None:
    network, adapter = attached("bert", method)
    stir(adapter)
    beside = outputs(network)
    with pytest.raises(IncompatibleError, match="weights"):
        adapter.merge()
    assert hooked(network) and torch.equal(outputs(network), beside)


@pytest.mark.parametrize(("method", "name"), MERGING)
def test_merged_is_attached(method: str, name: str) -> None:
    fresh = model(name)
    network, adapter = attached(name, method)
    stir(adapter)
    beside = outputs(network)
    adapter.merge()
    merged = outputs(network)
    torch.testing.assert_close(merged, beside, rtol=1e-6, atol=1e-6 * float(beside.abs().max()))
    assert not torch.allclose(merged, outputs(fresh), atol=1e-4)  # the control
    assert bits(network).keys() == bits(fresh).keys()
    assert not hooked(network)  # as fast as before
    with pytest.raises(UsageError, match="merged"):
        adapter.merge()
    assert torch.equal(outputs(network), merged)


@pytest.mark.parametrize(("method", "name"), FEW)
def test_state_is_all_there_is(method: str, name: str) -> None:
    """Beside the model it makes the same outputs, and the model is not in it."""
    network, adapter = attached(name, method)
    stir(adapter)
    state = {n: t.clone() for n, t in adapter.state().items()}
    other, second = attached(name, method)
    assert not torch.equal(outputs(other), outputs(network))  # the control
    second.load_state(state)
    assert torch.equal(outputs(other), outputs(network))
    assert "tokens.weight" not in state
    with pytest.raises(CheckpointError):
        second.load_state({**state, "more": torch.zeros(1)})
    first = next(iter(state))
    with pytest.raises(CheckpointError):
        second.load_state({**state, first: state[first] * float("nan")})
    assert torch.equal(outputs(other), outputs(network))


@pytest.mark.parametrize(("method", "name"), [case for case in CASES if case[0] in FOREIGN])
def test_saved_and_loaded_as_peft_has_it(method: str, name: str, tmp_path: Path) -> None:
    network, adapter = attached(name, method)
    stir(adapter)
    folder.save(adapter, tmp_path / "adapter", base="base")
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()
    other = model(name)
    loaded = folder.load(other, tmp_path / "adapter")
    assert torch.equal(outputs(other), outputs(network))
    assert loaded.state().keys() == adapter.state().keys()
    assert not torch.equal(outputs(model(name)), outputs(network))  # the control
