"""The memory of this process: kept while it trains, given back where it is not used.

glibc hands buffers above 32 MiB back to the kernel at every free, so a training step pays page
faults for each of its large activations; three `mallopt` calls keep them. Transparent huge pages
save the rest. Both change the process for good, so only the training entry points call
`keep_memory`, never an import.

Where every step has other shapes, as with sentence pairs or texts of all lengths, kernels that the
library keeps for each shape come to lie between the large buffers, and a heap that never gives back
grows at every step: `bert-nsp-mini` came to 5.6 GB in 611 steps. `MemoryWatch` returns free pages
where the process has grown by more than a quarter.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from maskwright.base.memory import peak_resident, resident

_PAUSE = 1  # omp_pause_soft, OpenMP 5.0, section 3.2.44


@contextlib.contextmanager
def flushed() -> Iterator[bool]:
    """A block in which PyTorch's threads on the CPU flush denormals, all or none; yields which."""
    before = flushing()
    if before == 1.0:
        yield True
        return
    torch.set_flush_denormal(True)
    _renew_threads()
    if not (on := flushing() == 1.0):
        _restore(before)
    try:
        yield on
    finally:
        if on:
            _restore(before)


def flushing() -> float:
    """The share of PyTorch's threads, this one among them, that flush denormals."""
    per_thread = 1 << 16  # enough that every thread gets its part
    product = torch.full((torch.get_num_threads() * per_thread,), 1e-30).mul_(1e-10)
    return 1.0 - float((product.view(torch.int32) != 0).double().mean())


def _restore(before: float) -> None:
    torch.set_flush_denormal(before > 0.0)
    _renew_threads()


def _renew_threads() -> None:
    """Release the threads that OpenMP keeps for this one; new threads inherit its switch. Other
    implementations of OpenMP pass the switch on by themselves."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(str(library)).omp_pause_resource_all(_PAUSE)


_HEAP, _HUGE, _MADV_HUGEPAGE = 1 << 30, 2 << 20, 14
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
SETTLED, EVERY = 8, 8  # steps
GROWTH, SPARE = 1.25, 64 << 20


def keep_memory() -> None:
    """Make the allocator keep large buffers. Idempotent; call it when the weights are in place,
    because memory that was freed before still goes back to the system."""
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


def give_back() -> None:
    """Return unused memory of the allocator to the system, where possible."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


class MemoryWatch:
    """Called after every step, it returns memory once the process is a quarter larger than after
    its first steps. Memory that is in use again at once is what steps need, and from then on the
    new level."""

    def __init__(self) -> None:
        self._steps, self._usual, self._just = 0, 0, False

    def after_step(self) -> None:
        self._steps += 1
        if self._steps % EVERY:
            return
        size = resident()
        if self._steps == SETTLED or (self._just and self._large(size)):
            self._usual, self._just = size, False
        elif self._large(size):
            give_back()
            self._just = True
        else:
            self._just = False

    def _large(self, size: int) -> bool:
        return size > GROWTH * self._usual + SPARE


def peak_memory(device: torch.device | None = None) -> int:
    """The largest resident size of this process in bytes, since it started or since `forget_peak`;
    on a GPU, the most memory of its tensors."""
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return peak_resident()


def forget_peak(device: torch.device) -> None:
    """Return free memory and restart `peak_memory`, where the system can, so that several runs of
    one process are measured separately. What a run has left is free without a garbage collection:
    no reference cycle holds weights."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    give_back()
    if sys.platform == "linux":
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")
