"""What this machine is asked about itself."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import pytest
import torch

from maskwright.base import threads
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
    ("busy", "speeds", "chosen"),
    [
        (1.0, {1: 9.0, 2: 1.0}, 1),
        (1.0, {1: 5.0, 2: 9.0}, 2),  # the test decides, not the number of busy cores
        (0.1, {}, None),  # idle cores: nothing is tested
    ],
)
def test_the_number_of_threads_is_chosen_by_a_test(
    busy: float, speeds: dict[int, float], chosen: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[-1])
    monkeypatch.setattr(torch, "set_num_threads", now.append)
    monkeypatch.setattr(machine, "USUAL_THREADS", 2)
    monkeypatch.setattr(machine, "_products", speeds.__getitem__)
    monkeypatch.setattr(threads, "cores", lambda: 2)
    monkeypatch.setattr(threads, "busy_cores", lambda: busy)
    machine._fastest.cache_clear()
    monkeypatch.setattr(threads, "chosen_by_user", True)
    assert machine.use_threads() is None and now == [2]  # the control: OMP_NUM_THREADS is set
    monkeypatch.setattr(threads, "chosen_by_user", False)
    finding = machine.use_threads()
    machine._fastest.cache_clear()
    assert now[-1] == (chosen or 2)
    assert (finding is None) is (chosen is None)


@pytest.mark.parametrize(("seconds", "expected"), [(5.0, 0.25), (60.0, 1.5)])
def test_the_look_since_the_start_counts_unless_that_is_long_ago(
    seconds: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_imported", time.monotonic() - seconds)
    monkeypatch.setattr(threads, "_first_look", SimpleNamespace(busy=lambda: 0.25))
    monkeypatch.setattr(threads, "CoreUse", lambda: SimpleNamespace(busy=lambda: 1.5))
    assert threads.busy_cores() == expected


def test_cores_that_others_keep_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 <= threads.busy_cores() <= (os.cpu_count() or 1)
    clock = {"worked": 0.0, "idled": 0.0, "ours": 0.0}
    monkeypatch.setattr(threads, "_allowed", lambda: {0, 1})
    monkeypatch.setattr(threads, "core_seconds", lambda: (clock["worked"], clock["idled"]))
    monkeypatch.setattr(threads.time, "process_time", lambda: clock["ours"])
    use = threads.CoreUse()
    clock |= {"worked": 1.5, "idled": 0.5, "ours": 0.5}
    assert use.busy() == pytest.approx(1.0)


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
