"""The processor a measurement runs on, and how all its sides are held on the same cores."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Sequence
from pathlib import Path

from maskwright.base import privacy
from maskwright.base.packages import missing

PEERS = ("torch", "transformers", "onnxruntime", "openvino", "ctranslate2")
WANTED = (
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "avx512_bf16",
    "avx512_vnni",
    "avx_vnni",
    "avx512f",
    "avx2",
    "fma",
)


def _cpuinfo() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def instructions() -> str:
    """The vector and matrix instructions that the system lists, separated by blanks."""
    flags = _cpuinfo().get("flags", "").split()
    return " ".join(name for name in WANTED if name in flags)


def facts(threads: int, cores: Sequence[int]) -> dict[str, str]:
    """The machine, the budget and the versions, in words."""
    from maskwright.model.device.machine import matrix_units

    versions = [f"{p} {importlib.metadata.version(p)}" for p in PEERS if not missing([p])]
    return {
        "processor": f"{_cpuinfo().get('model name', 'unknown')}, {os.cpu_count()} cores",
        "instructions": instructions(),
        "matrix units": matrix_units("cpu"),
        "threads": f"{threads}" + (f" on cores {', '.join(map(str, cores))}" if cores else ""),
        "versions": ", ".join(versions),
    }


def hold(threads: int) -> list[int]:
    """Keep this process and its children on `threads` cores, no two of them the halves of one, and
    give libraries that read the environment the same budget: to be called before they are imported.

    Returns:
        The cores; empty where the system has no such call, or too few of them.
    """
    os.environ |= {n: str(threads) for n in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    os.environ |= {"RAYON_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
    os.environ |= {"TOKENIZERS_PARALLELISM": "true", **privacy.OFFLINE}
    if not hasattr(os, "sched_setaffinity"):
        return []
    cores: dict[str, int] = {}
    for number in sorted(os.sched_getaffinity(0)):
        path = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        cores.setdefault(path.read_text() if path.exists() else str(number), number)
    chosen = list(cores.values())[:threads]
    if len(chosen) < threads:
        return []
    os.sched_setaffinity(0, chosen)
    return chosen
