"""How much memory there is, how much of it this process has, and which errors say that it does not
suffice."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path

from maskwright.errors import shorten

CONTAINER = Path("/sys/fs/cgroup")
# How torch, CUDA, C++, the system and Rust's libraries say that they get no memory.
SHORTAGE = re.compile(
    r"can't allocate memory|cannot allocate memory|not enough memory|out of memory|bad_alloc"
    r"|bad allocation|unable to allocate|ALLOC_FAILED|failed to allocate|memory allocation of",
    re.I,
)
ON_DEVICE = re.compile(r"CUDA|CUBLAS|cuDNN|\bHIP\b|\bGPU\b", re.I)


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


def peak_resident() -> int:
    """The most bytes of memory that this process has had; 0 where the system does not say. Of a
    child of a large process, `getrusage` tells the peak of its parent where that was larger."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            (found,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return int(found) * 1024
    except (OSError, ValueError):
        pass
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def is_shortage(error: BaseException) -> bool:
    """Whether memory, of this machine or of a GPU, did not suffice. Errors of torch are known by
    name and by what they say, as it is not imported for their sake."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    home = type(error).__module__.partition(".")[0]  # a KeyError may say any name of the user's
    foreign = isinstance(error, RuntimeError | SystemError | ImportError) or home != "builtins"
    return foreign and home != "maskwright" and SHORTAGE.search(str(error)) is not None


def of_device(error: BaseException) -> bool:
    """Whether the memory is a GPU's."""
    named = type(error).__name__ == "OutOfMemoryError"
    return named or ON_DEVICE.search(str(error)) is not None


def shortage(error: BaseException) -> str:
    """What the error says, what this process holds and what is free, in bytes."""
    said = shorten(str(error).strip().partition("\n")[0], 120)
    here = f"this process holds {resident():,} bytes, {free_bytes():,} are free"
    return f"{said}; {here}" if said else here
