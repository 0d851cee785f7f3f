"""Numbers too small for a whole mantissa, below 1.2e-38 in float32, taken for zero.

Trained attention is full of them: weights of e^-90, and what gradients make of those. CPUs compute
them in microcode, and a step takes twice its time (docs/log.md). Processors have a switch, but each
thread its own, which it inherits from the thread that made it. GNU's OpenMP keeps its threads for
the next product, so here they are let go, to be made anew with the switch as it now is.
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
    """Within it PyTorch's threads on the CPU flush denormals, all or none; yields which. After it
    they do as before."""
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
    """The share of PyTorch's threads, this one among them, that take denormals for zero."""
    per_thread = 1 << 16  # enough that every thread gets its part
    product = torch.full((torch.get_num_threads() * per_thread,), 1e-30).mul_(1e-10)
    return 1.0 - float((product.view(torch.int32) != 0).double().mean())


def _restore(before: float) -> None:
    torch.set_flush_denormal(before > 0.0)
    _renew_threads()


def _renew_threads() -> None:
    """Let the threads go that OpenMP keeps for this one; the next that are wanted inherit from it.
    Other makes of OpenMP hand the switch on by themselves."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(str(library)).omp_pause_resource_all(_PAUSE)
