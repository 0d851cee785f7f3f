"""Data-parallel training; the only module that uses ranks.

It is one all-reduce of the flat gradient per optimizer step, with PyTorch's process groups, started
by `torchrun`. Counts, losses and flags are reduced in the same way, so that all processes take the
same decisions. A single process uses the same functions.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor
from torch import distributed as dist

from maskwright.base.errors import ConfigError

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


def join() -> Processes:
    """Join the processes that `torchrun` started; a single process if it started none."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Processes()
    if not dist.is_initialized():
        backend = "gloo"
        if torch.cuda.is_available():  # the backend depends on a tensor's device
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            backend = "cpu:gloo,cuda:nccl"
        # The first process prepares the text and evaluates while the others wait.
        dist.init_process_group(backend, timeout=timedelta(days=LONGEST_WAIT))
    return Processes(dist.get_rank(), dist.get_world_size())


def leave() -> None:
    """Close the process group, if one is open."""
    if dist.is_initialized():
        dist.destroy_process_group()
