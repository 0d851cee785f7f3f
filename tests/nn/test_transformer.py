"""The model's contract: shapes, errors, cache, what is shared, what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from checkpoint.small import model_of as small_model
from checkpoint.small import small
from maskwright.base.errors import ConfigError, DataError
from maskwright.model.checkpoint.layout import num_parameters
from maskwright.model.device.step_cost import cost
from maskwright.model.families.base.family import family
from maskwright.model.graph.modules import GraphCache
from maskwright.model.inference.blocks import fits
from maskwright.model.nn.config import Head, Relative, Rotary, Stack, Tokens
from maskwright.model.nn.initialise import build
from maskwright.model.nn.kernels.linear import spare_rows
from maskwright.model.nn.mask import real, same_document
from maskwright.model.nn.stack import Trace
from maskwright.model.nn.transformer import Transformer
from nn.points import (
    DECODERS,
    LENGTH,
    PAIRS,
    POINTS,
    POST,
    VOCABULARY,
    WIDTH,
    attention,
    block,
    config,
    model_of,
    stack,
    tokens,
)
from nn.test_attention import choose


def test_rows_added_for_the_product_are_taken_off() -> None:
    head = model_of("post-norm encoder").to(torch.bfloat16).vocabulary_head
    rows = torch.randn(70, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    assert spare_rows(rows) == 26
    ours, plain = head(rows), head(rows[None])[0]
    torch.testing.assert_close(ours, plain)
    by_rows = [torch.autograd.grad(out.float().square().sum(), rows)[0] for out in (ours, plain)]
    torch.testing.assert_close(*by_rows)


token_head = partial(Head, name="x", kind="token", labels=2)


def test_vectors_stand_for_tokens() -> None:
    model, ids = model_of("post-norm encoder"), tokens()
    torch.testing.assert_close(model.encode(model.tokens(ids)), model.encode(ids))


def test_dropout_after_the_final_norm() -> None:
    plain = POINTS["pre-norm decoder"]
    model = Transformer(replace(plain, decoder=replace(plain.decoder, final_dropout=0.25)))
    ids = tokens(64, 12)
    zeros = (model.train().decode(ids) == 0).float().mean().item()
    assert zeros == pytest.approx(0.25, abs=0.03)
    assert (model.eval().decode(ids) != 0).all()


def test_dropout_of_what_attention_gives_alone() -> None:
    plain = block(attention(output_dropout=0.25), "pre")
    model = Transformer(config(encoder=stack(plain))).train()
    half = model.encoder.blocks["0"]
    seen: list[torch.Tensor] = []
    half.attention.register_forward_hook(lambda module, given, out: seen.append(out))
    half.feed_forward.register_forward_hook(lambda module, given, out: seen.append(out))
    model.encode(tokens(64, 12))
    zeros = [(out == 0).float().mean().item() for out in seen]
    assert zeros[0] == pytest.approx(0.25, abs=0.03) and zeros[1] == 0


def test_hidden_states_and_weights_of_every_layer() -> None:
    model = model_of("relative encoder-decoder")
    states = model.hidden_states(tokens())
    assert len(states) == 3 and torch.equal(states[-1], model.encode(tokens()))
    trace = Trace()
    memory = model.encode(tokens(length=7))
    model.decode(tokens(), memory=memory, trace=trace)
    assert [tuple(w.shape) for w in trace.weights] == [(3, 2, 12, 12)] * 2
    assert [tuple(w.shape) for w in trace.cross_weights] == [(3, 2, 12, 7)] * 2
    assert len(model.hidden_states(tokens(), memory=memory)) == 3


def test_layers_that_share_weights_are_one_module() -> None:
    model = model_of("shared narrow encoder")
    states = model.hidden_states(tokens())
    assert len(states) == 4 and len(model.encoder.blocks) == 1
    assert not torch.equal(states[1], states[2])


@pytest.mark.parametrize("name", DECODERS + PAIRS)
@torch.no_grad()
def test_a_cache_changes_nothing(name: str) -> None:
    model, ids, facts = model_of(name), tokens(2, 12), {}
    if model.encoder is not None:
        seen = real(torch.tensor([[True] * 6, [True] * 4 + [False] * 2]))
        memory = model.encode(tokens(2, 6, seed=2), visible=seen)
        facts = {"memory": memory, "memory_visible": seen}
    whole, steps, past = model.decode(ids, **facts), [], no_past(model.config.decoder, 2)
    for part in ids.split([5, 1, 1, 3, 2], 1):
        cache = GraphCache(past, len(past) // len(model.config.decoder.blocks))
        steps.append(model.decode(part, cache=cache, **facts))
        past = cache.present
    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=1e-5, rtol=1e-5)


def no_past(decoder: Stack, rows: int) -> list[torch.Tensor]:
    """Keys and values of each layer, and of what it reads of a memory, of no position."""
    halves = [h for b in decoder.blocks for h in (b.attention, b.cross_attention) if h is not None]
    shapes = [(rows, half.num_key_heads, 0, half.head_width) for half in halves]
    return [torch.zeros(shape) for shape in shapes for _ in ("key", "value")]


@pytest.mark.parametrize("batch", [7, 32])
def test_F80_a_row_is_the_same_in_any_batch(batch: int) -> None:
    model = model_of("post-norm encoder")
    ids = tokens(batch, 10)
    padded = torch.cat([ids, torch.zeros(batch, LENGTH - 10, dtype=torch.long)], 1)
    documents = (torch.arange(LENGTH) < 10).int().expand(batch, -1)
    with torch.no_grad():
        alone = torch.cat([model.logits(model.encode(row)) for row in ids.split(1)])
        together = model.logits(model.encode(padded, visible=same_document(documents)))[:, :10]
    torch.testing.assert_close(together, alone, atol=1e-6 * float(alone.abs().max()) * 5, rtol=0)
    assert torch.equal(together.argmax(-1), alone.argmax(-1))


MEMORY = torch.zeros(3, 2, WIDTH)


@pytest.mark.parametrize(
    ("name", "call", "where"),
    [
        ("post-norm encoder", lambda m: m.decode(tokens()), "decoder"),
        ("pre-norm decoder", lambda m: m.encode(tokens()), "encoder"),
        ("post-norm encoder-decoder", lambda m: m.decode(tokens()), "decode(memory=...)"),
        ("pre-norm decoder", lambda m: m.decode(tokens(), memory=MEMORY), "decode(memory=...)"),
        ("post-norm encoder", lambda m: m.head("pairs", torch.zeros(1, WIDTH)), "heads"),
        ("pre-norm decoder", lambda m: m.pool(torch.zeros(1, WIDTH)), "pooler"),
    ],
)
def test_what_a_model_lacks_is_refused(
    name: str, call: Callable[[Transformer], object], where: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        call(model_of(name))
    assert refused.value.where == where


@pytest.mark.parametrize("bad", [-1, VOCABULARY])
def test_an_id_outside_the_vocabulary(bad: int) -> None:
    ids = tokens()
    ids[1, 3] = bad
    with pytest.raises(DataError, match=str(bad)):
        model_of("post-norm encoder").encode(ids)


@pytest.mark.parametrize("name", ["post-norm encoder", "sinusoidal decoder"])
def test_a_position_beyond_the_table(name: str) -> None:
    model = model_of(name)
    run = model.decode if model.encoder is None else model.encode
    run(tokens(1, LENGTH))
    with pytest.raises(DataError, match=f"at most {LENGTH}"):
        run(tokens(1, LENGTH + 1))
    with pytest.raises(DataError, match=f"at most {LENGTH}"):
        run(tokens(1, 2), positions=torch.tensor([[0, LENGTH]]))


# What would have no effect: a memory has neither order nor places.
OVER = (attention("causal"), attention(window=(2, 2)), attention(positions=Rotary()))
NARROW = Tokens(vocabulary=9, width=4)
TABLES = [block(attention(positions=Relative(buckets=n))) for n in (8, 16)]


def built(**fields: Any) -> Transformer:
    return Transformer(config(**fields))


@pytest.mark.parametrize(
    ("build", "where"),
    [
        (lambda: Head(name="x", kind="span", labels=3), "heads.x.labels"),
        (lambda: Head(name="x", kind="choice", labels=2), "heads.x.labels"),
        (lambda: token_head(dropout=1.0), "heads.x.dropout"),
        (lambda: token_head(input_dropout=1.0), "heads.x.input_dropout"),
        (lambda: Relative(buckets=3), "positions.buckets"),
        (lambda: Relative(buckets=8, max_distance=4), "positions.max_distance"),
        (lambda: Relative(max_distance=1 << 40), "positions.max_distance"),
        (lambda: replace(OVER[2], head_width=7), "attention.head_width"),
        (lambda: attention(output_dropout=1.0), "attention.output_dropout"),
        *((partial(block, attention(), cross_attention=over), "cross_attention") for over in OVER),
        (partial(built, encoder=stack(POST), tokens=NARROW), "vocabulary_head.transform"),
        (partial(built, encoder=stack(*TABLES)), "stack.blocks.attention.positions"),
    ],
)
def test_configs_that_no_module_can_be(build: Callable[[], object], where: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build()
    assert refused.value.where == where


def test_cost_of_a_published_model() -> None:
    """BERT-mini at length 128: 18.9 + 1.6 million operations per token of training, and 7.1 for a
    head that scores 15 % of the positions."""
    with torch.device("meta"):
        counted = cost(Transformer(family("bert").size("mini", "BertForMaskedLM")), 128)
    assert 3 * counted.body["encoder"] / 1e6 == pytest.approx(18.9, abs=0.05)
    assert 3 * counted.attention["encoder"] / 1e6 == pytest.approx(1.6, abs=0.05)
    assert 3 * 0.15 * counted.vocabulary / 1e6 == pytest.approx(7.1, abs=0.05)
    assert counted.training("encoder", 0.15) / 1e6 == pytest.approx(27.5, abs=0.1)


@pytest.mark.parametrize("kernel", ["explicit", "blocks"])
@pytest.mark.parametrize("name", POINTS)
def test_cost_counts_what_torch_counts(
    monkeypatch: pytest.MonkeyPatch, name: str, kernel: str
) -> None:
    choose(monkeypatch, kernel)
    model, ids = model_of(name), tokens(1, 12)
    counted = cost(model, 12, 12, 1)
    with FlopCounterMode(display=False) as measured:
        memory = model.encode(ids) if model.encoder is not None else None
        if model.decoder is not None:
            model.decode(ids, memory=memory)
    wanted = 12 * sum(counted.body[s] + counted.attention[s] for s in counted.body)
    assert measured.get_total_flops() == wanted + 12 * counted.memory


@pytest.mark.parametrize("name", ["bert", "llama", "bart"])
def test_a_layer_mix_is_elmo_s(name: str) -> None:
    """Equation 1 of Peters et al. 2018, from the states of a network with the same weights."""
    member = family(name)
    kind = next(k for k in member.architectures if k.endswith("ForSequenceClassification"))
    plain = small_model(small(member, kind))
    (head,) = plain.config.heads
    mixing = build(replace(plain.config, heads=(replace(head, layer_mix=True),)))
    assert mixing.num_parameters() == num_parameters(mixing.config)
    mixing.load_state_dict(plain.state_dict(), strict=False)
    mixing.eval()
    ids = tokens(2, 9) % 31
    stack, facts = mixing.decoder or mixing.encoder, {}
    if mixing.encoder is not None and mixing.decoder is not None:
        facts = {"memory": plain.encode(ids)}
    run = mixing.encode if mixing.decoder is None else mixing.decode
    states = plain.hidden_states(ids, **facts)
    torch.testing.assert_close(run(ids, **facts), torch.stack(states).mean(0))
    mix = mixing.heads[head.name].mix
    with torch.no_grad():
        mix.weights.copy_(torch.arange(len(states)).float())
        mix.scale.fill_(2.0)
    shares = torch.arange(len(states)).float().softmax(0)
    wanted = 2 * sum(share * state for share, state in zip(shares, states, strict=True))
    mixed = run(ids, **facts)
    torch.testing.assert_close(mixed, wanted)
    at = torch.tensor([0, 9])
    torch.testing.assert_close(run(ids, at=at, **facts), wanted.flatten(0, 1)[at])
    assert not torch.allclose(mixed, states[-1], atol=1e-2), "the control"
    mixed.square().sum().backward()
    assert mix.weights.grad.abs().min() > 0 and not fits(stack)
    with pytest.raises(ConfigError):
        replace(mixing.config, heads=(*mixing.config.heads, replace(head, name="other")))
