"""The machine: what it can do, who takes its cores, and the memory of this process.

PyTorch's threads wait for each other in every operation, so one that shares its core holds up all.
Where other processes keep cores busy, `use_threads` chooses the number by a short test; on idle
cores nothing is tested and nothing changed. A run keeps its number: another one rounds otherwise,
so a resumed run has the number that it began with, and where others come during a run,
`SlowdownHook` only reports how fast fewer threads are (`base/threads.py`, docs/log.md). A server
chooses anew (`ThreadWatch`).

Denormals, which cost microcode, are flushed in every thread while a run trains (`flushed`).

Memory is kept while a run trains, and given back where it is not used. glibc hands buffers above 32
MiB back to the kernel at every free, so a training step pays page faults for each of its large
activations; three `mallopt` calls keep them. Transparent huge pages save the rest. Both change the
process for good, so only the training entry points call `keep_memory`, never an import.

Where every step has other shapes, as with sentence pairs or texts of all lengths, kernels that the
library keeps for each shape come to lie between the large buffers, and a heap that never gives back
grows at every step: `bert-nsp-mini` came to 5.6 GB in 611 steps. `MemoryWatch` returns free pages
where the process has grown by more than a quarter.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from maskwright.base import threads
from maskwright.base.errors import Finding, ResourceError
from maskwright.base.memory import peak_resident, resident
from maskwright.base.terminal import counted
from maskwright.model.device.choices import Precision, require_device, usual_choice

WATCH_SECONDS = 20.0  # between two looks of a process that lives long
SLOWED = 0.5  # the share of its best speed below which a run is asked why
TEST_SECONDS, TEST_ROUNDS = 0.04, 3
USUAL_THREADS = torch.get_num_threads()  # unless the program changes them


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
        ResourceError: a device was asked for that is not there, or float16 on the CPU.
    """
    device = usual_choice.get("device", device) if device == "auto" else device
    if precision == "auto":
        precision = cast(Precision, usual_choice.get("precision", precision))
    if device == "auto":
        # By its number, as tensors on it say: `cuda` alone is none of theirs.
        device = "cpu"
        if torch.cuda.is_available():
            device = f"cuda:{torch.cuda.current_device()}"
    require_device(device)
    torch_device = torch.device(device)
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ResourceError(
            "there is no CUDA device here",
            where="device",
            found=device,
            wanted="cpu",
            do="ask for the device cpu, or auto",
        )
    if torch_device.index is not None and torch_device.type == "cuda":
        if torch_device.index >= (count := torch.cuda.device_count()):
            raise ResourceError(
                "there is no such CUDA device here",
                where="device",
                found=device,
                wanted=f"cuda:0 to cuda:{count - 1}",
            )
        torch.cuda.set_device(torch_device)  # whose generator is seeded, and what its units are
    if precision == "float16" and torch_device.type == "cpu":
        raise ResourceError(
            "float16 is computed on a GPU only",
            where="precision",
            found=f"{precision} on the CPU, where it is some 35 times slower than float32",
            wanted="bfloat16 or float32",
            do="leave the precision out, or choose the device cuda",
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


def summary() -> str:
    """The version of PyTorch, its instruction set on this processor, and the GPUs, as one line."""
    gpus = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    instructions = torch.backends.cpu.get_cpu_capability()
    return ", ".join([f"torch {torch.__version__}", f"instructions {instructions}", *gpus])


def unusual(machine: Machine | None) -> dict[str, str]:
    """The precision and the device of `machine` where they differ from the usual choice."""
    if machine is None:
        return {}
    usual, described = choose(), {}
    if machine.compute != usual.compute:
        described["precision"] = machine.name
    if machine.device.type != usual.device.type:
        described["device"] = machine.device.type
    return described


def best_device() -> torch.device:
    """The device on which a finished model is asked, in float32: a GPU if there is one."""
    use_threads()
    return choose("float32").device


def use_threads(count: int | None = None) -> Finding | None:
    """Compute with `count` threads; None: with those that are fastest now, chosen once in a process
    unless the environment or the program has set their number. Returns what was chosen and why, if
    it is not one thread for each core."""
    if count is not None:
        torch.set_num_threads(count)
        return None
    return None if threads.chosen_by_user else _first_choice()


@functools.cache
def _first_choice() -> Finding | None:
    is_usual = torch.get_num_threads() == USUAL_THREADS > 1
    return _choose_threads(threads.busy_cores()) if is_usual else None


def _choose_threads(busy: float) -> Finding | None:
    """Compute with the fastest number of threads if others keep `busy` cores busy."""
    cores, usual = threads.cores(), USUAL_THREADS
    if busy < threads.BUSY:
        return None
    counts = sorted({1, min(usual, max(1, cores - round(busy))), usual})
    speeds = dict.fromkeys(counts, 0.0)
    for _ in range(TEST_ROUNDS):  # in turn, since what others do changes
        for count in counts:
            speeds[count] += _products(count)
    best = max(counts, key=lambda count: speeds[count])
    torch.set_num_threads(best)
    listed = ", ".join(f"{n}: {speeds[n] / speeds[best]:.0%}" for n in counts)
    return Finding(
        "busy-machine",
        f"other processes keep {busy:.1f} of {cores} cores busy, so the work has "
        f"{counted(best, 'thread')}",
        f"speed in a test, by number of threads: {listed}",
    )


def _products(count: int) -> float:
    """Return how many small layers a second are computed with `count` threads, in a short test."""
    torch.set_num_threads(count)
    weights, states, number = torch.full((256, 256), 1 / 256), torch.ones(512, 256), 0
    with torch.inference_mode():
        states, start = torch.nn.functional.gelu(states @ weights), time.perf_counter()
        while (elapsed := time.perf_counter() - start) < TEST_SECONDS:
            states, number = torch.nn.functional.gelu(states @ weights) + 1.0, number + 1
    return number / elapsed


class ThreadWatch:
    """Chooses the number of threads anew when other programs come or go, in a long-lived process.

    The thread that computes calls it, since PyTorch has a number for each thread. It is `fixed` for
    other engines, which keep the number with which they opened a model.

    Attributes:
        count: the number of threads in use; 0 before the first call.
    """

    def __init__(self, fixed: bool = False) -> None:
        self.count, self._near_others, self._fixed = 0, False, fixed
        self._looked, self._cores = time.monotonic(), threads.CoreUse()

    def __call__(self) -> None:
        """Look at the cores if `WATCH_SECONDS` have passed since the last look."""
        if not self.count:
            self._near_others = use_threads() is not None
            self.count = torch.get_num_threads()
            by_program = not self._near_others and self.count != USUAL_THREADS
            on_cpu = choose("float32").device.type == "cpu"
            self._fixed |= threads.chosen_by_user or by_program or USUAL_THREADS == 1 or not on_cpu
        elif self._fixed or time.monotonic() - self._looked < WATCH_SECONDS:
            return
        elif ((busy := self._cores.busy()) >= threads.BUSY) != self._near_others:
            self._near_others = not self._near_others
            if _choose_threads(busy) is None:
                torch.set_num_threads(USUAL_THREADS)
            self.count = torch.get_num_threads()
        self._looked, self._cores = time.monotonic(), threads.CoreUse()


def waiting() -> str:
    """Return how threads wait for each other: the variables of the environment, or `spinning`."""
    named = [f"{name}={os.environ[name]}" for name in threads.WAITING if name in os.environ]
    return ", ".join(named) or "spinning"


class SlowdownWatch:
    """Finds out once whether a run has become slow because of other processes.

    Args:
        count: number of threads of the run.
        command: the command that continues the run, to which a number of threads is appended.
        test: returns the tokens per second with a number of threads, in a test of a second.
    """

    def __init__(self, count: int, command: str, test: Callable[[int], float]) -> None:
        self.count, self.command, self.test = count, command, test
        self._best = 0.0
        self._reported = count == 1
        self._cores = threads.CoreUse()

    def slowed(self, speed: float) -> Finding | None:
        """The finding, if `speed` (tokens per second since the last call) has fallen, other
        processes keep cores busy, and fewer threads are faster."""
        busy, self._cores = self._cores.busy(), threads.CoreUse()
        self._best = max(self._best, speed)
        if self._reported or busy < threads.BUSY or speed > SLOWED * self._best:
            return None
        self._reported = True
        fewer = max(1, min(self.count - 1, threads.cores() - round(busy)))
        if (faster := self.test(fewer)) <= speed:
            return None
        return Finding(
            "slowed-by-others",
            f"{self.count} threads give {speed:,.0f} tokens/s; {fewer} gave {faster:,.0f} in a "
            "test of 1 s",
            f"others keep {busy:.1f} of {threads.cores()} cores busy",
            f"Ctrl+C, then {self.command}{fewer}",
        )


def seed(device: torch.device, value: int) -> None:
    """Seed the generators of the CPU and of `device`. `torch.manual_seed` does that too, for every
    kind of device there may be, and takes 1 ms for it."""
    torch.default_generator.manual_seed(value)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(value)


def describe(machine: Machine) -> dict[str, Any]:
    """The properties of a machine that an exact resume depends on, as plain values."""
    return {
        "device": machine.device.type,  # which of several computes makes no difference
        "precision": machine.name,
        "precision_reason": machine.reason,
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


# ------------------------------------------------------------------------------ denormals
_OMP_PAUSE_SOFT = 1  # omp_pause_soft, OpenMP 5.0, section 3.2.44


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
        ctypes.CDLL(str(library)).omp_pause_resource_all(_OMP_PAUSE_SOFT)


# ------------------------------------------------------------------------------ memory
_HEAP, _HUGE, _MADV_HUGEPAGE = 1 << 30, 2 << 20, 14
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
WATCH_SETTLED, WATCH_EVERY = 8, 8  # steps
WATCH_GROWTH, WATCH_SPARE = 1.25, 64 << 20


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
    a step's activations are looked up. Memory that is not used is not reserved."""
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
        if self._steps % WATCH_EVERY:
            return
        size = resident()
        if self._steps == WATCH_SETTLED or (self._just and self._large(size)):
            self._usual, self._just = size, False
        elif self._large(size):
            give_back()
            self._just = True
        else:
            self._just = False

    def _large(self, size: int) -> bool:
        return size > WATCH_GROWTH * self._usual + WATCH_SPARE


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
