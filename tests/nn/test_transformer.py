"""The model's contract: shapes, errors, cache, what is shared, what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from maskwright.base.errors import ConfigError, DataError
from maskwright.model.device.step_cost import cost
from maskwright.model.families.base.family import family
from maskwright.model.nn import transformer
from maskwright.model.nn.attention import KVCache
from maskwright.model.nn.config import Attention, Head, Relative, Rotary, Tokens
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


@pytest.mark.parametrize("name", POINTS)
def test_weights_are_out_by_in_and_all_are_used(name: str) -> None:
    model = model_of(name)
    ids = tokens()
    scores = 0.0
    if model.encoder is not None:
        hidden = model.encode(ids)
        scores = hidden[:, 0].square().sum()
    if model.decoder is not None:
        memory = hidden if model.encoder is not None else None
        hidden = model.decode(ids, memory=memory)
    scores = scores + model.logits(hidden).square().sum()
    for head in model.heads:
        scores = scores + model.head(head, hidden[:, 0]).square().sum()
    scores.backward()
    for parameter, value in model.named_parameters():
        assert value.grad is not None and value.grad.abs().sum() > 0, parameter
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            assert module.weight.shape == (module.out_features, module.in_features)


# --------------------------------------------------------------------------------------- shapes
def test_scores_are_computed_where_asked() -> None:
    model = model_of("post-norm encoder")
    hidden = model.encode(tokens(3, 12), segments=torch.ones(3, 12, dtype=torch.long))
    assert hidden.shape == (3, 12, WIDTH)
    picked = hidden.flatten(0, 1)[torch.tensor([3, 30])]
    scores = model.logits(picked)
    assert scores.shape == (2, VOCABULARY)
    torch.testing.assert_close(scores[1], model.logits(hidden)[2, 6])
    by_parts = model.head_hidden(picked) @ model.head_weight.T + model.head_bias
    torch.testing.assert_close(by_parts, scores)
    assert model.head_weight is model.tokens.weight


def test_rows_added_for_the_product_are_taken_off() -> None:
    """One head, with rows added (two dimensions of a narrow type) and without (three)."""
    head = model_of("post-norm encoder").to(torch.bfloat16).vocabulary_head
    rows = torch.randn(70, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    assert spare_rows(rows) == 26
    ours, plain = head(rows), head(rows[None])[0]
    torch.testing.assert_close(ours, plain)
    by_rows = [torch.autograd.grad(out.float().square().sum(), rows)[0] for out in (ours, plain)]
    torch.testing.assert_close(*by_rows)


def test_a_sequence_head_pools() -> None:
    model = model_of("post-norm encoder")
    rows = model.encode(tokens())[:, 0]
    wanted = torch.tanh(rows @ model.pooler.weight.T + model.pooler.bias)
    torch.testing.assert_close(model.pool(rows), wanted)
    torch.testing.assert_close(model.head("pair", rows), model.heads["pair"](wanted))
    torch.testing.assert_close(model.head("tag", rows), model.heads["tag"](rows))
    torch.testing.assert_close(model.head("choice", rows), model.heads["choice"](wanted))


def test_a_dense_head_by_its_definition() -> None:
    model = model_of("post-norm encoder")
    head, rows = model.heads["dense"], torch.randn(2, 5, WIDTH)
    dense = torch.tanh(rows @ head.transform.weight.T + head.transform.bias)
    torch.testing.assert_close(head(rows), dense @ head.weight.T + head.bias)


def test_a_head_with_a_norm_and_no_bias() -> None:
    model = model_of("post-norm encoder")
    head, rows = model.heads["normed"], torch.randn(2, 5, WIDTH)
    dense = torch.nn.functional.gelu(rows @ head.transform.weight.T)
    spread = dense.var(-1, keepdim=True, correction=0) + 1e-5
    normed = (dense - dense.mean(-1, keepdim=True)) / spread.sqrt() * head.norm.weight
    torch.testing.assert_close(head(rows), normed @ head.weight.T, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("place", ["input_dropout", "dropout"])
def test_where_the_dropouts_of_a_head_stand(place: str) -> None:
    """The one before the dense layer leaves zeros in its input, the other in its output."""
    config = Head(name="x", kind="token", labels=1, transform="relu", **{place: 0.5})
    head = transformer.HeadModule(config, 1000).train()
    with torch.no_grad():
        torch.nn.init.eye_(head.transform.weight)
        head.transform.bias.fill_(3.0)
        head.weight.fill_(1e-3)
        mean = head(torch.ones(2000, 1000)).mean().item()
        spread = head(torch.ones(2000, 1000)).var(0).item()
    # Each of 1000 terms is 3 or 5, or else 0 or 8, with equal probability.
    assert mean == pytest.approx(4.0, abs=0.02)
    assert spread == pytest.approx({"input_dropout": 1e-3, "dropout": 16e-3}[place], rel=0.2)
    head.eval()
    assert head(torch.ones(1, 1000)).item() == pytest.approx(4.0)


def test_scaled_embeddings_by_their_definition() -> None:
    plain = POINTS["post-norm encoder"]
    assert plain.encoder is not None
    entry = replace(plain.encoder.embeddings, scaled=True)
    scaled = Transformer(replace(plain, encoder=replace(plain.encoder, embeddings=entry))).eval()
    model = Transformer(plain).eval()
    model.load_state_dict(scaled.state_dict())
    vectors = torch.randn(2, 5, WIDTH)
    torch.testing.assert_close(scaled.encode(vectors), model.encode(vectors * WIDTH**0.5))


def test_dropout_after_the_final_norm() -> None:
    """In training, so many of the last hidden states are zero, and none without training."""
    plain = POINTS["pre-norm decoder"]
    assert plain.decoder is not None
    model = Transformer(replace(plain, decoder=replace(plain.decoder, final_dropout=0.25)))
    ids = tokens(64, 12)
    zeros = (model.train().decode(ids) == 0).float().mean().item()
    assert zeros == pytest.approx(0.25, abs=0.03)
    assert (model.eval().decode(ids) != 0).all()


def test_dropout_of_what_attention_gives_alone() -> None:
    """The residual after attention keeps its value at so many places, and the other half of the
    block drops nothing."""
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


# ---------------------------------------------------------------------------------------- cache
@pytest.mark.parametrize("name", DECODERS)
def test_a_cache_changes_nothing(name: str) -> None:
    model, ids = model_of(name), tokens(2, 12)
    cache = KVCache.of(model.config, rows=2, capacity=12)
    with torch.no_grad():
        whole = model.decode(ids)
        steps = [model.decode(part, cache=cache) for part in ids.split([5, 1, 1, 3, 2], 1)]
    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=1e-5, rtol=1e-5)
    assert cache.length == 12
    with pytest.raises(DataError), torch.no_grad():
        model.decode(ids[:, :1], positions=torch.zeros(1, 1, dtype=torch.long), cache=cache)


@pytest.mark.parametrize("name", PAIRS)
def test_a_cache_beside_a_memory(name: str) -> None:
    model, ids = model_of(name), tokens(2, 9)
    keep = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    memory = model.encode(tokens(2, 6, seed=2), visible=real(keep)).detach()
    cache = KVCache.of(model.config, rows=2, capacity=9)
    with torch.no_grad():
        whole = model.decode(ids, memory=memory, memory_visible=real(keep))
        steps = [
            model.decode(part, memory=memory, memory_visible=real(keep), cache=cache)
            for part in ids.split([4, 1, 4], 1)
        ]
    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=1e-5, rtol=1e-5)


def test_rows_padded_on_the_left_generate_alike() -> None:
    """Prompts of different lengths in one batch: padding before, positions and facts to match."""
    model, ids = model_of("pre-norm decoder"), tokens(1, 8)
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), ids], 1)
    documents = torch.tensor([[0] * 3 + [1] * 8])
    positions = torch.tensor([[0] * 3 + [*range(8)]])
    cache = KVCache.of(model.config, rows=1, capacity=11)
    with torch.no_grad():
        facts = same_document(documents)
        first = model.decode(padded[:, :6], positions=positions[:, :6], visible=facts, cache=cache)
        rest = model.decode(padded[:, 6:], positions=positions[:, 6:], visible=facts, cache=cache)
        alone = model.decode(ids)
    got = torch.cat([first, rest], 1)[:, 3:]
    torch.testing.assert_close(got, alone, atol=1e-5, rtol=1e-5)


def test_a_cache_can_be_reordered() -> None:
    model, ids = model_of("pre-norm decoder"), tokens(2, 6)
    cache = KVCache.of(model.config, rows=2, capacity=8)
    with torch.no_grad():
        model.decode(ids[:, :5], cache=cache)
        cache.reorder(torch.tensor([1, 1, 0]))
        crossed = ids[[1, 1, 0]]
        got = model.decode(crossed[:, 5:], cache=cache)
        torch.testing.assert_close(got, model.decode(crossed)[:, 5:], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("batch", [1, 7, 32])
def test_F80_a_row_is_the_same_in_any_batch(batch: int) -> None:
    """Scores do not depend on the batch's size or on padding, and labels never."""
    model = model_of("post-norm encoder")
    ids = tokens(batch, 10)
    padded = torch.cat([ids, torch.zeros(batch, LENGTH - 10, dtype=torch.long)], 1)
    documents = (torch.arange(LENGTH) < 10).int().expand(batch, -1)
    with torch.no_grad():
        alone = torch.cat([model.logits(model.encode(row)) for row in ids.split(1)])
        together = model.logits(model.encode(padded, visible=same_document(documents)))[:, :10]
    torch.testing.assert_close(together, alone, atol=1e-6 * float(alone.abs().max()) * 5, rtol=0)
    assert torch.equal(together.argmax(-1), alone.argmax(-1))


