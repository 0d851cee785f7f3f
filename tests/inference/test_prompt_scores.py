"""The log-probabilities of a prompt's tokens are those of the network, row by row."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from checkpoint.small import model_of, small
from maskwright.ask.predict.language_model import load
from maskwright.base.errors import IncompatibleError
from maskwright.model.families.base.family import family
from maskwright.model.inference import likelihood
from maskwright.model.inference.likelihood_prompts import frame_for
from maskwright.model.inference.prepared import prepare


def test_they_are_the_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    network = model_of(small(family("gpt2"), "GPT2LMHeadModel"))
    rows = [[5, 6, 7], [9], [11, 12, 13, 14, 15, 16, 17], [5, 6, 8]]
    ready = prepare(network, precision="float32")
    found = likelihood.prompt_scores(ready, rows, top=3)
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
    monkeypatch.setattr(likelihood, "AT_ONCE", 2)
    for one, other in zip(likelihood.prompt_scores(ready, rows), found, strict=True):
        assert [own for own, _ in one] == pytest.approx([own for own, _ in other], abs=1e-6)
        assert all(top == () for _, top in one)
    with pytest.raises(IncompatibleError, match="stands alone"):
        likelihood.prompt_scores(prepare(model_of(small(family("bert"), "BertModel"))), rows)


def test_their_sum_is_the_log_likelihood(models: dict[str, Path]) -> None:
    """Behind the token that a text begins after, as `log_likelihood` has it."""
    own = load(models["gpt2"], precision="float32")
    texts = ["the cat sat on the mat", "a dog"]
    before = frame_for(own.model.network, own.model.tokenizer, "causal").before
    rows = [[*before, *own.model.tokenizer.encode(text)] for text in texts]
    found = likelihood.prompt_scores(prepare(own.model.network, precision="float32"), rows)
    sums = [sum(log for log, _ in each) for each in found]
    assert sums == pytest.approx(own.log_likelihood(texts), abs=1e-4)
    # The control: without that token the sum lacks the first.
    bare = likelihood.prompt_scores(
        prepare(own.model.network, precision="float32"), [row[1:] for row in rows]
    )
    assert sums != pytest.approx([sum(log for log, _ in each) for each in bare], abs=1e-2)
