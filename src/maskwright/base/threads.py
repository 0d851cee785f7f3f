"""Which cores this process may use, how busy they are, and how threads wait for each other.

Threads of OpenMP spin while they wait. Next to other busy programs that is ruinous: a thread that
shares its core holds up all others, and two may compute at a fiftieth of the speed of one. Waiting
asleep (OMP_WAIT_POLICY=PASSIVE) avoids it, but costs up to a third where all cores are idle
(docs/log.md), and has to be chosen before the library is loaded. So `prepare` looks at the cores
first. `model/device/machine.py` chooses the number of threads later, by a test.

Variables of the environment that the user has set are never changed.
"""

from __future__ import annotations

import os
import sys
import time

from maskwright.base import control_groups

COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
BUSY = 0.5  # cores that others use, from which on something is changed
SHORTEST, LONGEST = 0.06, 15.0  # seconds of a look at the cores: the longer, the surer

chosen_by_user = any(name in os.environ for name in COUNTS)


def cores() -> int:
    """Return the number of cores whose time this process may use."""
    allowed = len(_allowed())
    quota = control_groups.cpu_quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def core_seconds() -> tuple[float, float]:
    """Return seconds that the cores this process may use have worked and idled, added up.

    Raises:
        OSError, ValueError: the system does not tell.
    """
    names, ticks, worked, idled = {f"cpu{n}" for n in _allowed()}, os.sysconf("SC_CLK_TCK"), 0, 0
    with open("/proc/stat", encoding="ascii") as file:
        for words in map(str.split, file):
            if words and words[0] in names:
                user, nice, system, idle, waiting, *others = map(int, words[1:9])
                worked += user + nice + system + sum(others)
                idled += idle + waiting
    return worked / ticks, idled / ticks


def _allowed() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


class CoreUse:
    """What other processes use of the cores, from now on until `busy` is called."""

    def __init__(self) -> None:
        self._start = self._now()

    def busy(self) -> float:
        """Return the number of cores that other processes kept busy since; 0 if unknown."""
        if self._start is None or (now := self._now()) is None:
            return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        worked, idled, ours = (b - a for a, b in zip(self._start, now, strict=True))
        return max(0.0, len(_allowed()) * (worked - ours) / max(worked + idled, 1e-9))

    @staticmethod
    def _now() -> tuple[float, float, float] | None:
        try:
            return *core_seconds(), time.process_time()
        except (OSError, ValueError, AttributeError):
            return None


_imported, _first_look = time.monotonic(), CoreUse()


def busy_cores() -> float:
    """Return how many cores other processes have kept busy since the start or, if that is long ago,
    keep busy in a short look; 0 if unknown."""
    elapsed, look = time.monotonic() - _imported, _first_look
    if elapsed > LONGEST:
        elapsed, look = 0.0, CoreUse()
    time.sleep(max(0.0, SHORTEST - elapsed))
    return look.busy()


def prepare() -> None:
    """Let threads wait asleep if others keep cores busy; call it before torch is imported. In a
    container with a quota of cores, have libraries start as many threads as these: more would be
    paused together whenever they have used it up."""
    if cores() < len(_allowed()) and not chosen_by_user:
        os.environ |= dict.fromkeys(COUNTS, str(cores()))
    if "torch" in sys.modules or len(_allowed()) == 1 or any(n in os.environ for n in WAITING):
        return
    if busy_cores() >= BUSY:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"


def use(count: int) -> None:
    """Have libraries that are loaded later start `count` threads, as the user asks."""
    global chosen_by_user
    chosen_by_user = True
    os.environ |= dict.fromkeys(COUNTS, str(count))
