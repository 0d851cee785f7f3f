"""Rows that join and leave while others write: each is what it would be by itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from checkpoint.small import model_of, small
from maskwright.errors import UsageError
from maskwright.families.parts.family import family
from maskwright.inference.decode import Sampling
from maskwright.inference.generation import Generation, Prompt
from maskwright.inference.prepared import prepare
from maskwright.inference.stream import written


def spelled(ids: Sequence[int]) -> str:
    return "".join(f"{'xyz'[i % 3]}{'é😀'[i % 2]}{'uv'[i // 32]}" for i in ids)


def test_rows_are_what_they_are_alone() -> None:
    network = prepare(model_of(small(family("gpt2"), "GPT2LMHeadModel", vocab_size=64)))
    writing, texts, rows = Generation(network), {}, {}
    prompts = [[5, 6, 7], [9], [11, 12, 13, 14, 15]]
    for number in range(12):
        if number % 2 == 0 and number < 6:
            prompt = prompts[number // 2]
            asked = Prompt(
                ids=prompt, count=9, decode=spelled, sampling=Sampling(seed=3), stop=["zév"]
            )
            rows[writing.add(asked)] = prompt
        for piece in writing.step():
            texts[piece.row] = texts.get(piece.row, "") + piece.text
    assert writing.rows == 0 and len(rows) == 3
    for row, prompt in rows.items():
        (alone,) = written(network, [prompt], 9, Sampling(seed=3), decode=spelled, stop=["zév"])
        assert texts[row] == alone.text


def test_a_row_without_a_token_to_write_is_refused() -> None:
    network = prepare(model_of(small(family("gpt2"), "GPT2LMHeadModel", vocab_size=64)))
    with pytest.raises(UsageError, match="count"):
        Generation(network).add(Prompt(ids=[1], count=0, decode=spelled))
