"""Flushing denormals, numbers below 1.2e-38 in float32, to zero.

Trained attention is full of them: weights of e^-90, and their gradients. CPUs compute them in
microcode, and a step takes twice its time (docs/log.md). Processors have a switch for each thread,
which a thread inherits from the thread that made it. GNU's OpenMP keeps its threads for the next
product, so here they are released, to be made again with the switch as it now is.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path

import torch

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
