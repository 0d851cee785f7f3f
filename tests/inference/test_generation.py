"""Rows that join and leave while others write: each is what it would be by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint.small import model_of, small
from inference.test_together import on
from inference.written import Written, contexts_of, writer, written
from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.model.families.base.family import family
from maskwright.model.inference.generation import Generation, Prompt, distribution
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.inference.prepared import Prepared, prepare
from maskwright.model.inference.text_generation import generate_texts, generation_of, prompts_of
from maskwright.model.nn.attention import KVCache
from maskwright.model.nn.transformer import Transformer
from maskwright.model.opening.open import open_model
from nn.points import POINTS
from nn.points import model_of as point

SETTINGS = [
    GenerationSettings(temperature=0.0),
    GenerationSettings(seed=3),
    GenerationSettings(seed=4, top_k=5, temperature=0.7),
    GenerationSettings(seed=3, top_p=0.8, temperature=1.0),
    GenerationSettings(
        seed=5, typical_p=0.7, repetition_penalty=1.5, frequency_penalty=0.5, temperature=0.9
    ),
]


def spelled(ids: Sequence[int]) -> str:
    return "".join(f"{'xyz'[i % 3]}{'é😀'[i % 2]}{'uv'[i // 32]}" for i in ids)


def drawn(
    seed: int, count: int, sources: bool, networks: Sequence[Prepared | None]
) -> list[Prompt]:
    """Prompts of odd lengths, each with settings of its own."""
    draw = np.random.default_rng(seed)
    found = []
    for number in range(count):
        ids = draw.integers(1, 29, size=int(draw.choice([1, 2, 3, 5, 11, 19]))).tolist()
        source = draw.integers(1, 29, size=int(draw.choice([1, 4, 7]))).tolist()
        found.append(
            Prompt(
                ids=ids[:3] if sources else ids,
                settings=replace(
                    SETTINGS[number % len(SETTINGS)],
                    tokens=int(draw.integers(1, 14)),
                    stop=["zéu", "y😀ux"] if number % 3 == 0 else (),
                ),
                forbidden=(3, 9) if number % len(SETTINGS) == 3 else (),
                decode=spelled,
                source=source if sources else None,
                end=7,
                network=networks[number % len(networks)],
            )
        )
    return found


def together(
    writing: Generation, prompts: Sequence[Prompt], seed: int, cancelled: Sequence[int] = ()
) -> list[Written]:
    """What the rows get that arrive at any step; some are cancelled."""
    draw, rows, arriving = np.random.default_rng(seed), {}, list(range(len(prompts)))
    found = [Written(finished="length") for _ in prompts]
    steps_taken = 0
    while arriving or writing.rows:
        for _ in range(int(draw.integers(0, 3))):
            if arriving:
                number = arriving.pop(0)
                rows[writing.add(prompts[number])] = number
        for piece in writing.step():
            row = found[rows[piece.row]]
            row.text += piece.text
            row.ids += [] if piece.id is None else [piece.id]
            row.finished = piece.finished or row.finished
        steps_taken += 1
        for row, number in rows.items():
            if number in cancelled and steps_taken % 4 == 0:
                writing.cancel(row)
        assert steps_taken < 200
    return found


def alone(network: Prepared, prompt: Prompt, **how: Any) -> Written:
    (found,) = written(prompt.network or network, [prompt], **how)
    return found


def agree(
    network: Transformer | Prepared, seed: int = 0, networks: Any = (None,), **how: Any
) -> bool:
    ready = network if isinstance(network, Prepared) else prepare(network, precision="float32")
    prompts = drawn(seed, 12, len(ready.config.stacks) == 2, networks)
    with contexts_of(16):
        found = together(Generation(ready, **how), prompts, seed)
        return found == [alone(ready, prompt, **how) for prompt in prompts]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", POINTS)
def test_rows_are_what_they_are_alone(name: str, whole: bool) -> None:
    network = point(name, deviation=0.4)
    one_way = network.decoder is None
    if network.config.encoder is not None and network.config.encoder.sees_by_text:
        with pytest.raises(IncompatibleError):  # its tokens see what follows them
            agree(network, one_way=one_way)
        return
    assert agree(network, bidirectional_prefix=whole, one_way=one_way)


@pytest.mark.parametrize(
    ("methods", "readings"),
    [(["lora", "ia3", "bottleneck", "lora"], 1), (["prefix", "prompt", "lora"], 3)],
    ids=["mixed", "apart"],
)
def test_rows_of_adapters_that_mix_are_one_reading(methods: list[str], readings: int) -> None:
    base = writer("gpt2")
    body = prepare(base, precision="float32")
    adapted = [on(base, writer("gpt2"), method, n) for n, method in enumerate(methods)]
    networks = [None, *(prepare(one, precision="float32", like=body) for one in adapted)]
    writing = Generation(body)
    for prompt in drawn(1, 8, False, networks):
        writing.add(prompt)
    assert len(writing._pools) == readings
    assert agree(body, 1, networks)
    # The control: they write different texts.
    (prompt, *_) = drawn(1, 1, False, [None])
    texts = {alone(body, replace(prompt, network=network)).text for network in networks}
    assert len(texts) > 2


def test_a_cancelled_row_changes_no_other() -> None:
    network = prepare(point("rotary decoder", deviation=0.4), precision="float32")
    prompts = drawn(5, 12, False, [None])
    with contexts_of(16):
        found = together(Generation(network), prompts, 5, cancelled=(1, 4, 9))
        wanted = [alone(network, prompt) for prompt in prompts]
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert one == other or (number in (1, 4, 9) and other.ids[: len(one.ids)] == one.ids)
    assert any(len(found[n].ids) < len(wanted[n].ids) for n in (1, 4, 9))


def test_controls_keys_out_of_place(monkeypatch: pytest.MonkeyPatch) -> None:
    join = KVCache.join

    def moved(self: KVCache, other: KVCache, *, front: int = 0) -> None:
        before = self.rows
        join(self, other, front=front)
        for buffer in self.layers:
            buffer[:, before:] = buffer[:, before:].roll(1, 3)

    def unordered(self: KVCache, rows: Sequence[int]) -> None:
        self.layers = [buffer[:, : len(rows)] for buffer in self.layers]

    network = point("rotary decoder", deviation=0.4)
    for method, broken_method in (("join", moved), ("reorder", unordered)):
        with monkeypatch.context() as broken:
            broken.setattr(KVCache, method, broken_method)
            assert not agree(network)


def test_log_probabilities_are_the_models() -> None:
    network = prepare(point("pre-norm decoder", deviation=0.4), precision="float32")
    (prompt, *_) = drawn(2, 1, False, [None])
    settings = GenerationSettings(tokens=5, seed=2, top_k=3, temperature=1.0)
    asked = replace(prompt, end=None, settings=settings)
    writing, text = Generation(network), list(prompt.ids)
    writing.add(replace(asked, logprobs=4))
    writing.add(asked, copy=1)
    writing.add(replace(asked, logprobs=0))
    while writing.rows:
        (one, other, third) = writing.step()
        with torch.no_grad():
            scores = network.network.logits(network.network.decode(torch.tensor([text]))[:, -1])
        wanted = scores[0].double().log_softmax(-1)
        top = wanted.topk(4)
        assert one.id is not None and one.id == third.id
        text.append(one.id)
        assert one.logprob == pytest.approx(float(wanted[one.id]), abs=1e-5)
        assert third.logprob == pytest.approx(one.logprob) and third.top_logprobs == ()
        assert other.logprob is None and other.top_logprobs == ()
        assert [i for i, _ in one.top_logprobs] == top.indices.tolist()
        assert [v for _, v in one.top_logprobs] == pytest.approx(top.values.tolist(), abs=1e-5)
        # The control: what was sampled from is another distribution.
        assert float(distribution(scores, settings).max().log()) > one.top_logprobs[0][1]


def test_refusals() -> None:
    network = prepare(writer("gpt2"), precision="float32")
    usual = Prompt(ids=[1], settings=GenerationSettings())
    writing = Generation(network)
    for wrong, where in (
        ({"settings": GenerationSettings(tokens=-1)}, "count"),
        ({"ids": []}, "prompt 0"),
        ({"settings": GenerationSettings(stop=[""])}, "stop"),
        ({"source": [1]}, "sources"),
    ):
        with pytest.raises(UsageError) as refused:
            writing.add(replace(usual, **wrong))
        assert refused.value.where == where
    assert writing.rows == 0 and writing.step() == []
    writing.cancel(writing.add(usual))
    assert writing.step() == []
    with pytest.raises(IncompatibleError):
        Generation(prepare(model_of(small(family("bert"), "BertModel"))))


@pytest.mark.parametrize("name", ["gpt2", "t5", "bart"])
def test_prompts_of_texts_are_what_write_goes_on_from(name: str, models: dict[str, Path]) -> None:
    model = open_model(models[name])
    texts = ["the cat sat", "the dog", "the dog", "a big old hat and a"]
    settings = GenerationSettings(tokens=12, seed=4, top_k=20, stop=["zz"])
    network = prepare(model.network, precision="float32")
    wanted = generate_texts(model, network, texts, settings)
    writing = generation_of(model, network)
    rows = {}
    for prompt, copy in zip(prompts_of(model, texts, settings), (0, 0, 1, 0), strict=True):
        rows[writing.add(prompt, copy)] = prompt.decode(prompt.prefix) if prompt.prefix else ""
    while writing.rows:
        for piece in writing.step():
            rows[piece.row] += piece.text
    assert list(rows.values()) == wanted and wanted[1] != wanted[2]
