"""What this machine is asked about itself."""

from __future__ import annotations

import os

import pytest
import torch

from maskwright.base.errors import ConfigError, ResourceError
from maskwright.learn.train import state
from maskwright.model.device import machine


@pytest.mark.parametrize("device", ["foo", "meta", "cdua:0", "cpu:x"])
def test_a_device_of_no_known_kind_or_number_is_refused(device: str) -> None:
    with pytest.raises(ConfigError):
        machine.choose(device=device)
    assert machine.choose("float32", "cpu").device == torch.device("cpu")
    with pytest.raises(ResourceError) as caught:
        machine.choose("float16", "cpu")
    assert caught.value.where == "precision"


@pytest.mark.parametrize(
    ("threads", "speed", "others", "found"),
    [
        (2, 100.0, 7.0, True),
        (2, 100.0, 0.4, False),  # nobody is there: a longer text, a smaller batch
        (2, 900.0, 7.0, False),  # somebody is, and it is fast
        (1, 100.0, 7.0, False),  # one thread waits for none
    ],
)
def test_a_run_that_others_slow_down_says_so_once(
    threads: int, speed: float, others: float, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"worked": 0.0, "own": 0.0}  # seconds of both cores
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(machine, "core_seconds", lambda: (clock["worked"], 0.0))
    monkeypatch.setattr(machine.time, "process_time", lambda: clock["own"])
    looks = machine.SlowdownWatch(threads, "maskwright resume x")
    said = []
    for now, taken in [(1000.0, 0.0), (speed, others), (speed, others)]:  # ten seconds each
        clock["own"] += 20 - taken
        clock["worked"] += 20
        said.append(looks.slowed(now))
    assert [each is not None for each in said] == [False, found, False]
    if (told := said[1]) is not None:
        assert "10 times slower: others keep 1 of 2 cores busy" in told.line()
        assert told.line().endswith("maskwright resume x --set training.threads=1")


def test_cores_that_others_keep_busy() -> None:
    assert 0 <= machine.busy_cores(0.01) <= (os.cpu_count() or 1)


def test_one_of_several_gpus_is_the_one_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    machine.choose("float32", "cuda:1")
    assert chosen == [torch.device("cuda:1")]
    with pytest.raises(ResourceError, match="no such CUDA device"):
        machine.choose("float32", "cuda:2")


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    monkeypatch.setattr(state.dist, "init_process_group", lambda *args, **named: None)
    monkeypatch.setattr(state.dist, "get_rank", lambda: 1)
    monkeypatch.setattr(state.dist, "get_world_size", lambda: 4)
    for name, value in (("WORLD_SIZE", "4"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    assert state.join_processes().world == 4
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ResourceError) as refused:
        state.join_processes()
    assert refused.value.where == "torchrun --nproc-per-node" and refused.value.found
