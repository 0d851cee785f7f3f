"""The prepared network gives what the network itself gives, at every point that writes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

import rounding
from conformance.test_adapters import attach, stir
from inference.written import WRITERS, uncached, writer
from maskwright.base.errors import DataError, IncompatibleError
from maskwright.model.inference import growing_rows
from maskwright.model.inference.blocks import fits
from maskwright.model.inference.generation import require_writer
from maskwright.model.inference.growing_rows import ContextReader
from maskwright.model.inference.prepared import prepared
from maskwright.model.nn.attention import KVCache
from maskwright.model.nn.transformer import Transformer
from nn.points import POINTS
from nn.points import model_of as point

TEXTS = [[5, 6, 7], [9], [11, 12, 13, 14, 15, 16, 17], [5, 6, 8]]
SOURCES = [[5, 6, 7, 8, 9], [10, 11], [12, 13, 14], [3]]


def scores_of(
    network: Transformer, cached: bool, *, whole: bool = False, count: int = 6
) -> list[torch.Tensor]:
    """Of six steps in which texts grow by what was decided beforehand; one row leaves, and two
    change places."""
    pair = len(network.config.stacks) == 2
    texts = [list(text) for text in TEXTS]
    with nullcontext() if cached else uncached():
        ready = prepared(network)
        assert ready.writer.plain != cached or not fits(ready.writer.module)
    reader = ContextReader(
        ready,
        24,
        sources=SOURCES if pair else None,
        prefix_lengths=[*map(len, texts)] if whole else None,
    )
    found = []
    for number in range(count):
        found.append(reader.next_scores(texts, count - number))
        texts = [[*text, (3 * number + 7 * row) % 29] for row, text in enumerate(texts)]
        if number == 3:
            reader.keep([0, 3, 2])
            texts = [texts[0], texts[3], texts[2]]
    return found


def agree(network: Transformer, **options: Any) -> bool:
    """Whether a cache changes no score by more than rounding does (see `rounding`)."""

    def uncached(network: Transformer) -> list[torch.Tensor]:
        return scores_of(network, False, **options)

    atol = rounding.tolerance(network, uncached)
    return rounding.agree(scores_of(network, True, **options), uncached(network), atol)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", POINTS)
def test_every_point_that_writes(name: str, whole: bool) -> None:
    encoder = POINTS[name].encoder
    if encoder is not None and encoder.sees_by_text:
        with pytest.raises(IncompatibleError):
            require_writer(POINTS[name], one_way=True)
        return
    network = point(name, deviation=0.4)
    assert agree(network, whole=whole)
    assert not prepared(network).writer.plain


@pytest.mark.parametrize("name", ["pre-norm decoder", "rotary decoder", "relative encoder-decoder"])
def test_controls_a_cache_out_of_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = point(name, deviation=0.4)
    advance, reorder = KVCache.advance, KVCache.reorder
    with monkeypatch.context() as broken:
        broken.setattr(KVCache, "advance", lambda self, n: advance(self, n + (self.length > 0)))
        with pytest.raises((AssertionError, RuntimeError, DataError)):
            assert agree(network)
    with monkeypatch.context() as broken:
        broken.setattr(KVCache, "reorder", lambda self, rows: reorder(self, rows.clone().fill_(0)))
        assert not agree(network)
    assert agree(network)


def test_controls_a_bias_out_of_place(monkeypatch: pytest.MonkeyPatch) -> None:
    network = point("relative encoder-decoder", deviation=0.4)
    buckets = growing_rows.relative_buckets
    for steps_alone in (False, True):

        def moved(table: Any, queries: int, keys: int, start: int, *rest: Any) -> torch.Tensor:
            further = 0 if steps_alone and queries > 1 else 1  # noqa: B023
            return buckets(table, queries, keys, start + further, *rest)

        with monkeypatch.context() as broken:
            broken.setattr(growing_rows, "relative_buckets", moved)
            assert not agree(network)
    assert agree(network)


@pytest.mark.parametrize(
    ("name", "texts"),
    [("pre-norm decoder", TEXTS), ("relative encoder-decoder", [[5], [6], [7], [8]])],
)
def test_a_bias_is_read_in_whole_blocks(
    name: str, texts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel of CUDA reads 16 bytes at once from where the bias and each of its rows begin."""
    attention, offsets = growing_rows.F.scaled_dot_product_attention, []

    def seen(*args: Any, attn_mask: torch.Tensor | None = None, **named: Any) -> torch.Tensor:
        if attn_mask is not None:
            strides = zip(attn_mask.stride()[:-1], attn_mask.shape[:-1], strict=True)
            rows = sum(stride % attn_mask.shape[-1] for stride, size in strides if size > 1)
            offsets.append(rows + attn_mask.data_ptr() % 16)
        return attention(*args, attn_mask=attn_mask, **named)

    monkeypatch.setattr(growing_rows.F, "scaled_dot_product_attention", seen)
    monkeypatch.setitem(globals(), "TEXTS", texts)
    scores_of(point(name), True)
    assert len(offsets) > 9 and not any(offsets)


@pytest.mark.parametrize("method", ["lora", "ia3", "bottleneck", "prefix", "prompt"])
@pytest.mark.parametrize("name", WRITERS)
def test_adapters_act_as_on_the_network(name: str, method: str) -> None:
    network = writer(name)
    before = scores_of(network, True)[-1]
    adapter = attach(network, method)
    for seed in range(9):
        stir(adapter, seed)
    assert agree(network)
    acted = scores_of(network, True)[-1]
    assert not torch.allclose(before, acted, atol=1e-2), "the control: the adapter does something"
    # Vectors in front of what a stack reads have no place in a cache; an encoder's do no harm.
    stack = network.decoder
    assert stack is not None and fits(stack) == (method != "prompt" or network.encoder is not None)
