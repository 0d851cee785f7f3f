"""Denormals are flushed in every thread while training lasts, and by none after it."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
import torch

from maskwright.learn.train import loop
from maskwright.learn.train.optimizers import AdamWState, Parameters
from maskwright.learn.train.settings import AdamW
from maskwright.model.device import machine

TINY = 1e-40


def _product() -> float:
    """A denormal product, as this thread computes it."""
    return float(torch.tensor(1e-30) * torch.tensor(1e-10))


@pytest.fixture(autouse=True)
def threads() -> Any:
    """Two threads, both of them begun."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.randn(512, 512) @ torch.randn(512, 512)
    yield
    torch.set_num_threads(before)


def _able() -> bool:
    able = torch.set_flush_denormal(True)
    torch.set_flush_denormal(False)
    return bool(able)


able = pytest.mark.skipif(not _able(), reason="this processor has no such switch")


@able
def test_all_threads_flush_within_and_none_after() -> None:
    assert machine.flushing() == 0.0
    with pytest.raises(ZeroDivisionError), machine.flushed() as on:
        assert on and machine.flushing() == 1.0
        assert _product() == 0.0
        with machine.flushed() as inner:
            assert inner
        assert machine.flushing() == 1.0
        _ = 1 / 0  # an error ends it as well
    assert machine.flushing() == 0.0
    assert math.isclose(_product(), TINY, rel_tol=1e-3)


@able
def test_another_thread_is_left_alone() -> None:
    found = []
    begun, ask = threading.Event(), threading.Event()

    def other() -> None:
        _product()
        begun.set()
        ask.wait()
        found.append(_product())

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    with machine.flushed():
        ask.set()
        thread.join()
    assert found[0] > 0.0


@able
def test_the_loop_flushes_while_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """`loop.train` alone: what a step meets, and what is left after it."""
    met = []

    def step(*arguments: Any) -> loop.Record:
        met.append(machine.flushing())
        arguments[4].step += 1
        return {"loss": 1.0}

    monkeypatch.setattr(loop, "step", step)
    plan = loop.TrainingPlan(
        seed=0, microbatches=1, budget=loop.Budget(steps=2), schedule=loop.Schedule(kind="constant")
    )
    objective = torch.nn.Linear(1, 1)
    optimizer = AdamWState(Parameters(objective, torch.float32), AdamW(learning_rate=1e-2))
    loop.train(objective, None, optimizer, plan, loop.TrainState())
    assert met == [1.0, 1.0]
    assert machine.flushing() == 0.0
