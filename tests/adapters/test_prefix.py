"""A prefix does what tokens in front would do; a prompt, too, one floor lower."""

from __future__ import annotations

import pytest
import torch

from checkpoint.small import model_of, small
from maskwright.base.errors import ConfigError
from maskwright.model.adapters.base.adapter import attach
from maskwright.model.adapters.modules.prefix import PrefixKV
from maskwright.model.adapters.modules.prompt import SoftPrompt
from maskwright.model.adapters.prefix import Prefix
from maskwright.model.adapters.prompt import PromptTuning
from maskwright.model.families.base.family import family
from maskwright.model.graph.modules import GraphCache
from maskwright.model.nn.mask import real, same_document
from maskwright.model.nn.transformer import Transformer

TOKENS = torch.arange(24).reshape(2, 12) * 5 % 61
COUNT = 4


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def model(name: str) -> Transformer:
    return model_of(small(family(name)))


def with_tokens_in_front(network: Transformer, front: torch.Tensor) -> None:
    """A prefix of the keys and values that the tokens `front` (P) have."""
    attention = network.config.decoder.blocks[0].attention
    nothing = torch.zeros(1, attention.num_key_heads, 0, attention.head_width)
    cache = GraphCache([nothing] * 2 * len(network.config.decoder.blocks), per_layer=2)
    network.decode(front[None], cache=cache)
    adapter = attach(Prefix(length=len(front)), network, generator())
    with torch.no_grad():
        for layer, (_, branch) in enumerate(adapter.places()):
            for side in (0, 1):
                values = cache.present[2 * layer + side]
                branch.prefix[0, side] = values[0].transpose(0, 1).flatten(1)


def test_a_prefix_of_tokens_is_the_tokens_in_front() -> None:
    front, rest = TOKENS[0, :COUNT], TOKENS[:, COUNT:]
    places = torch.arange(COUNT, 12)[None]
    network = model("gpt2")
    with torch.no_grad():
        wanted = network.decode(torch.cat([front.expand(2, -1), rest], 1))[:, COUNT:]
        without = network.decode(rest, positions=places)
        with_tokens_in_front(network, front)
        found = network.decode(rest, positions=places)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(without, wanted, atol=1e-2)  # the control


@pytest.mark.parametrize("name", ["bert", "modernbert", "t5", "gpt2"])
def test_masks_of_the_text_stay(name: str) -> None:
    network = model(name)
    attach(Prefix(length=COUNT), network, generator())
    keep = torch.arange(12)[None] < torch.tensor([[12], [7]])
    run = network.decode if network.encoder is None else network.encode
    with torch.no_grad():
        padded = run(TOKENS, visible=real(keep))
        alone = run(TOKENS[1:, :7])
        packed = run(TOKENS, visible=same_document((torch.arange(12) >= 7).long().repeat(2, 1) + 1))
    for states in (padded, packed):
        torch.testing.assert_close(states[1:, :7], alone, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(run(TOKENS)[1:, :6], alone[:, :6], atol=1e-3) or name == "gpt2"


def test_each_layer_has_its_own_even_where_layers_share_weights() -> None:
    network = model("albert")
    adapter = attach(Prefix(length=COUNT), network, generator())
    ((_, branch),) = adapter.places()
    assert isinstance(branch, PrefixKV) and branch.prefix.shape == (3, 2, COUNT, 24)
    before = network.encode(TOKENS)
    for layer in range(3):
        with torch.no_grad():
            branch.prefix[layer] += 0.5
        after = network.encode(TOKENS)
        assert not torch.allclose(after, before, atol=1e-4)
        before = after


def test_a_network_may_make_it() -> None:
    network = model("bert")
    adapter = attach(Prefix(length=COUNT, hidden=6), network, generator())
    fronts = [branch for _, branch in adapter.places()]
    assert all(isinstance(f, PrefixKV) and len(f.layers) == 1 for f in fronts)
    assert {front.of_layer(0).shape for front in fronts} == {(2, COUNT, 24)}
    names = list(adapter.state())
    assert len([n for n in names if n.endswith("maker.table")]) == 1  # one table for all layers
    network.encode(TOKENS).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in adapter.trainable().values())


def prompted(network: Transformer, front: torch.Tensor) -> None:
    """A prompt of the vectors of the tokens `front` (P)."""
    ((_, branch),) = attach(PromptTuning(length=len(front)), network, generator()).places()
    with torch.no_grad():
        branch.vectors.copy_(network.tokens.weight[front])


@pytest.mark.parametrize("name", ["bert", "modernbert", "t5", "gpt2"])
def test_a_prompt_of_tokens_is_the_tokens_in_front(name: str) -> None:
    network, keep = model(name), torch.arange(12)[None] < torch.tensor([[12], [7]])
    front = TOKENS[0, :COUNT]
    segments = (torch.arange(12) > 5).long().repeat(2, 1)
    facts = {"segments": segments} if name == "bert" else {}
    run = network.decode if network.encoder is None else network.encode
    whole = {n: torch.cat([torch.zeros(2, COUNT).long(), s], 1) for n, s in facts.items()}
    with torch.no_grad():
        both = torch.cat([front.expand(2, -1), TOKENS], 1)
        shown = torch.cat([torch.ones(2, COUNT, dtype=torch.bool), keep], 1)
        wanted = run(both, visible=real(shown), **whole)[:, COUNT:]
        without = run(TOKENS, visible=real(keep), **facts)
        prompted(network, front)
        found = run(TOKENS, visible=real(keep), **facts)
        counted = run(TOKENS, visible=real(keep), positions=torch.arange(12)[None], **facts)
        documents = run(TOKENS, visible=same_document(keep.long()), **facts)
        some = run(TOKENS, visible=real(keep), at=torch.tensor([17, 3, 11]), **facts)
    for states in (found, counted, documents):
        torch.testing.assert_close(states[keep], wanted[keep], rtol=1e-5, atol=1e-5)
    chosen = wanted.flatten(0, 1)[torch.tensor([17, 3, 11])]
    torch.testing.assert_close(some, chosen, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(without[keep], wanted[keep], atol=1e-2)  # the control


def test_a_prompt_begins_as_tokens_and_stands_before_the_encoder() -> None:
    network = model("t5")
    ((path, branch),) = attach(PromptTuning(length=COUNT, common=9), network, generator()).places()
    assert path == "encoder" and isinstance(branch, SoftPrompt)
    table = network.tokens.weight[:9]
    assert all(bool((row == table).all(1).any()) for row in branch.vectors)


def test_what_is_traced_has_the_shape_of_the_text() -> None:
    network = model("bert")
    attach(PromptTuning(length=COUNT), network, generator())
    assert {h.shape for h in network.hidden_states(TOKENS)} == {(2, 12, 24)}


@pytest.mark.parametrize("settings", [Prefix, PromptTuning])
def test_a_length_out_of_range_is_refused(settings: type[Prefix | PromptTuning]) -> None:
    with pytest.raises(ConfigError):
        settings(length=0)
