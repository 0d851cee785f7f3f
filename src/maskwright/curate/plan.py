"""What a curation will take: time, disk and memory, from a measured sample, before it begins.

The sample (`look.py`) ran through every part of the work, so that seconds and bytes for a MB of
text are those of this recipe on this text and this machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from maskwright.curate.engine.daft_engine import ROW_BYTES, SHARE, DaftEngine
from maskwright.curate.engine.shards import SHARD_BYTES
from maskwright.curate.engine.tables import BATCH_CHARACTERS
from maskwright.curate.look import Look
from maskwright.curate.parts.recipe import Recipe
from maskwright.curate.parts.step import CorpusStep
from maskwright.errors import ResourceError, StoppedError
from maskwright.memory import free_bytes
from maskwright.report.wording import duration, size
from maskwright.storage.files import DISK, existing_parent

PROCESS_BYTES = 450 << 20  # of memory that a worker process needs, measured
DOCUMENT_BYTES = 56  # and for each character of a document that is more than a batch, measured
SPARE = 1.2


@dataclass(frozen=True)
class Stage:
    """A part of the work: its name, and seconds on all processes together."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What a curation will take.

    Attributes:
        shards: pieces of the work that run at the same time, or one behind the other.
        processes: how many of them at once.
        work_bytes, result_bytes: on the disk, beside the result and in it.
        memory: bytes, all processes together; `query` is the largest that is held at once by a
            query, which is cut into parts where that is more than there is.
    """

    stages: tuple[Stage, ...]
    bytes: int
    shards: int
    processes: int
    work_bytes: int
    result_bytes: int
    memory: int
    query: int

    @property
    def seconds(self) -> float:
        """Of all stages, one behind the other."""
        return sum(stage.seconds for stage in self.stages)


def plan(look: Look, recipe: Recipe, engine: DaftEngine) -> Plan:
    """The plan for the whole corpus."""
    shards = max(1, math.ceil(look.bytes / SHARD_BYTES))
    processes = min(engine.processes, shards)
    megabytes = look.bytes / 1e6
    readers = min(processes, look.files)  # a file is read by one process
    stages = tuple(
        Stage(name, seconds * megabytes / (readers if name == "reading" else processes))
        for name, seconds in look.seconds.items()
    )
    per_document = look.sampled[2] / max(1, look.sampled[1])
    documents = look.bytes / max(1.0, per_document)
    rows = documents * (14 if any(isinstance(s, CorpusStep) for s in recipe.steps.values()) else 1)
    beyond = [max(0, size - BATCH_CHARACTERS) for size in look.largest[-processes:]]
    large = DOCUMENT_BYTES * sum(beyond)
    # One process works in the place of this one.
    held = processes * PROCESS_BYTES + large if processes > 1 else max(PROCESS_BYTES, large)
    query = min(int(rows * ROW_BYTES), int(free_bytes() * SHARE))
    result = look.disk.get("packed", 0.0)
    return Plan(
        stages,
        look.bytes,
        shards,
        processes,
        work_bytes=int(sum(look.disk.values()) * look.bytes),
        result_bytes=int(1.3 * result * look.bytes),
        memory=max(held, query) + PROCESS_BYTES,
        query=query,
    )


def require(made: Plan, out: Path, engine: DaftEngine) -> None:
    """Refuse a plan that this machine cannot carry out.

    Raises:
        StoppedError: the disk is too small.  ResourceError: the memory is.
    """
    needed, place = made.work_bytes + made.result_bytes, existing_parent(out)
    free = DISK.free_bytes(place)
    if needed * SPARE > free:
        raise StoppedError(
            "not enough free space for the curation",
            where=place,
            found=f"{size(free)} free",
            wanted=f"about {size(needed * SPARE)}: {size(made.work_bytes)} of pieces, "
            f"{size(made.result_bytes)} of result",
            do="put --out on a larger disk, or curate in parts",
        )
    memory = free_bytes()
    if engine.runner == "local" and made.memory > memory:
        fits = max(1, int((memory - PROCESS_BYTES) / PROCESS_BYTES))
        raise ResourceError(
            "not enough memory for the curation",
            where="this machine",
            found=f"{size(memory)} free",
            wanted=f"about {size(made.memory)} with {made.processes} processes",
            do=f"--workers {fits}, or a cluster with --engine ray",
        )


def plan_lines(made: Plan) -> list[str]:
    """The plan in lines of a terminal."""
    width = max(len(stage.name) for stage in made.stages)
    lines = [
        f"plan: {size(made.bytes)} of text in {made.shards:,} shards of {size(SHARD_BYTES)}, "
        f"{made.processes} at once"
    ]
    lines += [f"  {stage.name:<{width}}  {duration(stage.seconds)}" for stage in made.stages]
    speed = made.bytes / 1e6 / max(made.seconds, 1e-9) / made.processes
    lines += [
        f"time: about {duration(made.seconds)} ({speed:.1f} MB/s a process)",
        f"disk: {size(made.work_bytes)} of pieces beside the result, {size(made.result_bytes)} of "
        "result",
        f"memory: about {size(made.memory)} ({made.processes} processes; queries up to "
        f"{size(made.query)})",
    ]
    return lines
