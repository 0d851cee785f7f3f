"""The model's contract: names and counts of parameters, shapes, errors, cache, what is shared."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from maskwright.base.errors import ConfigError, DataError
from maskwright.model.checkpoint.shapes import num_parameters
from maskwright.model.nn import heads as nn_heads
from maskwright.model.nn.cache import KVCache
from maskwright.model.nn.config import (
    Attention,
    Block,
    Embeddings,
    FeedForward,
    Head,
    Learned,
    Norm,
    Relative,
    Rotary,
    Sinusoidal,
    Stack,
    Tokens,
    TransformerConfig,
    VocabularyHead,
    layers,
)
from maskwright.model.nn.cost import cost
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


def twin(pattern: str, head_bias: bool) -> TransformerConfig:
    """The textbook pair: one stack whose mask and places of the loss differ."""
    blocks, weights_of = layers(
        Block(
            attention=Attention(heads=4, head_width=24, pattern=pattern),  # type: ignore[arg-type]
            feed_forward=FeedForward(width=256, activation="relu"),
            norm=Norm(eps=1e-5),
            placement="pre",
        ),
        2,
    )
    entry = Embeddings(positions=Sinusoidal(length=48))
    side = Stack(embeddings=entry, blocks=blocks, weights_of=weights_of, final_norm=True)
    return TransformerConfig(
        width=96,
        tokens=Tokens(vocabulary=62, width=96),
        vocabulary_head=VocabularyHead(tied=False, bias=head_bias),
        **{"decoder" if pattern == "causal" else "encoder": side},
    )


def bert_base(pooler: bool) -> TransformerConfig:
    blocks, weights_of = layers(
        Block(
            attention=Attention(heads=12, head_width=64, pattern="bidirectional"),
            feed_forward=FeedForward(width=3072),
            norm=Norm(),
            placement="post",
        ),
        12,
    )
    entry = Embeddings(positions=Learned(length=512), segments=2, norm=Norm())
    return TransformerConfig(
        width=768,
        tokens=Tokens(vocabulary=30522, width=768),
        encoder=Stack(embeddings=entry, blocks=blocks, weights_of=weights_of),
        pooler=pooler,
    )


# ------------------------------------------------------------------------------ counts and names
@pytest.mark.parametrize(
    ("point", "count"),
    [
        (twin("causal", False), 186_368),
        (twin("bidirectional", True), 186_430),
        (bert_base(True), 109_482_240),
    ],
)
def test_published_parameter_counts(point: TransformerConfig, count: int) -> None:
    assert num_parameters(point) == count
    # Negative control: one more unit in one layer, and the count is another.
    side = next(iter(point.stacks))
    wider = replace(point.stacks[side].blocks[0], feed_forward=FeedForward(width=257))
    blocks = (wider, *point.stacks[side].blocks[1:])
    assert num_parameters(replace(point, **{side: replace(point.stacks[side], blocks=blocks)})) != (
        count
    )


def test_names_of_parameters() -> None:
    names = {name for name, _ in model_of("post-norm encoder").named_parameters()}
    linear = [f"attention.{n}" for n in ("query", "key", "value", "output")]
    linear += ["attention_norm", "feed_forward.up", "feed_forward.down", "feed_forward_norm"]
    wanted = {
        f"encoder.blocks.{i}.{n}.{p}" for i in (0, 1) for n in linear for p in ("weight", "bias")
    }
    wanted |= {f"encoder.embeddings.{n}.weight" for n in ("position", "segment", "norm")}
    others = ["pooler", "heads.pair", "heads.tag", "heads.dense", "heads.choice"]
    others += ["heads.dense.transform"]
    wanted |= {f"heads.normed{n}.weight" for n in ("", ".transform", ".norm")}
    others += ["vocabulary_head.transform", "vocabulary_head.norm"]
    wanted |= {f"{n}.{p}" for n in others for p in ("weight", "bias")}
    wanted |= {"tokens.weight", "encoder.embeddings.norm.bias", "vocabulary_head.bias"}
    assert names == wanted


def test_names_of_the_other_axes() -> None:
    def names(point: str) -> set[str]:
        return {name for name, _ in model_of(point).named_parameters()}

    pair = names("relative encoder-decoder")
    assert {
        "encoder.relative.weight",
        "decoder.relative.weight",
        "encoder.final_norm.weight",
    } <= pair
    assert {
        "decoder.blocks.1.cross_attention.key.weight",
        "decoder.blocks.0.cross_attention_norm.weight",
    } <= pair
    assert not [name for name in pair if name.endswith("bias")]
    gated = names("rotary alternating encoder")
    assert "encoder.blocks.0.feed_forward.gate.weight" in gated
    assert "encoder.blocks.1.attention_norm.weight" in gated
    assert "encoder.blocks.0.attention_norm.weight" not in gated
    shared = names("shared narrow encoder")
    assert "encoder.embeddings.project.weight" in shared
    assert {name.split(".")[2] for name in shared if ".blocks." in name} == {"0"}
    assert "vocabulary_head.weight" in names("sinusoidal decoder")


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
    head = nn_heads.HeadModule(config, 1000).train()
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
    with pytest.raises(ConfigError, match="output_dropout"):
        attention(output_dropout=1.0)


def test_positions_that_cannot_be() -> None:
    for table in ({"buckets": 3}, {"buckets": 8, "max_distance": 4}, {"max_distance": 1 << 40}):
        with pytest.raises(ConfigError, match=r"positions\."):
            Relative(**table)
    with pytest.raises(ConfigError, match="pairs"):
        Attention(heads=2, head_width=7, pattern="causal", positions=Rotary())


def test_a_scaled_head() -> None:
    model = model_of("relative encoder-decoder")
    hidden = torch.randn(2, WIDTH)
    torch.testing.assert_close(model.logits(hidden), hidden @ model.tokens.weight.T * WIDTH**-0.5)


@pytest.mark.parametrize("name", [*DECODERS, "post-norm encoder"])
def test_vectors_in_place_of_ids(name: str) -> None:
    model = model_of(name)
    run = model.decode if model.encoder is None else model.encode
    assert torch.equal(run(tokens()), run(model.tokens(tokens())))


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
    with pytest.raises(DataError, match="no room"), torch.no_grad():
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


# ------------------------------------------------------------------------------------- refusals
def test_refusals() -> None:
    encoder, decoder = model_of("post-norm encoder"), model_of("pre-norm decoder")
    pair = model_of("post-norm encoder-decoder")
    with pytest.raises(ConfigError, match="no decoder"):
        encoder.decode(tokens())
    with pytest.raises(ConfigError, match="no encoder"):
        decoder.encode(tokens())
    with pytest.raises(ConfigError, match="needs a memory"):
        pair.decode(tokens())
    with pytest.raises(ConfigError, match="needs a memory"):
        decoder.decode(tokens(), memory=torch.zeros(3, 2, WIDTH))
    with pytest.raises(ConfigError, match="did you mean 'pair'"):
        encoder.head("pairs", torch.zeros(1, WIDTH))
    with pytest.raises(ConfigError, match="no pooler"):
        decoder.pool(torch.zeros(1, WIDTH))
    with pytest.raises(ConfigError, match="no vocabulary head"):
        Transformer(config(encoder=stack(POST), vocabulary_head=None)).logits(torch.zeros(1, WIDTH))
    with pytest.raises(ConfigError, match="only a decoder has a cache"):
        KVCache.of(encoder.config, rows=1, capacity=4)


@pytest.mark.parametrize("bad", [-1, VOCABULARY])
def test_an_id_outside_the_vocabulary(bad: int) -> None:
    ids = tokens()
    ids[1, 3] = bad
    with pytest.raises(DataError, match=f"found: +{bad}\n"):
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


def test_configs_that_no_module_can_be() -> None:
    for kind, labels in (("span", 3), ("choice", 2)):
        with pytest.raises(ConfigError, match="a span has two ends, and a choice one score"):
            Head(name="x", kind=kind, labels=labels)  # type: ignore[arg-type]
    for place in ("dropout", "input_dropout"):
        with pytest.raises(ConfigError, match=f"heads.x.{place}"):
            Head(name="x", kind="token", labels=2, **{place: 1.0})
    with pytest.raises(ConfigError, match="as wide as the token table"):
        Transformer(config(encoder=stack(POST), tokens=Tokens(vocabulary=9, width=4)))
    several = [block(attention(positions=Relative(buckets=n))) for n in (8, 16)]
    with pytest.raises(ConfigError, match="share one table of distances"):
        Transformer(config(encoder=stack(*several)))


# ----------------------------------------------------------------------------------------- cost
def test_cost_of_a_published_model() -> None:
    """BERT-mini at length 128: 18.9 + 1.6 million operations per token of training, and 7.1 for a
    head that scores 15 % of the positions."""
    blocks, weights_of = layers(
        Block(
            attention=Attention(heads=4, head_width=64, pattern="bidirectional"),
            feed_forward=FeedForward(width=1024),
            norm=Norm(),
            placement="post",
        ),
        4,
    )
    point = TransformerConfig(
        width=256,
        tokens=Tokens(vocabulary=30522, width=256),
        encoder=Stack(
            embeddings=Embeddings(positions=Learned(length=512)),
            blocks=blocks,
            weights_of=weights_of,
        ),
        vocabulary_head=VocabularyHead(transform="gelu", norm=Norm(), bias=True),
    )
    with torch.device("meta"):
        counted = cost(Transformer(point), 128)
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


@pytest.mark.parametrize(
    "over",
    [
        attention("causal"),
        attention(window=(2, 2)),
        attention(positions=Rotary(theta=10_000.0)),
    ],
)
def test_a_memory_has_neither_order_nor_places(over: Attention) -> None:
    """What would have no effect is refused."""
    with pytest.raises(ConfigError, match="neither order nor places"):
        block(attention("causal"), cross_attention=over)
    assert block(attention("causal"), cross_attention=attention()).cross_attention is not None
