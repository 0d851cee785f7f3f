"""What this machine is asked about itself; its memory is kept and given back; denormals are flushed
in every thread while training lasts, and by none after it."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from maskwright.base import threads
from maskwright.base.errors import ConfigError, ResourceError
from maskwright.learn.train import loop, state
from maskwright.learn.train.optimizers import AdamWState, Parameters
from maskwright.learn.train.settings import AdamW
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
    ("count", "speed", "busy", "faster", "is_said"),
    [
        (2, 100.0, 1.0, 900.0, True),
        (2, 100.0, 0.1, 900.0, False),  # nobody is there: a longer text, a smaller batch
        (2, 900.0, 1.0, 950.0, False),  # somebody is, and it is fast
        (2, 100.0, 1.0, 90.0, False),  # one thread would not help
        (1, 100.0, 1.0, 900.0, False),  # one thread waits for none
    ],
)
def test_a_run_that_others_slow_down_says_so_once(
    count: int,
    speed: float,
    busy: float,
    faster: float,
    is_said: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 2)
    monkeypatch.setattr(threads.CoreUse, "busy", lambda self: busy)
    watch = machine.SlowdownWatch(count, "resume --set training.threads=", lambda fewer: faster)
    findings = [watch.slowed(now) for now in (1000.0, speed, speed)]
    assert [finding is not None for finding in findings] == [False, is_said, False]
    if (finding := findings[1]) is not None:
        assert {"100", "900"} <= set(re.findall("[0-9]+", finding.what))
        assert finding.remedy.endswith("training.threads=1")


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
    machine._first_choice.cache_clear()
    monkeypatch.setattr(threads, "chosen_by_user", True)
    assert machine.use_threads() is None and now == [2]  # the control: OMP_NUM_THREADS is set
    monkeypatch.setattr(threads, "chosen_by_user", False)
    finding = machine.use_threads()
    machine._first_choice.cache_clear()
    assert now[-1] == (chosen or 2)
    assert (finding is None) is (chosen is None)


def test_a_server_chooses_anew_when_others_come_or_go(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, busy, number = [0.0], [1.0], [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: number[-1])
    monkeypatch.setattr(torch, "set_num_threads", number.append)
    monkeypatch.setattr(machine, "USUAL_THREADS", 2)
    monkeypatch.setattr(machine, "_products", {1: 9.0, 2: 1.0}.__getitem__)
    monkeypatch.setattr(threads, "cores", lambda: 2)
    monkeypatch.setattr(threads, "busy_cores", lambda: busy[-1])
    monkeypatch.setattr(threads, "CoreUse", lambda: SimpleNamespace(busy=lambda: busy[-1]))
    monkeypatch.setattr(threads, "chosen_by_user", False)
    monkeypatch.setattr(machine.time, "monotonic", lambda: clock[-1])

    def counts(watch: machine.ThreadWatch) -> list[int]:
        """The number of threads beside a busy program, at once after it ended, and later."""
        machine._first_choice.cache_clear()
        seen = []
        for seconds, now_busy in ((0.0, 0.0), (1.0, 0.0), (30.0, 0.0), (30.0, 1.0), (30.0, 1.0)):
            clock.append(clock[-1] + seconds)
            watch()
            busy.append(now_busy)
            seen.append(watch.count)
        machine._first_choice.cache_clear()
        return seen

    assert counts(machine.ThreadWatch()) == [1, 1, 2, 2, 1]
    assert counts(machine.ThreadWatch(fixed=True)) == [1] * 5
    number.append(3)  # set by the program that starts the server
    assert counts(machine.ThreadWatch()) == [3] * 5
    monkeypatch.setattr(threads, "chosen_by_user", True)
    number.append(2)
    assert counts(machine.ThreadWatch()) == [2] * 5


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


# ------------------------------------------------------------------------------ memory
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives back and forgets")
MEGABYTE = 1 << 20
# Large pieces between small ones that stay, in a heap that keeps what is freed.
SCRIPT = """
from maskwright.model.device import machine as memory
memory.keep_memory()
begun, large, small = memory.resident(), [], []
for number in range(200):
    large.append(bytearray(b"x") * (1 << 20))
    small.append(bytes(5000))
held = memory.resident()
del large
freed = memory.resident()
memory.give_back()
print(begun, held, freed, memory.resident())
"""


@ON_LINUX
def test_what_lies_free_between_what_stays_is_given_back() -> None:
    said = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    begun, held, freed, after = map(int, said.stdout.split())
    assert held > begun + 190 * MEGABYTE
    # The control: freeing alone gives nothing back, once memory is kept.
    assert freed > held - 50 * MEGABYTE
    assert after < begun + 60 * MEGABYTE


def test_the_watch_gives_back_when_the_process_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    size, given = [1000 * MEGABYTE], list[int]()
    monkeypatch.setattr(machine, "resident", lambda: size[0])
    monkeypatch.setattr(machine, "give_back", lambda: given.append(size[0] // MEGABYTE))
    watch = machine.MemoryWatch()

    def steps(megabytes: int) -> None:
        size[0] = megabytes * MEGABYTE
        for _ in range(machine.WATCH_EVERY):
            watch.after_step()

    steps(1000)
    steps(1300)
    assert given == []  # within a quarter and what may be spared
    steps(1400)
    assert given == [1400]
    steps(1100)  # it was not needed; growing again, it is given back again
    steps(1400)
    assert given == [1400, 1400]
    steps(1450)  # it is needed at once: that is usual from now on
    steps(1800)
    assert given == [1400, 1400]
    steps(1900)
    assert given == [1400, 1400, 1900]


@ON_LINUX
def test_runs_of_one_process_have_their_own_peaks() -> None:
    cpu, size = torch.device("cpu"), 200 << 20
    machine.forget_peak(cpu)
    before = machine.peak_memory(cpu)
    large = torch.ones(size, dtype=torch.uint8)
    during = machine.peak_memory(cpu)
    del large
    assert during >= before + size * 0.9
    # Kernels count resident pages in batches for each thread, so the peak may differ a little.
    assert abs(machine.peak_memory(cpu) - during) < size * 0.05
    machine.forget_peak(cpu)
    assert machine.peak_memory(cpu) < during - size * 0.9


# ------------------------------------------------------------------------------ denormals
TINY = 1e-40


def _product() -> float:
    """A denormal product, as this thread computes it."""
    return float(torch.tensor(1e-30) * torch.tensor(1e-10))


@pytest.fixture
def two_threads() -> Any:
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
@pytest.mark.usefixtures("two_threads")
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
@pytest.mark.usefixtures("two_threads")
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
@pytest.mark.usefixtures("two_threads")
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
