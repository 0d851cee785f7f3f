"""Masked pieces: how rows become pieces, what a hidden piece is predicted from, and the layers over
pieces that fine-tuning takes over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from maskwright.base.errors import ConfigError, IncompatibleError
from maskwright.learn.finetune.learner import Learner
from maskwright.learn.finetune.method import Method
from maskwright.learn.pretrain import checkpoints
from maskwright.learn.recipes.base.find import find, override, require_settings
from maskwright.learn.recipes.base.recipe import ObjectiveChoice
from maskwright.learn.tasks.base.task_type import task_for
from maskwright.model.batch import Batch
from maskwright.text.store.rows import Rows
from objectives.by_hand import make, of
from tinyrun import recipe, text_file, train_quietly
from toys import CLS, SEP, VOCABULARY, bert


def text_rows(count: int, length: int) -> Rows:
    """Rows of consecutive ordinary tokens without special ones, the last one padded by a token."""
    tokens = np.random.default_rng(0).integers(5, VOCABULARY.size, (count, length))
    documents = np.ones(tokens.shape, dtype=np.int32)
    tokens[-1, -1], documents[-1, -1] = 0, 0
    return Rows(
        tokens=tokens,
        positions=np.broadcast_to(np.arange(length), tokens.shape),
        documents=documents,
        special=documents == 0,
        starts_word=documents == 1,
        ids=np.arange(count),
    )


def corrupted(rows: Rows) -> Batch:
    objective = make("masked-pieces", bert(), piece=6, hidden_rate=0.5)
    return objective.corrupt(rows, np.zeros(len(rows), np.int64), 0)


def test_pieces_are_framed_and_half_of_them_hidden() -> None:
    rows, batch = text_rows(3, 16), corrupted(text_rows(3, 16))
    pieces = batch.tokens.flatten().index_put((batch.index,), batch.targets).view(3, 4, 6)
    assert np.array_equal(pieces[..., 1:-1].reshape(3, 16), rows.tokens)
    assert (pieces[..., 0] == CLS).all() and (pieces[..., -1] == SEP).all()
    assert batch.positions.tolist() == [[*range(6)] * 4] * 3
    numbers = torch.arange(1, 5).repeat_interleave(6).repeat(3, 1)
    assert torch.equal(batch.documents.long(), numbers * (batch.tokens != 0))
    assert batch.labels.view(3, 4).sum(1).tolist() == [2, 2, 2]
    assert not corrupted(text_rows(3, 4)).labels.any(), "nothing can tell of a single piece"


def test_a_hidden_piece_is_predicted_from_the_others_alone() -> None:
    objective = make("masked-pieces", of(bert().config, deviation=0.5), piece=6, hidden_rate=0.5)
    objective.eval()
    batch = objective.corrupt(text_rows(1, 16), np.zeros(1, np.int64), 0)
    hidden = batch.labels.bool().repeat_interleave(6)[None]
    ordinary = batch.tokens >= 5

    def predicted(changed: torch.Tensor) -> torch.Tensor:
        tokens = torch.where(changed & ordinary, 5 + (batch.tokens + 7) % 40, batch.tokens)
        contexts = []
        objective.over.register_forward_hook(lambda _, __, out: contexts.append(out))
        objective(replace(batch, tokens=tokens))
        return contexts[0][:, batch.labels.bool()].detach()

    original = predicted(torch.zeros_like(hidden))
    assert torch.equal(predicted(hidden), original)
    assert not torch.allclose(predicted(~hidden), original), "the control"


@pytest.mark.parametrize(
    "setting",
    ["rows.length=100", "rows.length=128", "rows.kind=documents"]
    + [f"objective.options.{wrong}" for wrong in ("masking.rate=2", "piece=2", "hidden_rate=1")],
)
def test_rows_that_are_no_pieces_are_refused_and_options_out_of_range(setting: str) -> None:
    in_pieces = ["objective.name=masked-pieces", "rows.length=1024"]
    base = override(find("bert-mini"), in_pieces)
    with pytest.raises((IncompatibleError, ConfigError)) as caught:
        require_settings(override(base, [setting]))
    assert caught.value.where == setting.split("=")[0]
    require_settings(base)


def test_fine_tuning_takes_over_the_layers(tmp_path: Path) -> None:
    base, text = recipe(text_file(tmp_path), steps=2), tmp_path / "text.txt"
    pieces = ObjectiveChoice(name="masked-pieces", options={"piece": 8})
    task = task_for("classification", ("a", "b"))
    taken = {}
    for name, chosen in (("pieces", replace(base, objective=pieces)), ("plain", base)):
        run = train_quietly(chosen, tmp_path / name)
        learner = Learner.of(run, task, Method("full"), 8, "hierarchical")
        started, _ = learner.initial_network(0)
        assert started.model.pooler is None and text.is_file()
        (head,) = started.model.heads.values()
        again = learner.initial_network(1)[0].model.heads["classifier"]
        taken[name] = [
            torch.equal(a, b)
            for a, b in zip(head.over.parameters(), again.over.parameters(), strict=True)
        ]
        assert any(".over." in n for n in started.copied) is (name == "pieces")
        assert (run / checkpoints.OBJECTIVE).is_file() is (name == "pieces")
    assert all(taken["pieces"]) and not all(taken["plain"]), "the control: drawn by the seed"
