"""The bottleneck's figure in the papers, and its place."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from checkpoint.small import model_of, small
from maskwright.model.adapters.base.adapter import attach
from maskwright.model.adapters.bottleneck import Bottleneck
from maskwright.model.families.base.family import family
from maskwright.model.nn.transformer import Transformer


@pytest.mark.parametrize(
    ("after", "count", "share"), [("both", 2_379_264, 2.2), ("feed_forward", 1_189_632, 1.1)]
)
def test_figures_of_bert_base(
    after: Literal["both", "feed_forward"], count: int, share: float
) -> None:
    with torch.device("meta"):
        model = Transformer(family("bert").size("base"))
    adapter = attach(Bottleneck(width=64, after=after), model, torch.Generator().manual_seed(0))
    assert sum(p.numel() for p in adapter.trainable().values()) == count
    assert round(100 * count / 109_482_240, 1) == share


def test_it_is_what_the_first_lines_say() -> None:
    model = model_of(small(family("bert")))
    half, x = model.get_submodule("encoder.blocks.0.feed_forward"), torch.randn(2, 5, 24)
    before = half(x)
    adapter = attach(
        Bottleneck(width=4, activation="relu"), model, torch.Generator().manual_seed(0)
    )
    assert torch.equal(half(x), before)
    branch = dict(adapter.places())["encoder.blocks.0.feed_forward"]
    assert 0.0 < float(branch.down.detach().abs().max()) <= 0.02
    with torch.no_grad():
        branch.up.normal_()
        branch.down_bias.fill_(0.1)
    inner = (before @ branch.down.T + 0.1).relu()
    torch.testing.assert_close(half(x), before + inner @ branch.up.T)
    assert not torch.allclose(half(x), before)
