"""How much memory there is, and how much of it this process has."""

from __future__ import annotations

import os
from pathlib import Path

CONTAINER = Path("/sys/fs/cgroup")


def free_bytes() -> int:
    """Memory that a new model may use: what the system says is available now, or less where a
    container has a limit."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            table = {line.split(":")[0]: line.split()[1] for line in lines}
        free = int(table["MemAvailable"]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return free if (left := left_in(CONTAINER)) is None else min(free, left)


def left_in(container: Path) -> int | None:
    """What is left of a container's limit (version 2 of Linux' control groups), caches that can be
    given back included; None without a limit."""
    try:
        limit = int((container / "memory.max").read_text(encoding="ascii"))
        used = int((container / "memory.current").read_text(encoding="ascii"))
        stat = (container / "memory.stat").read_text(encoding="ascii").splitlines()
        caches = next(int(line.split()[1]) for line in stat if line.startswith("inactive_file "))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    return max(0, limit - used + caches)


def resident() -> int:
    """Bytes of memory that this process has now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
