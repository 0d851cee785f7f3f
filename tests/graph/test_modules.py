"""The modules that graphs are made of compute what the network computes, for every family and head.

No graph is written here: that takes seconds each (tests/export).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from checkpoint.small import RECURRENT, TEXTS, model_of, small
from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.families.base.family import family
from maskwright.model.graph.graphs import Graph, Vectors, graphs_of, states_graph
from maskwright.model.nn import mask as masks
from maskwright.model.nn.transformer import Transformer, layers_over
from maskwright.model.objectives.modules.supervised import Unit, pool

NAMES = [name for name in TEXTS if name not in RECURRENT]  # which are refused
EVERY = [(name, architecture) for name in NAMES for architecture in family(name).architectures]
EVERY += [("vit", "ViTModel"), ("vit", "ViTForImageClassification")]
SIZES = {"batch": 3, "length": 9, "past": 4, "memory": 6, "projected": 5, "choices": 2}
START = 2


@pytest.mark.parametrize(("name", "architecture"), EVERY, ids=[a for _, a in EVERY])
def test_a_graph_computes_what_the_network_does(name: str, architecture: str) -> None:
    network = model_of(small(family(name), architecture))
    for graph in graphs_of(network, decoder_start=START):
        inputs = graph.example(SIZES, seed=1)
        found = graph.run(inputs)
        assert {n: tuple(t.shape) for n, t in found.items()} == {
            port.name: port.shape(SIZES) for port in graph.outputs
        }
        if graph.name == "model" and "past" not in graph.sizes:
            with torch.no_grad():
                _compare_texts(network, inputs, found)


def _compare_texts(
    network: Transformer, inputs: dict[str, Tensor], found: dict[str, Tensor]
) -> None:
    """Each row by itself, without padding, by the network's own methods."""
    if "pixel_values" in inputs:
        patches = functional.unfold(inputs["pixel_values"], 4, stride=4).mT
        ids = torch.cat([torch.full_like(patches[:, :1], 7.0), patches], 1)  # which is not read
        inputs = {"input_ids": ids, "attention_mask": torch.ones(ids.shape[:2])}
    ids, mask = inputs["input_ids"], inputs["attention_mask"].bool()
    segments = inputs.get("token_type_ids")
    flat = ids if ids.is_floating_point() else ids.flatten(0, -2)
    rows = []
    for row, kept in enumerate(mask.flatten(0, -2)):
        own = None if segments is None else segments.flatten(0, -2)[row][kept][None]
        rows.append(_states(network, flat[row][kept][None], own)[0])
    for head in network.config.heads:
        if head.pools:
            place = -1 if network.config.decoder is not None else 0
            read = torch.stack([r.mean(0) if head.pooling == "mean" else r[place] for r in rows])
            wanted = network.head(head.name, read)
            name = next(n for n in found if n.endswith("logits") and "prediction" not in n)
            torch.testing.assert_close(found[name].reshape(wanted.shape), wanted)
        else:
            scores = [network.head(head.name, r) for r in rows]
            ends = [found[name] for name in ("start_logits", "end_logits") if name in found]
            logits = torch.stack(ends, -1) if ends else found["logits"]
            _compare_places(logits.view(*mask.shape, -1), mask, scores)
    if network.config.vocabulary_head is not None:
        name = "prediction_logits" if network.config.heads else "logits"
        _compare_places(found[name], mask, [network.logits(states) for states in rows])
    if "last_hidden_state" in found:
        _compare_places(found["last_hidden_state"], mask, rows)


def _compare_places(found: Tensor, mask: Tensor, wanted: list[Tensor]) -> None:
    for row, kept in enumerate(mask):
        torch.testing.assert_close(found[row][kept], wanted[row])


def _states(network: Transformer, ids: Tensor, segments: Tensor | None) -> Tensor:
    config = network.config
    if config.encoder is not None and config.decoder is not None and config.heads:
        shifted = torch.cat((torch.full_like(ids[:, :1], START), ids[:, :-1]), 1)
        return network.decode(shifted, memory=network.encode(ids))
    run = network.decode if config.encoder is None else network.encode
    return run(ids, segments=segments)


