"""The state of a training run, and the processes that share it.

The state is its counters, the flag that stops it, and the error of a step that is not finite.
Order, masks and dropout are functions of keys, so no state of generators or loaders is saved.
SIGTERM, SIGINT and SIGHUP stop a run: it finishes its step, saves a checkpoint, and exits. A second
signal ends the process at once; the last checkpoint is complete in any case, because only finished
folders get their names.

Data-parallel training is one all-reduce of the flat gradient per optimizer step, with PyTorch's
process groups, started by `torchrun`; only this module uses ranks. Counts, losses and flags are
reduced in the same way, so that all processes take the same decisions. A single process uses the
same functions.
"""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from maskwright.base.budget import BudgetUse
from maskwright.base.errors import CheckpointError, ConfigError, MaskwrightError, ResourceError
from maskwright.learn.train.optimizers import Parameters

# ------------------------------------------------------------------------------ state
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)
NAMED = 20  # parameters in the report on a step, at most
SCALE_BITS, SCALE_STEPS = 16, 2000  # of float16, as of `torch.amp.GradScaler`


@dataclass
class TrainState:
    """The counters that a resumed run needs besides weights and moments.

    `seconds` is training time over all sessions of the run; `samples` counts rows taken from the
    loader; `skipped` counts the last steps in a row that changed nothing, as their loss was not
    finite. In float16, whose numbers end at 6e-8 and 65,504, the loss is multiplied by
    2**`scale_bits` before the backward pass, for the last `scale_steps` steps (Micikevicius et al.
    2018, arXiv:1710.03740, 3.2).

    `best_loss` is the lowest held-out loss, at `best_step`; `stalled` counts the last evaluations
    in a row that did not improve on `loss_to_beat`. The process that evaluates knows them."""

    step: int = 0
    samples: int = 0
    tokens: int = 0
    targets: int = 0
    skipped: int = 0
    seconds: float = 0.0
    scale_bits: int = 0
    scale_steps: int = 0
    best_step: int = 0
    best_loss: float = math.inf
    stalled: int = 0
    loss_to_beat: float = math.inf

    def record_evaluation(self, loss: float, min_improvement: float) -> None:
        """Count the held-out loss of this step, which improves if it falls by more than
        `min_improvement` below the last that did."""
        if loss < self.best_loss:
            self.best_loss, self.best_step = loss, self.step
        self.stalled += 1
        if loss < self.loss_to_beat - min_improvement:
            self.loss_to_beat, self.stalled = loss, 0

    def adapt_scale(self, is_finite: bool) -> None:
        """Halve the factor of the loss after an overflow, double it after many steps without."""
        self.scale_steps = self.scale_steps + 1 if is_finite else 0
        if not is_finite:
            self.scale_bits = max(1, self.scale_bits - 1)
        elif self.scale_steps == SCALE_STEPS:
            self.scale_bits, self.scale_steps = self.scale_bits + 1, 0

    @property
    def counted(self) -> BudgetUse:
        """The counters that a `Budget` uses."""
        return {"steps": self.step, "tokens": self.tokens, "seconds": self.seconds}

    def to_json(self) -> dict[str, Any]:
        """Return the counters as JSON values, exact fractions as hexadecimal strings."""
        return {n: c.hex() if isinstance(c, float) else c for n, c in asdict(self).items()}

    @classmethod
    def from_json(cls, plain: Any, where: str) -> TrainState:
        """Return the state from the output of `to_json`.

        Raises:
            CheckpointError: a counter is missing, unknown or invalid.
        """
        usual = asdict(cls())
        try:
            if plain.keys() != usual.keys():
                raise ValueError
            types: dict[str, Any] = {
                n: float.fromhex if isinstance(usual[n], float) else int for n in plain
            }
            return cls(**{name: types[name](count) for name, count in plain.items()})
        except (AttributeError, TypeError, ValueError) as error:
            raise CheckpointError(
                "not a training state",
                where=where,
                found=plain,
                wanted=", ".join(sorted(usual)),
                do="resume from an older checkpoint: remove this one",
            ) from error


class StopFlag:
    """Raised by a signal or a hook, and read once per step by every process."""

    raised = False
    signal: int | None = None

    @property
    def exit_code(self) -> int:
        """The exit code after a stop: 128 + the signal's number; SIGTERM's if the signal reached
        another process of the run."""
        return 128 + (self.signal or signal.SIGTERM)


