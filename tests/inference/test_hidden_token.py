"""Hidden tokens: both ways of reading are asked the same ones, and see none of what is hidden."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from maskwright.model.batch import Batch
from maskwright.model.inference import likelihood
from maskwright.model.inference.likelihood import _HiddenTokens
from maskwright.model.nn.initialise import build
from nn.points import attention, block, config, stack
from toys import FixedRows

MASK = 7


class Counting(FixedRows):
    """Rows in which every token is the one before it plus one, modulo 6."""

    def __init__(self) -> None:
        super().__init__(40, 12)
        plain, shape = self.all, self.all.tokens.shape
        self.all = replace(
            plain,
            tokens=(plain.ids[:, None] + np.arange(self.length)) % 6,
            positions=np.broadcast_to(np.arange(self.length), shape).copy(),
            documents=np.ones(shape, np.int32),
            special=np.zeros(shape, bool),
        )


def batch_of(reads: likelihood.Reads, number: int = 0) -> Batch:
    model = build(config(decoder=stack(block(attention("causal")))))
    rows = Counting().rows(np.arange(40), 0)
    return _HiddenTokens(model, reads, MASK, number).corrupt(rows, np.zeros(40, np.int64), 1)


def test_both_ways_are_asked_the_same_tokens_and_see_none_of_them() -> None:
    both, one = batch_of("both sides"), batch_of("one side")
    assert torch.equal(both.targets, one.targets)
    assert torch.equal(both.index, one.index + 1), "a causal model is read off one place before"
    assert (both.tokens.flatten()[both.index] == MASK).all()
    assert int((both.tokens == MASK).sum()) == len(both.index)
    assert not (one.tokens == MASK).any()
    assert torch.equal((one.tokens.flatten()[one.index] + 1) % 6, one.targets)
    assert (both.index % 12 > 0).all(), "nothing stands before the first"
    rate = len(both.index) / (40 * 11)
    assert 0.10 < rate < 0.21
    other = batch_of("both sides", 1).index
    assert other is not None and not torch.equal(other, both.index), "each round asks others"


@pytest.mark.parametrize("reads", get_args(likelihood.Reads))
@pytest.mark.parametrize(("knows", "wanted"), [(True, 1.0), (False, 1 / 31)])
def test_what_is_named_first_is_counted(
    reads: likelihood.Reads, knows: bool, wanted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"both sides": -1, "one side": 0}[reads]

    def scores(self: _HiddenTokens, batch: Batch) -> torch.Tensor:
        before = batch.tokens.flatten()[batch.index + place]
        made = torch.zeros(len(before), 31)
        if knows:  # where the one before is hidden too, it is told by the one before that
            known = torch.where(before == MASK, batch.targets - 1, before)
            made[torch.arange(len(before)), (known + 1) % 6] = 1.0
        return made

    monkeypatch.setattr(_HiddenTokens, "target_states", scores)
    monkeypatch.setattr(_HiddenTokens, "target_scores", lambda self, states: states)
    model = build(config(decoder=stack(block(attention("causal")))))
    assert likelihood.top1(model, Counting(), reads, MASK) == pytest.approx(wanted)
