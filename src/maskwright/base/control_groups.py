"""Control groups of Linux (versions 1 and 2), by which containers limit memory and cores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def groups_of(controller: str, root: Path = ROOT, membership: Path = MEMBERSHIP) -> Iterator[Path]:
    """Yield the folders of the control groups of this process and of their parents, whose limits
    apply too: `0::/path` is version 2, `4:memory:/path` version 1. A container often shows its own
    group as the root."""
    yield from (root, root / controller)
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "" or controller in controllers.split(","):
            group = PurePosixPath(path.lstrip("/"))
            base = root / controller if controllers else root
            yield from (base / folder for folder in (group, *group.parents[:-1]))


def cpu_quota(root: Path = ROOT, membership: Path = MEMBERSHIP) -> float | None:
    """Return the number of cores whose time this process may use, such as 1.5; None: no limit."""
    quotas = []
    for group in groups_of("cpu", root, membership):
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            try:
                words = " ".join((group / n).read_text(encoding="ascii") for n in names).split()
                quota, period = map(int, words)
            except (OSError, ValueError):  # no such file, or "max"
                continue
            if quota > 0 and period > 0:  # -1: no limit
                quotas.append(quota / period)
    return min(quotas, default=None)
