"""What this machine can do."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from typing import Any

import torch

from maskwright.base.errors import ResourceError
from maskwright.base.findings import Finding
from maskwright.model.device.choices import Precision, require_device
from maskwright.model.device.neighbours import core_seconds


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
    return choose("float32").device


def use_threads(threads: int | None) -> None:
    """Compute with `threads` threads; None leaves PyTorch's choice."""
    if threads is not None:
        torch.set_num_threads(threads)


def busy_cores(seconds: float = 0.1) -> int:
    """The number of cores that other processes keep busy while this one sleeps; 0 if unknown."""

    try:
        worked, idled = core_seconds()
        time.sleep(seconds)
        now_worked, now_idled = core_seconds()
    except (OSError, ValueError):
        return 0
    share = (now_worked - worked) / max(1e-9, now_worked - worked + now_idled - idled)
    return round(share * (os.cpu_count() or 1))


def busy(threads: int | None = None, device: str = "cpu") -> Finding | None:
    """That other processes keep cores busy and PyTorch chose the number of threads:
    they wait for each other in every operation, and one that shares its core holds up all."""
    number = torch.get_num_threads()
    if (
        device.startswith("cuda")
        or threads is not None
        or number == 1
        or not (cores_taken := busy_cores())
    ):
        return None
    return Finding(
        "busy-machine",
        f"other processes keep {cores_taken} of {os.cpu_count()} cores busy",
        remedy=f"with --threads {max(1, number - cores_taken)} this is likely faster",
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