# ------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("name", "call", "where"),
    [
        ("post-norm encoder", lambda m: m.decode(tokens()), "decoder"),
        ("pre-norm decoder", lambda m: m.encode(tokens()), "encoder"),
        ("post-norm encoder-decoder", lambda m: m.decode(tokens()), "decode(memory=...)"),
        (
            "pre-norm decoder",
            lambda m: m.decode(tokens(), memory=torch.zeros(3, 2, WIDTH)),
            "decode(memory=...)",
        ),
        ("post-norm encoder", lambda m: m.head("pairs", torch.zeros(1, WIDTH)), "heads"),
        ("pre-norm decoder", lambda m: m.pool(torch.zeros(1, WIDTH)), "pooler"),
        ("post-norm encoder", lambda m: KVCache.of(m.config, rows=1, capacity=4), "decoder"),
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
OVER = (
    attention("causal"),
    attention(window=(2, 2)),
    attention(positions=Rotary(theta=10_000.0)),
)
TABLES = [block(attention(positions=Relative(buckets=n))) for n in (8, 16)]


@pytest.mark.parametrize(
    ("build", "where"),
    [
        (lambda: Head(name="x", kind="span", labels=3), "heads.x.labels"),
        (lambda: Head(name="x", kind="choice", labels=2), "heads.x.labels"),
        (lambda: Head(name="x", kind="token", labels=2, dropout=1.0), "heads.x.dropout"),
        (
            lambda: Head(name="x", kind="token", labels=2, input_dropout=1.0),
            "heads.x.input_dropout",
        ),
        (lambda: Relative(buckets=3), "positions.buckets"),
        (lambda: Relative(buckets=8, max_distance=4), "positions.max_distance"),
        (lambda: Relative(max_distance=1 << 40), "positions.max_distance"),
        (
            lambda: Attention(heads=2, head_width=7, pattern="causal", positions=Rotary()),
            "attention.head_width",
        ),
        (lambda: attention(output_dropout=1.0), "attention.output_dropout"),
        (lambda: block(attention(), cross_attention=OVER[0]), "cross_attention"),
        (lambda: block(attention(), cross_attention=OVER[1]), "cross_attention"),
        (lambda: block(attention(), cross_attention=OVER[2]), "cross_attention"),
        (
            lambda: Transformer(config(encoder=stack(POST), tokens=Tokens(vocabulary=9, width=4))),
            "vocabulary_head.transform",
        ),
        (
            lambda: Transformer(config(encoder=stack(*TABLES))),
            "stack.blocks.attention.positions",
        ),
    ],
)
def test_configs_that_no_module_can_be(build: Callable[[], object], where: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build()
    assert refused.value.where == where


# ----------------------------------------------------------------------------------------- cost
def test_cost_of_a_published_model() -> None:
    """BERT-mini at length 128: 18.9 + 1.6 million operations per token of training, and 7.1 for a
    head that scores 15 % of the positions."""
    with torch.device("meta"):
        counted = cost(Transformer(family("bert").size("mini", "BertForMaskedLM")), 128)
    assert 3 * counted.body["encoder"] / 1e6 == pytest.approx(18.9, abs=0.05)
    assert 3 * counted.attention["encoder"] / 1e6 == pytest.approx(1.6, abs=0.05)
    assert 3 * 0.15 * counted.vocabulary / 1e6 == pytest.approx(7.1, abs=0.05)
    assert counted.training("encoder", 0.15) / 1e6 == pytest.approx(27.5, abs=0.1)


def test_cost_counts_what_torch_counts() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    for name in POINTS:
        model = model_of(name)
        ids = tokens(1, 12)
        counted = cost(model, 12, 12)
        with FlopCounterMode(display=False) as measured, torch.enable_grad():
            memory = model.encode(ids, trace=Trace()) if model.encoder is not None else None
            if model.decoder is not None:
                model.decode(ids, memory=memory, trace=Trace())
        wanted = 12 * sum(counted.body[s] + counted.attention[s] for s in counted.body)
        assert measured.get_total_flops() == wanted + 12 * counted.memory, name
