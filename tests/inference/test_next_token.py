"""Generation: choosing a token, reading with a cache or without, writing past trained length."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.small import model_of, small
from inference.written import GREEDY, generate
from maskwright.base.errors import ConfigError, DataError, IncompatibleError, UsageError
from maskwright.model.families.base.family import family
from maskwright.model.inference.generation import choose, distribution
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.inference.growing_rows import context_start, trained_length
from maskwright.model.nn.config import Attention, Relative, Rotary, Sinusoidal, TransformerConfig
from maskwright.model.nn.transformer import Transformer

GPT2 = family("gpt2")
PROMPTS = [[5, 6, 7], [9], [11, 12, 13, 14, 15, 16, 17], [5, 6, 8]]
SCORES = torch.tensor([[2.0, 1.0, 0.0, -1.0]])


def variant(positions: str) -> TransformerConfig:
    """A small decoder with that kind of positions, 32 of them where that means anything."""
    config = small(GPT2, "GPT2LMHeadModel")
    stack = config.decoder
    assert stack is not None
    if positions == "learned":
        return config
    table = Sinusoidal(length=32) if positions == "sinusoidal" else None
    inside = {"rotary": Rotary(length=32), "relative": Relative(buckets=8, max_distance=16)}
    attention: Attention = replace(
        stack.blocks[0].attention, positions=inside.get(positions), head_width=6
    )
    blocks = (replace(stack.blocks[0], attention=attention),) * 3
    entry = replace(stack.embeddings, positions=table)
    return replace(config, decoder=replace(stack, embeddings=entry, blocks=blocks))


# ------------------------------------------------------------------------------ one token
def test_temperature_divides_the_scores() -> None:
    for temperature in (0.5, 1.0, 2.0):
        found = distribution(SCORES, GenerationSettings(temperature=temperature))
        assert torch.allclose(found, (SCORES.double() / temperature).softmax(-1), atol=1e-15)


def test_filters_by_hand() -> None:
    # e^2, e, 1, 1/e over their sum: 0.6439, 0.2369, 0.0871, 0.0321
    plain = distribution(SCORES, GenerationSettings(temperature=1.0))[0]
    assert plain.tolist() == pytest.approx([0.6439, 0.2369, 0.0871, 0.0321], abs=5e-5)
    two = distribution(SCORES, GenerationSettings(temperature=1.0, top_k=2))[0]
    assert two.tolist() == pytest.approx([0.7311, 0.2689, 0, 0], abs=5e-5)
    # 0.6439 alone does not reach 0.7, with 0.2369 it does
    assert (
        distribution(SCORES, GenerationSettings(temperature=1.0, top_p=0.7))[0].tolist()
        == two.tolist()
    )
    assert distribution(SCORES, GenerationSettings(temperature=1.0, top_p=0.6))[0].tolist() == [
        1,
        0,
        0,
        0,
    ]
    # of the two that top-k leaves, the first has 0.73
    both = distribution(SCORES, GenerationSettings(temperature=1.0, top_k=2, top_p=0.7))[0]
    assert both.tolist() == [1, 0, 0, 0]
    assert torch.equal(distribution(SCORES, GenerationSettings(temperature=1.0, top_k=9))[0], plain)


def sorted_whole(scores: torch.Tensor, sampling: GenerationSettings) -> torch.Tensor:
    """The definition: all ids in order of their probability, and what the filters leave of them."""
    scores = scores.double()
    best = scores.max(-1, keepdim=True).values
    probabilities = ((scores - best) / sampling.temperature).softmax(-1)
    ordered, places = probabilities.sort(dim=-1, descending=True, stable=True)
    if sampling.top_k:
        ordered[:, sampling.top_k :] = 0.0
        ordered = ordered / ordered.sum(-1, keepdim=True)
    if sampling.top_p < 1:
        before = ordered.cumsum(-1) - ordered
        ordered = ordered.masked_fill(before >= sampling.top_p, 0.0)
        ordered = ordered / ordered.sum(-1, keepdim=True)
    return torch.zeros_like(ordered).scatter_(-1, places, ordered)


@pytest.mark.parametrize("width", [0.1, 2.0, 5.0])
def test_filters_look_at_the_top_alone_and_give_the_same(width: float) -> None:
    """To the bit, whether the nucleus is small or most of 3,000 ids; ties among them."""
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 3000, generator=draw) * width
    scores[1] = scores[1].round()
    for settings in ({"top_p": 0.9}, {"top_k": 40}, {"top_k": 300, "top_p": 0.7}, {"top_p": 0.3}):
        sampling = GenerationSettings(temperature=0.8, **settings)  # type: ignore[arg-type]
        found = distribution(scores, sampling)
        assert torch.equal(found, sorted_whole(scores, sampling))
        assert 0 < int((found > 0).sum()) < found.numel(), "the control: something was left out"


def test_equal_scores_keep_the_smaller_id() -> None:
    level = torch.zeros(1, 4)
    assert distribution(level, GenerationSettings(temperature=1.0, top_k=2))[0].tolist() == [
        0.5,
        0.5,
        0,
        0,
    ]
    assert distribution(level, GREEDY)[0].tolist() == [1, 0, 0, 0]


def test_forbidden_ids_have_no_chance() -> None:
    assert distribution(SCORES, GREEDY, (0, 2))[0].tolist() == [0, 1, 0, 0]
    found = distribution(SCORES, GenerationSettings(), (1,))[0]
    assert found[1] == 0 and found.sum() == pytest.approx(1)


def test_a_number_falls_on_its_token() -> None:
    chances = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.25, 0.0]], dtype=torch.float64)
    for number, token in ((0.0, 1), (0.2499, 1), (0.25, 3), (0.7499, 3), (0.75, 4)):
        assert choose(chances, np.array([number])) == [token]
    almost_one = np.array([1 - 2.0**-53])
    assert choose(chances, almost_one) == [4]
    third = torch.full((1, 3), 1 / 3, dtype=torch.float64)
    assert choose(third, almost_one) == [2]


def test_tokens_come_as_often_as_their_probability() -> None:
    chances = torch.tensor([0.5, 0.0, 0.3, 0.2], dtype=torch.float64).repeat(20_000, 1)
    numbers = np.random.default_rng(0).random(20_000)
    share = np.bincount(choose(chances, numbers), minlength=4) / 20_000
    assert share[1] == 0
    assert np.abs(share - chances[0].numpy()).max() < 4 * (0.25 / 20_000) ** 0.5


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
    ],
)
def test_settings_out_of_range(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        GenerationSettings(**settings)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------ the cache
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "relative", "none"])
@pytest.mark.parametrize(
    "sampling", [GREEDY, GenerationSettings(temperature=0.8, top_p=0.95, seed=3)]
)
def test_with_and_without_cache_the_same_tokens(
    positions: str, sampling: GenerationSettings
) -> None:
    """Prompts of several lengths, far past the trained length."""
    model = model_of(variant(positions))
    cached = generate(model, PROMPTS, 45, sampling)
    assert cached == generate(model, PROMPTS, 45, sampling, cached=False)
    assert [len(row) for row in cached] == [45] * 4


def test_the_cache_saves_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts are read once, all of them where there is no cache; of padding nothing is."""
    model = model_of(variant("learned"))
    read: list[int] = []
    embed = Transformer.token_vectors

    def counted(self: Transformer, tokens: torch.Tensor) -> torch.Tensor:
        read.append(tokens.numel())
        return embed(self, tokens)

    monkeypatch.setattr(Transformer, "token_vectors", counted)
    generate(model, PROMPTS, 12)
    assert read == [sum(map(len, PROMPTS))] + [4] * 11
    read.clear()
    generate(model, PROMPTS, 12, cached=False)
    assert read == [4 * length for length in range(7, 19)]


