"""The product of two narrow matrices: figures of the paper, places, shared layers, bfloat16."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from checkpoint.small import model_of, small
from conformance.test_adapters import stir
from maskwright.base.errors import ConfigError
from maskwright.model.adapters.base.adapter import Adapter, attach
from maskwright.model.adapters.base.settings import Settings
from maskwright.model.adapters.lora import LoRA
from maskwright.model.adapters.prefix import Prefix
from maskwright.model.families.base.family import family
from maskwright.model.nn.transformer import Transformer

TOKENS = torch.arange(24).reshape(2, 12)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def bert(name: str = "bert", kind: str | None = None) -> Transformer:
    return model_of(small(family(name), kind))


def lora(model: Transformer, *heads: str, **options: Any) -> Adapter:
    adapter = attach(LoRA(**options), model, generator(), heads=heads)
    with torch.no_grad():
        for _, branch in adapter.places():
            branch.B.normal_(0.0, 0.1, generator=generator())
    return adapter


def test_figures_of_bert_base() -> None:
    with torch.device("meta"):
        model = Transformer(family("bert").size("base"))
    adapter = attach(LoRA(rank=8), model, generator())
    sizes = {sum(p.numel() for p in branch.parameters()) for _, branch in adapter.places()}
    assert sizes == {12_288} and 768 * 768 / 12_288 == 48
    assert adapter.share() == "294,912 of 109,777,152 parameters train (0.27 %)"


@pytest.mark.parametrize("settings", [LoRA(), Prefix(length=4)], ids=["lora", "prefix"])
def test_a_copy_of_the_model_has_a_copy_of_the_adapter(settings: Settings) -> None:
    model = bert()
    adapter = attach(settings, model, generator())
    stir(adapter)
    before, twin = model.encode(TOKENS), copy.deepcopy(model)
    adapter.detach()
    assert torch.equal(twin.encode(TOKENS), before)
    assert not torch.equal(model.encode(TOKENS), before)
    twin.get_submodule("adapters.default").detach()
    assert torch.equal(twin.encode(TOKENS), bert().encode(TOKENS))


def test_dropout_falls_on_the_branch_and_only_in_training() -> None:
    model = bert("gpt2")
    still = model.decode(TOKENS)
    lora(model, dropout=0.5)
    calm = model.decode(TOKENS)
    assert torch.equal(calm, model.decode(TOKENS)) and not torch.equal(calm, still)
    model.train()
    torch.manual_seed(0)
    assert not torch.equal(model.decode(TOKENS), model.decode(TOKENS))


@pytest.mark.parametrize(
    ("targets", "count"),
    [
        (("query",), 3 + 2 + 2),
        (("cross_attention.query",), 2),
        (("attention.query",), 3 + 2),
        (("encoder.blocks.0.attention.query", "up"), 1 + 3 + 2),
        (("query", "key", "value", "output", "up", "down"), 4 * 7 + 2 * 5),
    ],
)
def test_targets_are_endings_of_paths(targets: tuple[str, ...], count: int) -> None:
    assert len(list(lora(bert("bart"), targets=targets).places())) == count


@pytest.mark.parametrize(
    ("targets", "heads", "where"),
    [
        *(((target,), (), "lora.targets") for target in ("querry", "gate", "pooler")),
        (("query",), ("classifier",), "heads"),
    ],
)
def test_a_target_that_is_not_there_is_refused(
    targets: tuple[str, ...], heads: tuple[str, ...], where: str
) -> None:
    model = bert()
    with pytest.raises(ConfigError) as refused:
        attach(LoRA(targets=targets), model, generator(), heads=heads)
    assert refused.value.where == where
    assert "adapters" not in dict(model.named_children())
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize(
    "options", [{"rank": 0}, {"alpha": 0.0}, {"dropout": 1.0}, {"targets": ()}]
)
def test_a_setting_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        LoRA(**options)
    assert refused.value.where == f"lora.{next(iter(options))}"


def test_in_bfloat16() -> None:
    model = bert().bfloat16()
    with torch.no_grad():
        before = model.encode(TOKENS)
        adapter = attach(LoRA(), model, generator())
        assert torch.equal(model.encode(TOKENS), before)
    lora_b = {n for n in adapter.trainable() if n.endswith(".B")}
    model.encode(TOKENS).float().square().sum().backward()
    found = {n for n, p in adapter.trainable().items() if p.grad is not None and p.grad.any()}
    assert found == lora_b  # A has none as long as B is zero
    assert all(p.dtype == torch.bfloat16 for p in adapter.trainable().values())
