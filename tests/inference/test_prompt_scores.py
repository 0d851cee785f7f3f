"""The log-probabilities of a prompt's tokens are those of the network, row by row."""

from __future__ import annotations

import pytest
import torch

from checkpoint.small import model_of, small
from inference.written import writer
from maskwright.base.errors import IncompatibleError
from maskwright.model.families.base.family import family
from maskwright.model.inference import likelihood
from maskwright.model.inference.prepared import prepare


def test_they_are_the_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    network = writer("gpt2")
    rows = [[5, 6, 7], [9], [11, 12, 13, 14, 15, 16, 17], [5, 6, 8]]
    ready = prepare(network, precision="float32")
    scores = likelihood.prompt_scores(ready, rows, top=3)
    for row, scored in zip(rows, scores, strict=True):
        with torch.no_grad():
            states = network.decode(torch.tensor([row]))
        logs = network.logits(states)[0].detach().double().log_softmax(-1)
        following = torch.tensor(row[1:], dtype=torch.int64)[:, None]
        wanted = logs[:-1].gather(1, following)[:, 0].tolist()
        assert [own for own, _ in scored] == pytest.approx(wanted, abs=1e-5)
        for place, (_, top) in enumerate(scored):
            assert [i for i, _ in top] == logs[place].topk(3).indices.tolist()
        # The control: the scores one place further on are others.
        further = logs[1:].gather(1, following)[:, 0].tolist()
        assert not scored or [own for own, _ in scored] != pytest.approx(further, abs=1e-3)
    monkeypatch.setattr(likelihood, "AT_ONCE", 2)
    for one, other in zip(likelihood.prompt_scores(ready, rows), scores, strict=True):
        assert [own for own, _ in one] == pytest.approx([own for own, _ in other], abs=1e-6)
        assert all(top == () for _, top in one)
    with pytest.raises(IncompatibleError):
        likelihood.prompt_scores(prepare(model_of(small(family("bert"), "BertModel"))), rows)
