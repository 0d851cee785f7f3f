"""Beam search: what it must find, alone and in a batch, beside every text and the reference."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint.small import model_of, small
from inference.written import beam_search, generate, writer
from maskwright.base.errors import ConfigError, IncompatibleError, UsageError
from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.layout import About
from maskwright.model.families.base.family import family
from maskwright.model.nn.transformer import Transformer

SOURCES = [[5, 6, 7], [9], [4, 3, 2, 8, 5, 6, 7]]
END = 1


@torch.inference_mode()
def likelihood(model: Transformer, prompt: list[int], text: list[int]) -> float:
    tokens = torch.tensor([[*prompt, *text]])
    chances = model.logits(model.decode(tokens[:, :-1])).log_softmax(-1)[0, len(prompt) - 1 :]
    return float(chances.gather(1, torch.tensor(text)[:, None]).sum())


@pytest.mark.parametrize(("seed", "penalty"), [(1, 0.0), (9, 1.0), (0, 2.0)])
def test_enough_beams_find_the_likeliest_text_of_all(seed: int, penalty: float) -> None:
    size, count, prompt = 5, 3, [2, 3]
    model = writer("gpt2", seed, vocab_size=size)
    texts = [
        [*inner, *last]
        for length in range(count + 1)
        for inner in itertools.product([t for t in range(size) if t != END], repeat=length)
        for last in ([(END,)] if length < count else [()])
    ]
    scored = [
        (likelihood(model, prompt, text) / len(text) ** penalty, [t for t in text if t != END])
        for text in texts
    ]
    (found,) = beam_search(model, [prompt], count, size**count, end=END, penalty=penalty)
    assert found == max(scored)[1]


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_what_stops_a_text_ends_it_as_the_end_token_does(name: str) -> None:
    prompts, cut = [[0]] * len(SOURCES), 0
    for seed in range(4):
        model = writer(name, seed)
        options: dict[str, Any] = {"sources": SOURCES}
        wanted = beam_search(model, prompts, 9, 3, end=END, **options)
        found = beam_search(model, prompts, 9, 3, stopped=lambda p, new: new[-1] == END, **options)
        assert [[i for i in ids if i != END] for ids in found] == wanted
        never = {i for ids in wanted for i in ids[:1]}
        without = beam_search(model, prompts, 9, 3, end=END, forbidden=never, **options)
        assert not any(never & {*ids} for ids in without)
        # A token in the middle of a text as what stops it; the control: without it they go on.
        mark = wanted[0][len(wanted[0]) // 2]
        options["stopped"] = lambda p, new, mark=mark: new[-1] == mark
        short = beam_search(model, prompts, 9, 3, end=END, **options)
        assert all(mark not in ids[:-1] for ids in short)
        cut += any(mark in ids[:-1] for ids in wanted)
    assert cut


def test_one_beam_is_greedy() -> None:
    model, prompts = writer("gpt2", vocab_size=11), [[2, 3], [4], [5, 6, 7, 8]]
    assert beam_search(model, prompts, 12, 1, end=END) == generate(model, prompts, 12, end=END)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_a_batch_is_each_alone_with_a_cache_or_without(name: str) -> None:
    prompts, several = [[0]] * len(SOURCES), 0
    for seed in range(4):
        model = writer(name, seed)
        together = beam_search(model, prompts, 9, 3, sources=SOURCES, end=END)
        assert together == beam_search(model, prompts, 9, 3, sources=SOURCES, end=END, cached=False)
        for source, found in zip(SOURCES, together, strict=True):
            assert beam_search(model, [[0]], 9, 3, sources=[source], end=END) == [found]
        several += len({tuple(found) for found in together}) > 1
    assert several  # negative control: what is read matters


@pytest.mark.parametrize("name", ["t5", "bart"])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_finds_what_the_reference_library_finds(name: str, seed: int, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = writer(name, seed)
    pretrained.save(model, None, tmp_path / "model", About(family=name))
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model").eval()
    search = {"num_beams": 3, "max_new_tokens": 8, "length_penalty": 1.0, "do_sample": False}
    ids = {"eos_token_id": END, "pad_token_id": 0, "decoder_start_token_id": 2}
    free = {"forced_eos_token_id": None, "forced_bos_token_id": None, "early_stopping": False}
    for source in SOURCES:
        told = theirs.generate(torch.tensor([source]), **search, **ids, **free)[0, 1:].tolist()
        told = told[: told.index(END)] if END in told else told
        assert beam_search(model, [[2]], 8, 3, sources=[source], end=END) == [told]


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="beam"):
        beam_search(writer("gpt2", vocab_size=11), [[1]], 3, 0)
    with pytest.raises(IncompatibleError):
        beam_search(model_of(small(family("bert"), "BertForMaskedLM")), [[1]], 3, 2)
    assert beam_search(writer("gpt2", vocab_size=11), [], 3, 2) == []


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"count": -1}, "count"),
        *(({"penalty": penalty}, "penalty") for penalty in (1e9, -1e9, math.nan, math.inf)),
        *(({"vocabulary_size": size, "end": 0}, "known") for size in (-2, 0, 1)),
    ],
)
def test_numbers_that_mean_nothing(settings: dict[str, Any], where: str) -> None:
    with pytest.raises((ConfigError, UsageError)) as refused:
        beam_search(writer("gpt2", vocab_size=11), [[1]], **({"count": 3, "beams": 2} | settings))
    assert refused.value.where == where


def test_rows_that_the_tokenizer_lacks_are_never_written() -> None:
    model = writer("gpt2", vocab_size=11)
    written = beam_search(model, [[1], [2]], 6, 3, vocabulary_size=5)
    assert max(max(ids) for ids in written) < 5
    # The control: asked for all rows, it writes others.
    assert max(max(ids) for ids in beam_search(model, [[1], [2]], 6, 3)) >= 5
