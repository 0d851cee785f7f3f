"""Memory is kept while it is used, and given back where it is not."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from maskwright.model.device import machine

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
