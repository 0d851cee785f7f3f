"""Which parameters train, and the learning rate by depth."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from checkpoint.small import model_of, small
from maskwright.base.errors import ConfigError
from maskwright.model.adapters.base import freeze
from maskwright.model.adapters.base.adapter import attach
from maskwright.model.adapters.lora import LoRA
from maskwright.model.families.base.family import family
from maskwright.model.nn.transformer import Transformer


def model(name: str = "bert", kind: str | None = "BertForSequenceClassification") -> Transformer:
    return model_of(small(family(name), kind))


def layers_in(names: list[str]) -> set[str]:
    return {".".join(n.split(".")[:3]) for n in names if ".blocks." in n}


def test_worked_figures_of_the_decay() -> None:
    with torch.device("meta"):
        base = Transformer(family("bert").size("base", "BertForSequenceClassification"))
    factors = freeze.learning_rate_factors(base, 0.95)
    assert factors.keys() == dict(base.named_parameters()).keys()

    def rate(name: str) -> float:
        return 2e-5 * factors[name]

    assert rate("heads.classifier.weight") == rate("pooler.weight") == 2e-5
    assert rate("encoder.blocks.11.attention.query.weight") == pytest.approx(1.9e-5, rel=1e-12)
    assert rate("encoder.blocks.0.feed_forward.up.bias") == pytest.approx(1.0807e-5, rel=1e-4)
    embeddings = [f for n, f in factors.items() if n.startswith(("tokens", "encoder.embeddings"))]
    assert len(embeddings) == 5 and set(embeddings) == {0.95**13} == {min(factors.values())}


def test_depth_in_other_shapes() -> None:
    two = freeze.depths_of(model("bart", None))  # three layers below, two above
    assert two["decoder.blocks.1.attention.query.weight"] == 1
    assert two["decoder.blocks.0.cross_attention.key.weight"] == 2
    assert two["encoder.blocks.2.attention.query.weight"] == 3
    assert two["encoder.blocks.0.attention.query.weight"] == 5
    assert two["tokens.weight"] == two["decoder.embeddings.position.weight"] == 6
    relative = freeze.depths_of(model("t5", None))
    assert relative["decoder.final_norm.weight"] == 0 and relative["encoder.relative.weight"] == 6
    assert relative["encoder.final_norm.weight"] == 2  # below all layers of the decoder
    shared = freeze.depths_of(model("albert", None))
    assert shared["encoder.blocks.0.attention.query.weight"] == 1
    assert shared["tokens.weight"] == 4


def test_a_branch_has_the_depth_of_its_place() -> None:
    network = model()
    attach(LoRA(), network, torch.Generator().manual_seed(0))
    depths = freeze.depths_of(network)
    branches = {n: d for n, d in depths.items() if n.startswith("adapters.")}
    assert len(branches) == 3 * 2 * 2
    for name, depth in branches.items():
        place = name.split(".branches.")[1].replace("/", ".").removesuffix(".A").removesuffix(".B")
        assert depth == depths[f"{place}.weight"]


def test_last_layers() -> None:
    network = model()
    assert layers_in(freeze.last_layers(network, 0)) == set()
    names = freeze.last_layers(network, 2)
    assert layers_in(names) == {"encoder.blocks.1", "encoder.blocks.2"}
    assert {"pooler.weight", "heads.classifier.weight"} <= set(names)
    assert "tokens.weight" not in names
    with pytest.raises(ConfigError) as refused:
        freeze.last_layers(network, 4)
    assert refused.value.where == "layers"


def test_heads_and_biases() -> None:
    network = model()
    found = freeze.biases(network)
    assert all(n.endswith(".bias") and n.startswith("encoder.") for n in found)
    assert len(found) == 3 * 8 + 1  # six projections and two norms a layer, one norm below
    assert len(freeze.biases(network, ("query", "up"))) == 3 * 2


def test_gradual_unfreezing_grows_from_the_top() -> None:
    network = model()
    steps = [set(freeze.gradual(network, p / 12)) for p in range(13)]
    assert all(a <= b for a, b in pairwise(steps))
    assert layers_in(list(steps[0])) == {"encoder.blocks.2"}
    assert steps[-1] == {name for name, _ in network.named_parameters()} and steps[-2] != steps[-1]
    assert len({len(step) for step in steps}) == 4  # three layers, then the embeddings
    half = set(freeze.gradual(network, 0.5, until=0.5))
    assert half == steps[-1] and set(freeze.gradual(network, 0.5)) != half
    with pytest.raises(ConfigError) as refused:
        freeze.gradual(network, 1.5)
    assert refused.value.where == "gradual"


@pytest.mark.parametrize(
    "rule",
    [
        freeze.biases,
        lambda m: freeze.last_layers(m, 0),
        lambda m: freeze.last_layers(m, 1),
        lambda m: freeze.gradual(m, 0.5),
    ],
)
def test_only_the_named_ones_train(rule: Callable[[Transformer], list[str]]) -> None:
    network = model()
    network.tokens.weight.requires_grad_(False)
    names = set(rule(network))
    back = freeze.train_only(network, names)
    count = sum(p.numel() for n, p in network.named_parameters() if n in names)
    assert freeze.share(network).startswith(f"{count:,} of {network.num_parameters():,} ")
    scores = network.head("classifier", network.encode(torch.arange(12).reshape(2, 6))[:, 0])
    scores.square().sum().backward()
    assert {n for n, p in network.named_parameters() if p.grad is not None} == names
    back()
    frozen = {n for n, p in network.named_parameters() if not p.requires_grad}
    assert frozen == {"tokens.weight"}
    with pytest.raises(ConfigError, match="wait"):
        freeze.train_only(network, {"tokens.wait"})