# ------------------------------------------------------------------------------ prompts seen whole
@pytest.mark.parametrize("positions", ["learned", "rotary", "relative"])
def test_a_prompt_seen_whole(positions: str) -> None:
    """Each next token is the likeliest after the prompt's tokens have seen each other."""
    model = model_of(variant(positions))
    made = generate(model, PROMPTS, 12, bidirectional_prefix=True)
    for prompt, new in zip(PROMPTS, made, strict=True):
        text = list(prompt)
        for token in new:
            seen = torch.tensor([len(prompt)])
            hidden = model.decode(torch.tensor([text]), prefix=seen)
            assert token == int(model.logits(hidden[:, -1]).argmax())
            text.append(token)
    assert made == generate(model, PROMPTS, 12, bidirectional_prefix=True, cached=False)
    ids = torch.tensor([PROMPTS[2]])
    blind, seeing = model.decode(ids), model.decode(ids, prefix=torch.tensor([ids.shape[1]]))
    assert not torch.allclose(blind, seeing, atol=1e-2), "the control: what is seen matters"


def test_a_prompt_seen_whole_and_outgrown() -> None:
    """Where reading starts anew, what is left of the prompt is still seen whole."""
    model = model_of(variant("learned"))
    long = [[5, 6, 7] * 8, [9]]
    together = generate(model, long, 45, bidirectional_prefix=True)
    assert together == generate(model, long, 45, bidirectional_prefix=True, cached=False)
    assert together == [
        generate(model, [prompt], 45, bidirectional_prefix=True)[0] for prompt in long
    ]


