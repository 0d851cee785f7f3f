"""How much memory there is, how much of it this process has, and which errors say that it does not
suffice."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from maskwright.base.errors import ResourceError, shorten

try:
    import resource  # at once: under a limit it may not be loaded any more
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# Of address space, to load torch or Daft and compute a little, measured.
LIBRARIES = 1 << 30
CONTROL_GROUPS = Path("/sys/fs/cgroup")
# Of versions 2 and 1 of Linux' control groups: the files of limit and usage, and the caches, which
# can be given back, in memory.stat.
GROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
# How torch, CUDA, C++, the system and Rust's libraries say that they get no memory.
SHORTAGE = re.compile(
    r"can't allocate memory|cannot allocate memory|not enough memory|out of memory|bad_alloc"
    r"|bad allocation|unable to allocate|ALLOC_FAILED|failed to allocate|memory allocation of"
    r"|failed to map segment|static TLS block|can't start new thread",
    re.I,
)
ON_DEVICE = re.compile(r"CUDA|CUBLAS|cuDNN|\bHIP\b|\bGPU\b", re.I)


def free_bytes() -> int:
    """Memory that this process may still take: what the system says is available now, or less where
    a container or a control group has a limit, or the process itself (`ulimit -v`, `-d`)."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            table = {line.split(":")[0]: line.split()[1] for line in lines}
        free = int(table["MemAvailable"]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = (*map(left_in, _control_groups(CONTROL_GROUPS)), *_process_limits())
    return min([free, *(remaining for remaining in limits if remaining is not None)])


def left_in(group: Path) -> int | None:
    """What is left of the limit of a control group; None without a limit."""
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


def _control_groups(root: Path, membership: Path = Path("/proc/self/cgroup")) -> Iterator[Path]:
    """The folders of the groups that this process is in, with those around them, as limits add up:
    `0::/path` is version 2, `4:memory:/path` version 1. A container often shows its own group as
    the root."""
    yield from (root, root / "memory")
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "" or "memory" in controllers.split(","):
            group = PurePosixPath(path.lstrip("/"))
            base = root / "memory" if controllers else root
            yield from (base / folder for folder in (group, *group.parents[:-1]))


def _process_limits() -> Iterator[int]:
    """What is left of the limits of this process on its address space and its data."""
    if resource is None:
        return
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            table = {line.split(":")[0]: line.split()[1:] for line in lines}
        for limit, held in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
            most, _ = resource.getrlimit(limit)
            if most != resource.RLIM_INFINITY:
                yield max(0, most - int(table[held][0]) * 1024)
    except (OSError, KeyError, ValueError, IndexError):
        return


def require_room_for_libraries() -> None:
    """Refuse a limit of the process below what the libraries that compute need: some of them end
    the process, without an error, where they get no memory while they are loaded.

    Raises:
        ResourceError: with what the limit leaves.
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
            (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return int(kilobytes) * 1024
    except (OSError, ValueError):
        pass
    if resource is None:
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
    message = shorten(str(error).strip().partition("\n")[0], 120)
    usage = f"this process holds {resident():,} bytes, {free_bytes():,} are free"
    return f"{message}; {usage}" if message else usage
