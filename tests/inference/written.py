"""What tests of generation have in common: texts of a stream, greedy settings, no cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint.small import model_of, small
from maskwright.model.checkpoint import pretrained
from maskwright.model.families.base.family import family
from maskwright.model.inference import generation, prepared
from maskwright.model.inference.beam import beam_steps, finished
from maskwright.model.inference.generation import Prompt, stream
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.inference.growing_text import Piece, Reason
from maskwright.model.nn.transformer import Transformer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train

GREEDY = GenerationSettings(temperature=0.0)
WRITERS = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "t5": "T5ForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
}


def writer(name: str, seed: int = 0, **keys: Any) -> Transformer:
    """A small model of a family that writes."""
    return model_of(small(family(name), WRITERS[name], **keys), seed)


def untrained(
    folder: Path, name: str, architecture: str, texts: Sequence[str], **choice: Any
) -> Path:
    """The folder of a small model with random weights, and with a tokenizer of the texts."""
    words = train([*texts] * 3, TokenizerChoice(**choice))
    config = small(family(name), architecture, vocab_size=words.vocabulary_size)
    pretrained.save(model_of(config), words, folder)
    return folder


@contextmanager
def uncached() -> Iterator[None]:
    """Networks that are prepared in the block read whole texts at each step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "fits", lambda stack: False)
        yield


@contextmanager
def contexts_of(length: int) -> Iterator[None]:
    """Networks read at most so many tokens before the next one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "trained_length", lambda config: length)
        yield


def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    tokens: int,
    settings: GenerationSettings = GREEDY,
    *,
    cached: bool = True,
    **how: Any,
) -> list[list[int]]:
    with nullcontext() if cached else uncached():
        return generation.generate(model, prompts, replace(settings, tokens=tokens), **how)


def beam_search(*arguments: Any, cached: bool = True, **options: Any) -> list[list[int]]:
    with nullcontext() if cached else uncached():
        return finished(beam_steps(*arguments, **options))


@dataclass
class Written:
    """A row that ended.

    Attributes:
        ids: all new tokens, those of a string that stopped it included, the end token not.
        text: the new text, up to the string that stopped it.
        finished: why it ended.
    """

    ids: list[int] = field(default_factory=list)
    text: str = ""
    finished: Reason = "length"

    def add(self, piece: Piece) -> None:
        self.text += piece.text
        if piece.id is not None:
            self.ids.append(piece.id)
        if piece.finished is not None:
            self.finished = piece.finished


def rows_of(
    prompts: Sequence[Sequence[int]],
    settings: GenerationSettings = GREEDY,
    sources: Sequence[Sequence[int]] | None = None,
    **fields: Any,
) -> list[Prompt]:
    pairs = zip(prompts, sources or [None] * len(prompts), strict=True)
    return [Prompt(ids=ids, settings=settings, source=source, **fields) for ids, source in pairs]


def written(model: Any, prompts: Sequence[Prompt], **how: Any) -> list[Written]:
    rows = [Written() for _ in prompts]
    for piece in stream(model, prompts, **how):
        rows[piece.row].add(piece)
    return rows