@pytest.mark.parametrize("name", ["gpt2", "llama", "openai-gpt"])
def test_a_decoder_goes_on_where_its_past_ends(name: str) -> None:
    """And padding in front of a prompt changes nothing."""
    network = model_of(small(family(name), _writer(name)))
    (graph,) = graphs_of(network)
    names = [port.name for port in graph.inputs]
    assert names[:3] == ["input_ids", "attention_mask", "position_ids"]
    assert names[3:5] == ["past_key_values.0.key", "past_key_values.0.value"]
    ids = torch.randint(5, 60, (2, 7), generator=torch.Generator().manual_seed(0))
    ids[1, :3] = 0
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    whole = _asked(graph, ids, mask, positions)["logits"]
    first = _asked(graph, ids[:, :4], mask[:, :4], positions[:, :4])
    rest = _asked(graph, ids[:, 4:], mask, positions[:, 4:], first)
    torch.testing.assert_close(rest["logits"], whole[:, 4:])
    with torch.no_grad():
        alone = network.logits(network.decode(ids[1:, 3:]))
    torch.testing.assert_close(whole[1:, 3:], alone)
    wrong = _asked(graph, ids[:, 4:], mask, positions[:, 4:] + 1, first)["logits"]
    assert not torch.allclose(wrong, rest["logits"], atol=1e-3), "the control"


def _writer(name: str) -> str:
    return next(a for a, kit in family(name).architectures.items() if kit.generates)


def _asked(
    graph: Graph,
    ids: Tensor,
    mask: Tensor,
    positions: Tensor,
    past: dict[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    empty = graph.example({"batch": len(ids), "length": 1, "past": 0})
    inputs = {**empty, "input_ids": ids, "attention_mask": mask, "position_ids": positions}
    return graph.run({**inputs, **past_of(past or {})})


def past_of(outputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inputs of the next step."""
    present = {n: tensor for n, tensor in outputs.items() if n.startswith("present")}
    return {n.replace("present", "past_key_values"): tensor for n, tensor in present.items()}


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_the_parts_of_two_stacks_make_the_whole(name: str) -> None:
    network = model_of(small(family(name), _writer(name)))
    encoder, merged = graphs_of(network)
    names = [port.name for port in merged.outputs][1:5]
    ends = ("decoder.key", "decoder.value", "encoder.key", "encoder.value")
    assert names == [f"present.0.{end}" for end in ends], "optimum takes them in this order"
    read = encoder.example({"batch": 2, "length": 6}, seed=3)
    memory = encoder.run(read)["last_hidden_state"]
    memory_mask = read["attention_mask"]
    ids = torch.randint(5, 60, (2, 5), generator=torch.Generator().manual_seed(0))
    given = {"encoder_hidden_states": memory, "encoder_attention_mask": memory_mask}
    empty = merged.example({**SIZES, "batch": 2, "past": 0, "projected": 0})
    begun = merged.run({**empty, **given, "input_ids": ids[:, :2]})
    # The memory itself is read no more.
    given["encoder_hidden_states"] = torch.full_like(memory, torch.nan)
    rest = merged.run({**given, "input_ids": ids[:, 2:], **past_of(begun)})
    with torch.no_grad():
        real = masks.real(memory_mask != 0)
        states = network.encode(read["input_ids"], visible=real)
        whole = network.logits(network.decode(ids, memory=states, memory_visible=real))
    torch.testing.assert_close(torch.cat((begun["logits"], rest["logits"]), 1), whole)


@pytest.mark.parametrize("skip", [0, 2])
@pytest.mark.parametrize(
    "how", ["cls", "lasttoken", "max", "mean", "mean_sqrt_len_tokens", "weightedmean"]
)
def test_vectors_are_pooled_as_they_were_trained(how: str, skip: int) -> None:
    network = model_of(small(family("bert"), "BertModel"))
    (graph,) = graphs_of(network, vectors=Vectors((how, "mean"), skip, Unit()))
    inputs = graph.example({"batch": 3, "length": 9}, seed=2)
    inputs["attention_mask"][1:, 4:] = 0
    inputs["attention_mask"][:, :4] = 1
    found = graph.run(inputs)
    batch = Batch(
        tokens=inputs["input_ids"],
        documents=inputs["attention_mask"].int(),
        pooled=torch.arange(3) * 9,
    )
    wanted = Unit()(pool(found["last_hidden_state"], batch, (how, "mean"), skip))
    torch.testing.assert_close(found["sentence_embedding"], wanted)


def test_what_has_no_graph_is_refused_with_the_reason() -> None:
    config = small(family("bert"), "BertForSequenceClassification")
    pieces = replace(config, heads=(replace(config.heads[0], over=layers_over(config)),))
    hooked = model_of(config)
    hooked.encoder.register_forward_hook(lambda *given: None)  # type: ignore[union-attr]
    for network, where in {
        model_of(pieces): "heads.classifier",
        hooked: "encoder",
        model_of(small(family("vit"), "ViTForMaskedImageModeling")): "heads.decoder",
        model_of(
            small(family("bart"), "BartForSequenceClassification")
        ): "config.json: decoder_start_token_id",
    }.items():
        with pytest.raises(IncompatibleError) as refused:
            graphs_of(network)
        assert refused.value.where == where


def test_other_engines_read_no_images() -> None:
    with pytest.raises(IncompatibleError) as refused:
        states_graph(model_of(small(family("vit"))))
    assert refused.value.where == "tokens"
