"""Other processes that come to take cores from a training.

PyTorch's threads wait for each other in every operation, so one that shares its core holds up all:
beside one busy program two threads on two cores may train at a twentieth of their speed
(docs/log.md). Another way of waiting would cost a quiet machine up to a quarter, and another number
of threads, chosen during a run, its last bits; so it is said, with the command that helps.
"""

from __future__ import annotations

import os
import time

from maskwright.base.findings import Finding

SLOWED = 0.5  # the share of its best speed below which a run is asked why


def core_seconds() -> tuple[float, float]:
    """Seconds that the cores of this machine have worked and idled, added over the cores.

    Raises:
        OSError, ValueError: the system does not tell.
    """
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, idle, waiting, *rest = map(int, file.readline().split()[1:9])
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + sum(rest)) / ticks, (idle + waiting) / ticks


class SlowdownWatch:
    """Whether a run has become slow because others came; asked now and then, said once.

    Args:
        threads: of the run.
        again: the command that goes on with the run.
    """

    def __init__(self, threads: int, again: str) -> None:
        self.threads, self.again = threads, again
        self._best = 0.0
        self._reported = threads == 1
        self._before = self._now()

    def slowed(self, speed: float) -> Finding | None:
        """The finding, if `speed`, since the last question, has fallen and others have cores."""
        before, self._before = self._before, self._now()
        self._best = max(self._best, speed)
        if self._reported or before is None or self._before is None or speed > SLOWED * self._best:
            return None
        worked, idled, own_ticks = (
            now - then for now, then in zip(self._before, before, strict=True)
        )
        cores = os.cpu_count() or 1
        busy = round(cores * (worked - own_ticks) / max(worked + idled, 1e-9))
        if busy < 1 or cores - busy >= self.threads:
            return None
        self._reported = True
        return Finding(
            "slowed-by-others",
            f"{self._best / speed:.0f} times slower: others keep {busy} of {cores} cores busy",
            remedy=f"likely faster: Ctrl+C, then {self.again} --set training.threads="
            f"{max(1, cores - busy)}",
        )

    def _now(self) -> tuple[float, float, float] | None:
        """What all have worked and idled, and what this process has worked; None if unknown."""
        try:
            return *core_seconds(), time.process_time()
        except (OSError, ValueError):
            return None
