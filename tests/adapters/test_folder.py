"""Folders of adapters: their form and names; one that is damaged or of another model is refused.
That every method comes back from its folder is tests/finetune/test_command.py."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint.small import model_of, small
from maskwright.base import catalogue
from maskwright.base.errors import (
    CheckpointError,
    ConfigError,
    IncompatibleError,
    OutputError,
    UsageError,
)
from maskwright.model.adapters.base import folder
from maskwright.model.adapters.base.adapter import Adapter, attach
from maskwright.model.adapters.prefix import Prefix
from maskwright.model.families.base.family import family
from maskwright.model.nn.transformer import Transformer, layers_over

TOKENS = torch.arange(5, 29).reshape(2, 12)


def model(name: str = "bert", kind: str = "BertForSequenceClassification") -> Transformer:
    return model_of(small(family(name), kind))


def adapted(network: Transformer, method: str) -> Adapter:
    settings, generator = catalogue.load("adapters", method).SETTINGS(), torch.Generator()
    adapter = attach(settings, network, generator.manual_seed(0), heads=("classifier",))
    with torch.no_grad():
        for parameter in adapter.trainable().values():
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator())
    return adapter


@torch.no_grad()
def scores(network: Transformer) -> torch.Tensor:
    # A prompt takes room in the table of positions, which has 32.
    return network.head("classifier", network.encode(TOKENS)[:, 0])


@pytest.mark.parametrize("method", ["lora", "ia3"])
@pytest.mark.parametrize("changes", [{}, {"pooling": "mean"}, {"over": True}])
def test_beside_a_model_of_no_family_it_is_in_our_own_form(
    method: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    """`peft` would look there for the names of a BERT, and read its first token."""

    def changed() -> Transformer:
        config = small(family("bert"), "BertForSequenceClassification")
        over = {"over": layers_over(config)} if "over" in changes else changes
        return model_of(replace(config, heads=(replace(config.heads[0], **over),)))

    network, other = changed(), changed()
    folder.save(adapted(network, method), tmp_path / "a", base="runs/base")
    folder.load(other, tmp_path / "a")
    assert torch.equal(scores(other), scores(network))
    assert not torch.equal(scores(changed()), scores(network))
    assert (tmp_path / "a" / "adapter_config.json").exists() is (not changes)


def test_names_are_those_of_the_family(tmp_path: Path) -> None:
    """An ELECTRA whose tokens are as wide as the model has the shape of a BERT."""
    sizes = {"embedding_size": 16, "hidden_size": 16}
    config = small(family("electra"), "ElectraForTokenClassification", **sizes)
    network = model_of(config)
    adapter = adapted(network, "lora")
    for name in ("electra", "bert"):
        folder.save(adapter, tmp_path / name, base="base", family=name)
        tensors = (tmp_path / name / "adapter_model.safetensors").read_bytes()[:4000]
        assert f"base_model.model.{name}.encoder".encode() in tensors
    fresh = model_of(config)
    folder.load(fresh, tmp_path / "electra", family="electra")
    with pytest.raises(CheckpointError):
        folder.load(model_of(config), tmp_path / "electra", family="bert")


def test_a_folder_of_another_model_is_refused(tmp_path: Path) -> None:
    folder.save(adapted(model(), "prefix"), tmp_path / "a", base="base")
    other = model_of(small(family("bert"), "BertForSequenceClassification", hidden_size=16))
    with pytest.raises(IncompatibleError, match="another shape"):
        folder.load(other, tmp_path / "a")
    assert "adapters" not in dict(other.named_children())
    # Dropout is no part of the shape.
    same = model_of(small(family("bert"), "BertForSequenceClassification", hidden_dropout_prob=0.3))
    assert folder.load(same, tmp_path / "a").attached


def change(path: Path, **values: object) -> None:
    """Write a setting as someone might who knows no manifest."""
    (path / "MANIFEST.json").unlink()
    config = json.loads((path / folder.CONFIG).read_text())
    (path / folder.CONFIG).write_text(json.dumps({**config, **values}))


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"format": 2}, CheckpointError),
        ({"settings": {"kind": "prefixx", "length": 3}}, UsageError),
        ({"settings": {"kind": "prefix", "length": 0}}, ConfigError),
        ({"settings": {"kind": "prefix", "lenght": 3}}, ConfigError),
        ({"settings": {"kind": "prefix", "length": 3}}, CheckpointError),
        ({"settings": None}, CheckpointError),
        ({"heads": []}, CheckpointError),
        ({"heads": 3}, CheckpointError),
    ],
)
def test_a_config_that_is_wrong_is_refused(
    values: dict[str, object], error: type[Exception], tmp_path: Path
) -> None:
    folder.save(adapted(model(), "prefix"), tmp_path / "a", base="base")
    change(tmp_path / "a", **values)
    network = model()
    with pytest.raises(error):
        folder.load(network, tmp_path / "a")
    assert "adapters" not in dict(network.named_children())


def test_a_folder_is_never_half_written_overwritten_or_damaged(tmp_path: Path) -> None:
    adapter = adapted(model(), "prefix")
    folder.save(adapter, tmp_path / "a", base="base")
    with pytest.raises(OutputError):
        folder.save(adapter, tmp_path / "a", base="base")
    with torch.no_grad():
        next(iter(adapter.trainable().values())).fill_(float("inf"))
    with pytest.raises(CheckpointError):
        folder.save(adapter, tmp_path / "b", base="base")
    assert not (tmp_path / "b").exists()
    assert folder.load(model(), tmp_path / "a").settings == Prefix()
    (weights,) = (tmp_path / "a").glob("*.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(CheckpointError):
        folder.load(model(), tmp_path / "a")
