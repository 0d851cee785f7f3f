"""The log-probabilities of a prompt's tokens are those of the network, row by row."""

from __future__ import annotations

import pytest
import torch

from checkpoint.small import model_of, small
from maskwright.errors import IncompatibleError
from maskwright.families.parts.family import family
from maskwright.inference import prompt_scores
from maskwright.inference.prepared import prepare


def test_they_are_the_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    network = model_of(small(family("gpt2"), "GPT2LMHeadModel"))
    rows = [[5, 6, 7], [9], [11, 12, 13, 14, 15, 16, 17], [5, 6, 8]]
    ready = prepare(network, precision="float32")
    found = prompt_scores.prompt_scores(ready, rows, top=3)
    for row, scored in zip(rows, found, strict=True):
        tokens = torch.tensor([row])
        with torch.no_grad():
            logs = network.logits(network.decode(tokens))[0].double().log_softmax(-1)
        wanted = [float(logs[place, token]) for place, token in enumerate(row[1:])]
        assert [own for own, _ in scored] == pytest.approx(wanted, abs=1e-5)
        for place, (_, top) in enumerate(scored):
            assert [i for i, _ in top] == logs[place].topk(3).indices.tolist()
        # The control: the scores one place further on are others.
        if len(row) > 1:
            further = [float(logs[place + 1, token]) for place, token in enumerate(row[1:])]
            assert [own for own, _ in scored] != pytest.approx(further, abs=1e-3)
    monkeypatch.setattr(prompt_scores, "AT_ONCE", 2)
    for one, other in zip(prompt_scores.prompt_scores(ready, rows), found, strict=True):
        assert [own for own, _ in one] == pytest.approx([own for own, _ in other], abs=1e-6)
        assert all(top == () for _, top in one)
    with pytest.raises(IncompatibleError, match="stands alone"):
        prompt_scores.prompt_scores(prepare(model_of(small(family("bert"), "BertModel"))), rows)
