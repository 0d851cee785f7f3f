"""Generation: choosing a token, reading with a cache or without, writing past trained length."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint.small import model_of, small
from inference.written import GREEDY, contexts_of, generate, writer
from maskwright.base.errors import ConfigError, DataError, IncompatibleError, UsageError
from maskwright.model.families.base.family import family
from maskwright.model.inference.generation import choose, distribution
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.inference.growing_rows import trained_length
from maskwright.model.nn.config import Attention, Relative, Rotary, Sinusoidal, TransformerConfig
from maskwright.model.nn.transformer import Transformer

GPT2 = family("gpt2")
PROMPTS = [[5, 6, 7], [9], [11, 12, 13, 14, 15, 16, 17], [5, 6, 8]]


def variant(positions: str) -> TransformerConfig:
    """A small decoder with that kind of positions, 32 of them where that means anything."""
    config = small(GPT2, "GPT2LMHeadModel")
    stack = config.decoder
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
FALLING, LEVEL = [2.0, 1.0, 0.0, -1.0], [0.0] * 4
PLAIN = [0.6439, 0.2369, 0.0871, 0.0321]  # e^2, e, 1, 1/e over their sum
TWO = [0.7311, 0.2689, 0, 0]


@pytest.mark.parametrize(
    ("scores", "settings", "forbidden", "chances"),
    [
        (FALLING, {}, (), PLAIN),
        (FALLING, {"top_k": 2}, (), TWO),
        (FALLING, {"top_k": 9}, (), PLAIN),
        (FALLING, {"top_p": 0.7}, (), TWO),  # 0.6439 alone does not reach 0.7, with 0.2369 it does
        (FALLING, {"top_p": 0.6}, (), [1, 0, 0, 0]),
        (FALLING, {"top_k": 2, "top_p": 0.7}, (), [1, 0, 0, 0]),  # of the two, the first has 0.73
        (LEVEL, {"top_k": 2}, (), [0.5, 0.5, 0, 0]),  # equal scores keep the smaller id
        (LEVEL, {"temperature": 0.0}, (), [1, 0, 0, 0]),
        (FALLING, {"temperature": 0.0}, (0, 2), [0, 1, 0, 0]),
        (FALLING, {}, (2, 3), TWO),
    ],
)
def test_chances_by_hand(
    scores: list[float], settings: dict[str, Any], forbidden: tuple[int, ...], chances: list[float]
) -> None:
    sampling = GenerationSettings(**{"temperature": 1.0, **settings})
    computed = distribution(torch.tensor([scores]), sampling, forbidden)[0]
    assert computed.tolist() == pytest.approx(chances, abs=5e-5)


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
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 3000, generator=draw) * width
    scores[1] = scores[1].round()
    for settings in ({"top_p": 0.9}, {"top_k": 40}, {"top_k": 300, "top_p": 0.7}, {"top_p": 0.3}):
        sampling = GenerationSettings(temperature=0.8, **settings)
        found = distribution(scores, sampling)
        assert torch.equal(found, sorted_whole(scores, sampling))
        assert 0 < int((found > 0).sum()) < found.numel(), "the control: something was left out"


def test_a_number_falls_on_its_token() -> None:
    chances = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.25, 0.0]], dtype=torch.float64)
    for number, token in ((0.0, 1), (0.2499, 1), (0.25, 3), (0.7499, 3), (0.75, 4)):
        assert choose(chances, np.array([number])) == [token]
    almost_one = np.array([1 - 2.0**-53])
    assert choose(chances, almost_one) == [4]
    third = torch.full((1, 3), 1 / 3, dtype=torch.float64)
    assert choose(third, almost_one) == [2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1.0),
        ("temperature", np.nan),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("typical_p", 0.0),
        ("repetition_penalty", 0.0),
        ("frequency_penalty", np.nan),
        ("presence_penalty", np.inf),
    ],
)
def test_settings_out_of_range(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        GenerationSettings(**{name: value})


def test_penalties_are_of_the_new_text() -> None:
    """Each is subtracted as OpenAI defines it; transformers defines that of repetitions
    (tests/parity/test_generation.py)."""
    model, prompts = writer("gpt2"), [[5, 5, 6], [7]]
    plain = generate(model, prompts, 20)
    assert all(len({*row}) < 20 for row in plain), "the control"
    for name in ("frequency_penalty", "presence_penalty"):
        settings = GenerationSettings(temperature=0.0, **{name: 1e4})
        rows = generate(model, prompts, 20, settings)
        assert all(len({*row}) == 20 for row in rows)
        assert [row[0] for row in rows] == [row[0] for row in plain], "the prompt does not count"
        small = GenerationSettings(temperature=0.0, **{name: 1e-9})
        assert generate(model, prompts, 20, small) == plain


# ------------------------------------------------------------------------------ the cache
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "relative", "none"])
@pytest.mark.parametrize("whole", [False, True])
def test_far_past_the_trained_length_a_cache_changes_no_token(positions: str, whole: bool) -> None:
    """Where reading starts anew, what is left of a prompt seen whole is still seen whole."""
    model, prompts = model_of(variant(positions)), [*PROMPTS, [5, 6, 7] * 8]
    how: Any = {"bidirectional_prefix": whole}
    sampling = GenerationSettings(temperature=0.8, top_p=0.95, seed=3)
    cached = generate(model, prompts, 45, sampling, **how)
    assert cached == generate(model, prompts, 45, sampling, cached=False, **how)
    assert [len(row) for row in cached] == [45] * 5


def test_the_cache_saves_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    model = writer("gpt2")
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


# ------------------------------------------------------------------------------ randomness


def test_torchs_generator_is_left_alone() -> None:
    model = writer("gpt2")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    generate(model, PROMPTS, 3, GenerationSettings())
    assert torch.equal(before, torch.get_rng_state())


# ------------------------------------------------------------------------------ contexts


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
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3)
    for _ in range(120):
        patterns = torch.randint(20, (32, PERIOD), generator=draw)
        rows = patterns.repeat(1, 4)[:, : TRAINED + 1]
        scores = model.logits(model.decode(rows[:, :-1]))[:, PERIOD - 1 :]
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), rows[:, PERIOD:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def test_C4_no_decay_past_the_trained_length(copier: Transformer) -> None:
    draw = torch.Generator().manual_seed(7)
    patterns = torch.randint(20, (16, PERIOD), generator=draw)
    prompts = patterns.repeat(1, 2).tolist()
    made = torch.tensor(generate(copier, prompts, 190))
    right = (made == patterns.repeat(1, 38)).float()
    assert right[:, :6].mean() > 0.97
    assert right[:, 100:].mean() > 0.97
    # The control: a context too short to hold the pattern loses it.
    with contexts_of(4):
        lost = torch.tensor(generate(copier, prompts, 190))
    assert (lost == patterns.repeat(1, 38)).float()[:, 100:].mean() < 0.5


# ------------------------------------------------------------------------------ two stacks


def test_sources_where_they_belong() -> None:
    both, training = writer("t5"), writer("bart").train()
    for sources in (None, [], [[]]):
        with pytest.raises(UsageError, match="one source"):
            generate(both, [[1]], 3, sources=sources)
    with pytest.raises(DataError, match="beyond"):
        generate(training, [[1]], 3, sources=[list(range(33))])
    assert training.training, "a refusal leaves the model as it was"
    assert generate(both, [], 3, sources=[]) == []


# ------------------------------------------------------------------------------ refusals
def test_what_cannot_be_generated_from() -> None:
    model = writer("gpt2")
    with pytest.raises(UsageError, match="prompt 1"):
        generate(model, [[1], []], 3)
    for config in (small(family("bert"), "BertForMaskedLM"), small(GPT2)):
        with pytest.raises(IncompatibleError):
            generate(model_of(config), PROMPTS, 3)
    assert generate(model, [], 3) == []


@pytest.mark.parametrize("settings", [GREEDY, GenerationSettings()])
def test_what_cannot_be_forbidden(settings: GenerationSettings) -> None:
    model = writer("gpt2")
    size = model.config.tokens.vocabulary
    for forbidden in ((2, size), (2, -1), tuple(range(size))):
        with pytest.raises(ConfigError) as refused:
            generate(model, [[1]], 3, settings, forbidden=forbidden)
        assert refused.value.where == "forbidden"
    all_but_one = (*range(7), *range(8, size))
    assert generate(model, [[1]], 3, settings, forbidden=all_but_one) == [[7] * 3]