@contextmanager
def listening() -> Iterator[StopFlag]:
    """Context in which signals raise the flag; afterwards the former handlers are restored.

    Only the main thread can handle signals; in other threads the flag is never raised.
    """
    flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if flag.raised:
            os._exit(128 + number)
        flag.raised = True
        flag.signal = number

    before = {s: signal.signal(s, handle) for s in SIGNALS}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class DivergedError(MaskwrightError):
    """Loss or gradient became infinite or NaN; the weights were not changed.

    Attributes:
        report: facts about the step, as JSON values.
    """

    kind = "E-DIVERGED"
    exit_code = 70
    report: dict[str, Any]


def diverged(
    state: TrainState,
    loss: float,
    part_losses: Mapping[str, float],
    norm: float,
    microbatches: Mapping[int, torch.Tensor],
    parameters: Parameters,
) -> DivergedError:
    """Return the error for the step after `state`.

    Args:
        norm: of the gradient.
        microbatches: the loss of each microbatch of this process, by number.
    """
    step, skipped = state.step + 1, state.skipped
    error = DivergedError(
        "the loss or its gradient is no longer a finite number",
        where=f"step {step}" + (f", after {skipped} others in a row" if skipped else ""),
        found=f"loss {loss}, parts {dict(part_losses)}, gradient norm {norm}",
        wanted="finite numbers",
        do="lower the learning rate or lengthen its warm-up",
    )
    error.report = {
        "step": step,
        "skipped_before": skipped,
        "loss": _plain(loss),
        "parts": {name: _plain(value) for name, value in part_losses.items()},
        "gradient_norm": _plain(norm),
        "microbatches": {str(n): _plain(float(v)) for n, v in microbatches.items()},
        "gradients_not_finite": _nonfinite_names(parameters, parameters.gradient),
        "weights_not_finite": _nonfinite_names(parameters, parameters.masters),
    }
    return error


def _nonfinite_names(parameters: Parameters, vector: torch.Tensor) -> list[str]:
    """Return the names of the first parameters with values in `vector` that are not finite."""
    names = (n for n in parameters.named if not parameters.view(vector, n).isfinite().all())
    return [name for name, _ in zip(names, range(NAMED), strict=False)]


def _plain(value: float) -> float | str:
    """Return NaN and infinity as text, since JSON does not support them."""
    return value if math.isfinite(value) else str(value)


# ------------------------------------------------------------------------------ processes
LONGEST_WAIT = 30  # days


@dataclass(frozen=True)
class Processes:
    """The rank of this process, and the number of processes."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """True in the one process that writes files."""
        return self.rank == 0

    def share(self, microbatches: int) -> range:
        """Return the indices of the microbatches that this process computes.

        Raises:
            ConfigError: they cannot be divided evenly among the processes.
        """
        if microbatches % self.world:
            raise ConfigError(
                "the microbatches cannot be divided evenly among the processes",
                where="training.microbatches",
                found=microbatches,
                wanted=f"a multiple of the {self.world} processes",
                do=f"--set training.microbatches={self.world}, where it divides the batch",
            )
        return range(self.rank, microbatches, self.world)

    def sum(self, vector: Tensor) -> None:
        """Sum `vector` over all processes, in place."""
        if self.world > 1:
            dist.all_reduce(vector)

    def totals(self, numbers: list[float]) -> list[float]:
        """Return the sums of some numbers over all processes, in float64."""
        if self.world == 1:
            return numbers
        vector = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(vector)
        return vector.tolist()

    def wait(self) -> None:
        """Wait until every process has called this."""
        if self.world > 1:
            dist.barrier()


def join_processes() -> Processes:
    """Join the processes that `torchrun` started; a single process if it started none.

    Raises:
        ResourceError: there are GPUs, but fewer than processes on this machine.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Processes()
    if not dist.is_initialized():
        backend = "gloo"
        if torch.cuda.is_available():  # the backend depends on a tensor's device
            local_rank, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
            if local_rank >= count:
                raise ResourceError(
                    "there is no GPU for this process",
                    where="torchrun --nproc-per-node",
                    found=f"process {local_rank + 1} of this machine",
                    wanted=f"at most {count}, one for each GPU",
                    do=f"use --nproc-per-node {count}, or CUDA_VISIBLE_DEVICES= for processors",
                )
            torch.cuda.set_device(local_rank)
            backend = "cpu:gloo,cuda:nccl"
        # The first process prepares the text and evaluates while the others wait.
        dist.init_process_group(backend, timeout=timedelta(days=LONGEST_WAIT))
    return Processes(dist.get_rank(), dist.get_world_size())


def leave_processes() -> None:
    """Close the process group, if one is open."""
    if dist.is_initialized():
        dist.destroy_process_group()
