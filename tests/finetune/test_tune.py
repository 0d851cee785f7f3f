"""Fine-tuning: it learns what can be learned, keeps the best epoch, stops, repeats itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from maskwright.base.errors import DataError
from maskwright.learn.finetune.tune import Settings, TrainingResult, tune
from maskwright.learn.train.settings import AdamW
from maskwright.model.device.machine import Machine
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.inference.scores import scores
from maskwright.model.nn import stack
from maskwright.model.nn.config import Head
from maskwright.model.nn.initialise import build
from maskwright.model.objectives.modules.supervised import Supervised
from maskwright.model.objectives.supervised import Options
from toys import CLS, SEP, VOCABULARY, bert

COLLATION = Collation(pad=0, last=False)
PLAIN = Machine(torch.device("cpu"), torch.float32, "a test")
NARROW = Machine(torch.device("cpu"), torch.bfloat16, "a test")
FAST = Settings(epochs=6, batch=16, optimizer=AdamW(learning_rate=1e-2))


def task(count: int, seed: int = 0, *, noise: bool = False) -> EncodedExamples:
    """Which of two tokens stands somewhere in the text."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, count)
    texts = []
    for label in labels:
        words = draw.integers(10, 50, draw.integers(3, 12)).tolist()
        words[draw.integers(0, len(words))] = 5 + int(label)
        texts.append([CLS, *words, SEP])
    if noise:
        labels = draw.permutation(labels)
    return EncodedExamples(framed(texts), labels)


def fresh(seed: int = 0) -> Supervised:
    point = replace(
        bert().config,
        vocabulary_head=None,
        pooler=False,
        heads=(Head(name="own", kind="sequence", labels=2),),
    )
    model = build(point, torch.Generator().manual_seed(seed))
    return Supervised(model, Options(), VOCABULARY)


def right(objective: Supervised, examples: EncodedExamples) -> float:
    return float((scores(objective, examples, COLLATION).argmax(1) == examples.labels).mean())


def run(
    settings: Settings = FAST, machine: Machine = PLAIN, **keys: bool
) -> tuple[TrainingResult, float]:
    train, test = task(200, 0, **keys), task(200, 1)
    tuned = tune(
        fresh(), train, COLLATION, settings, figure=lambda o: right(o, test), machine=machine
    )
    return tuned, right(Supervised(tuned.model, Options(), VOCABULARY), test)


@pytest.mark.parametrize("machine", [PLAIN, NARROW])
def test_it_learns_and_the_best_epoch_is_kept(machine: Machine) -> None:
    tuned, again = run(machine=machine)
    assert len(tuned.figures) == len(tuned.losses) == 6 and tuned.losses[-1] < tuned.losses[0]
    assert max(tuned.figures) > 0.9
    assert tuned.epoch == 1 + int(np.argmax(tuned.figures))
    assert again == pytest.approx(max(tuned.figures), abs=0.02 * (machine is NARROW))
    assert {p.dtype for p in tuned.model.parameters()} == {torch.float32}
    assert not tuned.model.training
    noise, _ = run(machine=machine, noise=True)
    assert max(noise.figures) < 0.75, "the control: labels that say nothing teach nothing"


def test_patience_ends_the_run() -> None:
    told = iter([0.5, 0.9, 0.8, 0.9, 0.95, 0.99])
    settings = replace(FAST, patience=2)
    tuned = tune(fresh(), task(64), COLLATION, settings, figure=lambda o: next(told), machine=PLAIN)
    assert tuned.figures == [0.5, 0.9, 0.8, 0.9] and tuned.epoch == 2


def test_where_no_figure_is_defined_the_last_epoch_is_kept() -> None:
    """As of one row, which has no correlation; and patience waits for the first that is."""
    settings = replace(FAST, patience=1)
    nothing = tune(fresh(), task(64), COLLATION, settings, figure=lambda o: math.nan, machine=PLAIN)
    assert nothing.epoch == len(nothing.figures) == FAST.epochs
    told = iter([math.nan, math.nan, 0.5, math.nan, 0.9])
    late = tune(fresh(), task(64), COLLATION, settings, figure=lambda o: next(told), machine=PLAIN)
    assert late.epoch == 3 and len(late.figures) == 4


def test_a_step_in_portions_is_the_same_step() -> None:
    def losses(**keys: int) -> list[float]:
        return tune(fresh(), task(64), COLLATION, replace(FAST, **keys), machine=PLAIN).losses

    assert losses(accumulate=4) == pytest.approx(losses(), rel=1e-3)
    assert losses(batch=4) != pytest.approx(losses(), rel=1e-2), "the control: smaller steps"


def test_layers_that_are_computed_again_learn_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def weights(**keys: bool) -> dict[str, torch.Tensor]:
        settings = replace(FAST, epochs=1, **keys)
        return tune(fresh(), task(64), COLLATION, settings, machine=PLAIN).network.state_dict()

    usual, calls = weights(), list[int]()
    monkeypatch.setattr(
        stack, "checkpoint", lambda *a, f=stack.checkpoint, **k: calls.append(1) or f(*a, **k)
    )
    again = weights(gradient_checkpointing=True)
    assert all(torch.equal(usual[n], again[n]) for n in usual) and calls


def test_what_is_frozen_stays_to_the_bit() -> None:
    objective = fresh()
    for name, parameter in objective.product.named_parameters():
        parameter.requires_grad_(name.startswith("heads."))
    before = {n: p.detach().clone() for n, p in objective.product.named_parameters()}
    tuned = tune(objective, task(64), COLLATION, FAST, machine=NARROW)
    for name, parameter in tuned.model.named_parameters():
        assert torch.equal(parameter, before[name]) is not name.startswith("heads."), name
    assert tuned.figures == [] and tuned.epoch == FAST.epochs


def test_no_example_is_refused() -> None:
    empty = EncodedExamples(framed([]), np.zeros(0, dtype=np.int64))
    with pytest.raises(DataError) as refused:
        tune(fresh(), empty, COLLATION, FAST, machine=PLAIN)
    assert refused.value.where == "train"
