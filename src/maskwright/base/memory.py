"""Free memory, memory of this process, and errors that say that memory is exhausted."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from maskwright.base.control_groups import groups_of
from maskwright.base.errors import ResourceError, shorten

try:
    import resource  # imported early: under a memory limit a later import may fail
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

STATUS = "/proc/self/status"
# Bytes of address space that loading torch or Daft and a small computation take, measured.
LIBRARIES = 1 << 30
# Versions 2 and 1 of Linux control groups: files of limit and usage, and the entry of memory.stat
# for reclaimable caches.
GROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
# Messages of torch, CUDA, C++, the system and Rust libraries for exhausted memory.
SHORTAGE = re.compile(
    r"can't allocate memory|cannot allocate memory|not enough memory|out of memory|bad_alloc"
    r"|bad allocation|unable to allocate|ALLOC_FAILED|failed to allocate|memory allocation of"
    r"|failed to map segment|static TLS block|can't start new thread",
    re.I,
)
ON_DEVICE = re.compile(r"CUDA|CUBLAS|cuDNN|\bHIP\b|\bGPU\b", re.I)


def free_bytes() -> int:
    """Return the bytes that this process may still allocate: the memory that is available, within
    the limits of control groups (containers) and of the process (`ulimit -v`, `-d`)."""
    try:
        free = _reported_bytes("/proc/meminfo", "MemAvailable")
    except (OSError, ValueError):
        free = _physical_bytes()
    limits = (*map(remaining_in, groups_of("memory")), *_process_limits())
    return min([free, *(remaining for remaining in limits if remaining is not None)])


def _reported_bytes(file: str, name: str) -> int:
    """Return an entry of a file of the system, which has it in kB.

    Raises:
        OSError, ValueError: there is none.
    """
    with open(file, encoding="ascii") as lines:
        (kilobytes,) = (line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return int(kilobytes) * 1024


def _physical_bytes() -> int:
    """Return the memory of the machine in bytes; on Windows that which is free."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    status = (ctypes.c_uint64 * 8)(64)  # MEMORYSTATUSEX; its first word is its size in bytes
    windows: Any = ctypes
    windows.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return status[2]  # ullAvailPhys


def remaining_in(group: Path) -> int | None:
    """Return the bytes that remain of the limit of a control group, None without a limit."""
    for limit, usage, caches in GROUP_FILES:
        try:
            most = int((group / limit).read_text(encoding="ascii"))
            used = int((group / usage).read_text(encoding="ascii"))
            stat = (group / "memory.stat").read_text(encoding="ascii").splitlines()
            back = next(int(line.split()[1]) for line in stat if line.startswith(f"{caches} "))
        except (OSError, ValueError, IndexError, StopIteration):
            continue
        return max(0, most - used + back)
    return None


def _process_limits() -> Iterator[int]:
    """Yield the bytes that remain of the limits of this process on address space and data."""
    if resource is None:
        return
    for limit, held in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most, _ = resource.getrlimit(limit)
        with contextlib.suppress(OSError, ValueError):
            if most != resource.RLIM_INFINITY:
                yield max(0, most - _reported_bytes(STATUS, held))


def require_room_for_libraries() -> None:
    """Refuse a memory limit that is too low to load the numerical libraries, some of which end the
    process without an error if an allocation fails during import.

    Raises:
        ResourceError: with the bytes that remain.
    """
    remaining = min(_process_limits(), default=LIBRARIES)
    if remaining < LIBRARIES:
        raise ResourceError(
            "the memory limit of this process is too low",
            where="ulimit -v, ulimit -d",
            found=f"{remaining:,} bytes are left",
            wanted=f"{LIBRARIES:,} or more for the libraries alone",
            do="raise the limit, or take it away: ulimit -v unlimited -d unlimited",
        )


def resident() -> int:
    """Return the resident bytes of this process; 0 if the system does not report them."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError, IndexError):
        return 0


def peak_resident() -> int:
    """Return the peak resident bytes of this process; 0 if the system does not report them.

    `getrusage` is the fallback only: for the child of a large process it may report the peak of the
    parent."""
    with contextlib.suppress(OSError, ValueError):
        return _reported_bytes(STATUS, "VmHWM")
    if resource is None:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def is_shortage(error: BaseException) -> bool:
    """Return whether an error means exhausted memory, of the machine or a GPU. Errors of torch are
    recognised by name and message, so that torch need not be imported."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    home = type(error).__module__.partition(".")[0]  # messages of a KeyError are names of users
    foreign = isinstance(error, RuntimeError | SystemError | ImportError) or home != "builtins"
    return foreign and home != "maskwright" and SHORTAGE.search(str(error)) is not None


def is_device_shortage(error: BaseException) -> bool:
    """Return whether the exhausted memory is that of a GPU."""
    named = type(error).__name__ == "OutOfMemoryError"
    return named or ON_DEVICE.search(str(error)) is not None


def describe_shortage(error: BaseException) -> str:
    """Return the message of the error with the bytes of this process and the free bytes."""
    message = shorten(str(error).strip().partition("\n")[0], 120)
    usage = f"this process holds {resident():,} bytes, {free_bytes():,} are free"
    return f"{message}; {usage}" if message else usage
