"""What this machine can do, and the process settings that make it do it.

Two settings matter on CPUs. glibc hands buffers above 32 MiB back to the kernel at every free, so
a training step pays page faults for each of its large activations; three `mallopt` calls keep
them. Transparent huge pages save the rest. Both change the process for good (memory never shrinks
again), so only the training entry points call `keep_memory`, never an import.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import resource
import sys
import time
from dataclasses import dataclass
from typing import Any, Literal

import torch

from maskwright.errors import ConfigError, ResourceError

Precision = Literal["auto", "float32", "bfloat16"]

_HEAP, _HUGE, _MADV_HUGEPAGE = 1 << 30, 2 << 20, 14
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


@dataclass(frozen=True)
class Machine:
    """The device a run computes on, and in which type."""

    device: torch.device
    compute: torch.dtype
    reason: str

    @property
    def name(self) -> str:
        return str(self.compute).removeprefix("torch.")


def choose(precision: Precision = "auto", device: str = "auto") -> Machine:
    """The device and the dtype to compute in: bfloat16 exactly where matrix units exist for it.

    Raises:
        ConfigError: a device of no known kind.
        ResourceError: a device was asked for that is not there.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.partition(":")[0] not in ("cpu", "cuda"):
        raise ConfigError(
            "no such device",
            where="training.device",
            found=device,
            wanted="cpu, cuda, or one of several as cuda:1",
        )
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ResourceError(
            "there is no CUDA device here",
            where="training.device",
            found=device,
            wanted="cpu",
            do="--set training.device=cpu",
        )
    if precision != "auto":
        return Machine(torch.device(device), getattr(torch, precision), "asked for")
    units = matrix_units(device)
    if units:
        return Machine(torch.device(device), torch.bfloat16, units)
    return Machine(torch.device(device), torch.float32, "no bfloat16 matrix units")


def matrix_units(device: str) -> str:
    """The name of the bfloat16 matrix units of `device`, or an empty text."""
    if device.startswith("cuda"):
        return (
            "CUDA tensor cores" if torch.cuda.is_bf16_supported(including_emulation=False) else ""
        )
    if torch.cpu._is_amx_tile_supported():
        return "AMX"
    return "AVX512-BF16" if torch.cpu._is_avx512_bf16_supported() else ""


def use_threads(threads: int | None) -> None:
    """Compute with so many threads; None leaves PyTorch's choice."""
    if threads is not None:
        torch.set_num_threads(threads)


def busy_cores(seconds: float = 0.1) -> int:
    """How many cores other processes keep busy while this one sleeps; 0 where nobody tells."""

    def ticks() -> tuple[int, int]:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, idle, waiting, *rest = map(int, file.readline().split()[1:9])
        return user + nice + system + sum(rest), idle + waiting

    try:
        worked, idled = ticks()
        time.sleep(seconds)
        now_worked, now_idled = ticks()
    except (OSError, ValueError):
        return 0
    share = (now_worked - worked) / max(1, now_worked - worked + now_idled - idled)
    return round(share * (os.cpu_count() or 1))


def seed(device: torch.device, value: int) -> None:
    """Seed the generators of the CPU and of `device`. `torch.manual_seed` does that too, for every
    kind of device there may be, and takes 1 ms for it."""
    torch.default_generator.manual_seed(value)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(value)


def keep_memory() -> None:
    """Tell the allocator to keep large buffers. Idempotent; call it when the weights are in place,
    because what is freed before still goes back to the system."""
    if sys.platform == "linux":
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None and platform.libc_ver()[0] == "glibc":
            mallopt(_M_MMAP_MAX, 0)
            mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
            mallopt(_M_TOP_PAD, 256 << 20)
            _in_huge_pages(_HEAP)


def _in_huge_pages(size: int) -> None:
    """Let the allocator's heap grow by `size` bytes and ask for huge pages there: fewer misses when
    a step's activations are looked up. Nothing is taken that is not used."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free(ctypes.c_void_p(libc.malloc(ctypes.c_size_t(size))))
    with contextlib.suppress(OSError), open("/proc/self/maps") as file:
        heap = next((line.split()[0] for line in file if line.rstrip().endswith("[heap]")), "")
        if heap:
            low, high = (int(edge, 16) for edge in heap.split("-"))
            low = -(-low // _HUGE) * _HUGE
            libc.madvise(ctypes.c_void_p(low), ctypes.c_size_t(high - low), _MADV_HUGEPAGE)


def describe(machine: Machine) -> dict[str, Any]:
    """What the exactness of a resumed run depends on, as plain values."""
    return {
        "device": str(machine.device),
        "precision": machine.name,
        "precision_reason": machine.reason,
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def peak_memory(device: torch.device | None = None) -> int:
    """Largest resident size of this process, in bytes, since it began or `forget_peak`; on a GPU,
    the most that its tensors have taken there."""
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def forget_peak(device: torch.device) -> None:
    """Give free memory back and let `peak_memory` start anew, where the system can: several runs of
    one process are then told apart."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")