# ------------------------------------------------------------------------------ randomness
def test_seeds_differ_and_repeat() -> None:
    model = model_of(variant("learned"))
    one, other = (generate(model, PROMPTS, 20, GenerationSettings(seed=seed)) for seed in (1, 2))
    assert one != other
    assert one == generate(model, PROMPTS, 20, GenerationSettings(seed=1))


def test_equal_prompts_get_different_samples() -> None:
    model = model_of(variant("learned"))
    rows = generate(model, [[5, 6]] * 4, 20, GenerationSettings(seed=1))
    assert len({tuple(row) for row in rows}) == 4
    assert rows[:2] == generate(model, [[5, 6]] * 2, 20, GenerationSettings(seed=1))


def test_torchs_generator_is_left_alone() -> None:
    model = model_of(variant("learned"))
    torch.manual_seed(1)
    before = torch.get_rng_state()
    generate(model, PROMPTS, 3, GenerationSettings())
    assert torch.equal(before, torch.get_rng_state())


# ------------------------------------------------------------------------------ contexts
@given(st.integers(1, 300), st.integers(1, 64))
def test_a_context_is_between_half_and_all_of_the_limit(length: int, limit: int) -> None:
    read = length - context_start(length, limit)
    assert read <= limit
    assert read >= min(length, max(1, limit // 2))
    assert context_start(length + 1, limit) >= context_start(length, limit)


def test_contexts_by_hand() -> None:
    # limit 6: at 7 tokens only the last 3 are read, then 4, 5, 6, then 3 again
    lengths = [n - context_start(n, 6) for n in range(1, 16)]
    assert lengths == [1, 2, 3, 4, 5, 6, 3, 4, 5, 6, 3, 4, 5, 6, 3]
    assert context_start(10**6, None) == 0


@pytest.mark.parametrize(
    ("positions", "length"),
    [("learned", 32), ("sinusoidal", 32), ("rotary", 32), ("relative", None), ("none", None)],
)
def test_the_trained_length(positions: str, length: int | None) -> None:
    assert trained_length(variant(positions)) == length


PERIOD, TRAINED = 5, 16


@pytest.fixture(scope="module")
def copier() -> Transformer:
    """Trained on 16 positions to repeat what stood five places before."""
    config = small(GPT2, "GPT2LMHeadModel", n_positions=TRAINED, n_layer=2, n_embd=32)
    model = model_of(config, seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    model.train()
    draw = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(250):
        patterns = torch.randint(20, (32, PERIOD), generator=draw)
        rows = patterns.repeat(1, 4)[:, : TRAINED + 1]
        scores = model.logits(model.decode(rows[:, :-1]))[:, PERIOD - 1 :]
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), rows[:, PERIOD:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def test_C4_no_decay_past_the_trained_length(copier: Transformer) -> None:
    """Twelve times the trained length on, the pattern still stands."""
    draw = torch.Generator().manual_seed(7)
    patterns = torch.randint(20, (16, PERIOD), generator=draw)
    prompts = patterns.repeat(1, 2).tolist()
    made = torch.tensor(generate(copier, prompts, 190))
    right = (made == patterns.repeat(1, 38)).float()
    assert right[:, :6].mean() > 0.97
    assert right[:, 100:].mean() > 0.97
    # The control: a context too short to hold the pattern loses it.
    lost = torch.tensor(generate(copier, prompts, 190, context=4))
    assert (lost == patterns.repeat(1, 38)).float()[:, 100:].mean() < 0.5


def test_the_model_itself_refuses_positions_it_was_not_trained_on(copier: Transformer) -> None:
    with pytest.raises(DataError, match="beyond"):
        copier.decode(torch.zeros(1, TRAINED + 1, dtype=torch.int64))


# ------------------------------------------------------------------------------ rows and ends
def test_a_row_stops_at_its_end_and_the_others_go_on() -> None:
    model = model_of(variant("learned"))
    free = generate(model, PROMPTS, 30, GenerationSettings(seed=2))
    end = free[0][10]
    stopped = generate(model, PROMPTS, 30, GenerationSettings(seed=2), end=end)
    for whole, cut in zip(free, stopped, strict=True):
        assert cut == (whole[: whole.index(end)] if end in whole else whole)
    assert len(stopped[0]) <= 10


# ------------------------------------------------------------------------------ two stacks
SOURCES = [[4, 5, 6, 7], [8], [9, 10, 11], [4, 5, 6, 7]]


@pytest.mark.parametrize("name", ["t5", "bart"])
@pytest.mark.parametrize("sampling", [GREEDY, GenerationSettings(temperature=0.9, seed=4)])
def test_a_row_with_its_source_is_as_alone(name: str, sampling: GenerationSettings) -> None:
    """Whatever stands beside it, with a cache or without, beyond the trained length too."""
    kind = {"t5": "T5ForConditionalGeneration", "bart": "BartForConditionalGeneration"}[name]
    model = model_of(small(family(name), kind))
    prompts = [[0], [0], [0, 3, 5], [0]]
    together = generate(model, prompts, 40, sampling, sources=SOURCES)
    assert together == generate(model, prompts, 40, sampling, sources=SOURCES, cached=False)
    for row in range(3):
        assert generate(model, [prompts[row]], 40, sampling, sources=[SOURCES[row]]) == [
            together[row]
        ]
    # Equal rows are told apart by their order, and only by chance.
    assert (together[0] == together[3]) == (sampling is GREEDY)
    end = together[0][7]
    stopped = generate(model, prompts, 40, sampling, sources=SOURCES, end=end)
    for whole, cut in zip(together, stopped, strict=True):
        assert cut == (whole[: whole.index(end)] if end in whole else whole)


def test_sources_where_they_belong() -> None:
    decoder, both = variant("learned"), small(family("t5"), "T5ForConditionalGeneration")
    with pytest.raises(UsageError, match="no encoder"):
        generate(model_of(decoder), [[1]], 3, sources=[[1]])
    for sources in (None, [], [[]]):
        with pytest.raises(UsageError, match="one source"):
            generate(model_of(both), [[1]], 3, sources=sources)
    with pytest.raises(DataError, match="beyond"):
        bart = small(family("bart"), "BartForConditionalGeneration")
        made = model_of(bart).train()
        generate(made, [[1]], 3, sources=[list(range(33))])
    assert made.training, "a refusal leaves the model as it was"
    assert generate(model_of(both), [], 3, sources=[]) == []


# ------------------------------------------------------------------------------ refusals
def test_what_cannot_be_generated_from() -> None:
    model = model_of(variant("learned"))
    with pytest.raises(UsageError, match="prompt 1"):
        generate(model, [[1], []], 3)
    for context in (0, 33):
        with pytest.raises(UsageError, match="1 to 32"):
            generate(model, PROMPTS, 3, context=context)
    for config in (small(family("bert"), "BertForMaskedLM"), small(GPT2)):
        with pytest.raises(IncompatibleError):
            generate(model_of(config), PROMPTS, 3)
    assert generate(model, [], 3) == []


@pytest.mark.parametrize("settings", [GREEDY, GenerationSettings()])
def test_what_cannot_be_forbidden(settings: GenerationSettings) -> None:
    model = model_of(variant("learned"))
    size = model.config.tokens.vocabulary
    for forbidden in ((2, size), (2, -1), tuple(range(size))):
        with pytest.raises(ConfigError) as refused:
            generate(model, [[1]], 3, settings, forbidden=forbidden)
        assert refused.value.where == "forbidden"
    all_but_one = (*range(7), *range(8, size))
    assert generate(model, [[1]], 3, settings, forbidden=all_but_one) == [[7] * 3]
