"""Run tasks and queries with Daft in local processes or on a Ray cluster, with equal results.

The output of a task is a folder that is written atomically and reused if it exists. So a task may
run twice, tasks may end in any order, and a cluster that loses a machine repeats only the tasks
whose folders are missing. Queries group narrow tables of numbers only; their results are sorted.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import (
    DataError,
    IncompatibleError,
    MaskwrightError,
    ResourceError,
    UsageError,
)
from maskwright.base.memory import free_bytes
from maskwright.base.packages import install, require
from maskwright.base.storage.manifest import verify
from maskwright.base.version import VERSION
from maskwright.text.curate.engine.tables import read_columns
from maskwright.text.curate.step import DOCUMENT

if TYPE_CHECKING:
    import pyarrow as pa


def run_task(
    function: Callable[[dict[str, Any]], dict[str, Any]], version: str, stop: str, task: str
) -> str:
    """Run a task. Return its result as JSON, or {"error": the five fields of a MaskwrightError}.

    Args:
        task: the argument of `function`, as JSON.
        stop: a file; once it exists, further tasks are skipped and return "{}".
    """
    if Path(stop).exists():
        return "{}"
    try:
        if version != VERSION:
            raise IncompatibleError(
                "a worker has another version of maskwright",
                found=VERSION,
                wanted=version,
                do="install the same version on every machine of the cluster",
            )
        return json.dumps(function(json.loads(task)))
    except MaskwrightError as error:
        fields = {name: getattr(error, name) for name in ("what", "where", "found", "wanted", "do")}
        plain = {name: None if field is None else str(field) for name, field in fields.items()}
        return json.dumps({"error": {**plain, "sort": type(error).__name__}})


FEW_ROWS = 1 << 24  # most rows that are grouped in memory: 16 bytes a row and column
ROW_BITS = 32
NARROW = 1 << 15  # 16-bit integers sort by counting


def repeated_rows(
    files: Sequence[tuple[int, Path]], keys: Sequence[str], columns: Sequence[str]
) -> pa.Table:
    """`Tables.repeated` in memory; `files` holds (number of the shard, Parquet file)."""
    output_columns = [*keys, *columns]
    arrays = _load(files, output_columns)
    by_key, is_first = _sort_groups([arrays[name] for name in keys])
    counts = np.diff(np.append(np.flatnonzero(is_first), len(by_key)))
    repeated = np.sort(by_key[np.repeat(counts > 1, counts)])
    output = [arrays[name][repeated] for name in output_columns]
    order = np.lexsort(output[::-1]) if len(repeated) else repeated
    return _table(output_columns, [values[order] for values in output])


def summed_rows(
    files: Sequence[tuple[int, Path]], keys: Sequence[str], sums: Sequence[str], least: int
) -> pa.Table:
    """`Tables.totals` in memory; `files` holds (number of the shard, Parquet file)."""
    arrays = _load(files, [*keys, *sums])
    order, is_first = _sort_groups([arrays[name] for name in keys])
    group_begins = np.flatnonzero(is_first)
    totals = [
        np.add.reduceat(arrays[name][order], group_begins) if len(group_begins) else order
        for name in sums
    ]
    enough = totals[0] >= least
    key_columns = [arrays[name][order[group_begins[enough]]] for name in keys]
    return _table([*keys, *sums], [*key_columns, *(values[enough] for values in totals)])


def _load(files: Sequence[tuple[int, Path]], columns: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return each column, concatenated over all tables; DOCUMENT is computed from `row`."""
    stored_columns = [name for name in columns if name != DOCUMENT]
    arrays: dict[str, list[NDArray[Any]]] = {name: [] for name in columns}
    for number, path in files:
        columns_read = ["row", *stored_columns] if DOCUMENT in columns else stored_columns
        table = read_columns(path, columns_read)
        for name in stored_columns:
            arrays[name].append(table.column(name).to_numpy())
        if DOCUMENT in columns:
            arrays[DOCUMENT].append(table.column("row").to_numpy() + (number << ROW_BITS))
    return {name: np.concatenate(values) for name, values in arrays.items()}


def _sort_groups(keys: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Sort rows by `keys`, the first key being the primary one; the sort is not stable.

    Returns:
        (R,) the indices of the rows in sorted order, and (R,) whether the row at each position of
        this order is the first of a group with equal keys.
    """
    order = np.argsort(keys[-1])
    for values in keys[-2::-1]:
        ordered = values[order]
        if len(ordered) and int(ordered.max()) - int(ordered.min()) < NARROW:
            ordered = (ordered - ordered.min()).astype(np.int16)
        order = order[np.argsort(ordered, kind="stable")]
    is_first = np.zeros(len(order), np.bool_)
    is_first[:1] = True
    for values in keys:
        ordered = values[order]
        is_first[1:] |= ordered[1:] != ordered[:-1]
    return order, is_first


def _table(names: Sequence[str], columns: Sequence[NDArray[Any]]) -> pa.Table:
    import pyarrow as pa

    return pa.table(dict(zip(names, map(pa.array, columns), strict=True)))


Function = Callable[[dict[str, Any]], dict[str, Any]]
Done = Callable[[int], None]
Runner = Literal["local", "ray"]
# Tasks with less text run in this process, as worker processes take a second to start.
INLINE_BYTES = 24 << 20
CONNECT_SECONDS = 10
ATTEMPTS = 4  # of tasks that a cluster lost
ROW_BYTES = 120  # memory of a query for each row, measured
SHARE = 0.3  # of the free memory that a query may take
_INTACT: set[str] = set()  # folders that this process has verified, or writes itself
_STARTED: list[Runner] = []  # Daft has one runner in a process


@dataclass(frozen=True)
class DaftEngine:
    """The backend that runs tasks and queries.

    Attributes:
        runner: `local` for processes of this machine, `ray` for a cluster.
        address: the address of the cluster; None starts one on this machine.
        workers: the number of processes; None: the number of cores of the machine or cluster.

    Raises:
        UsageError: fewer than one worker, or an address without a cluster.
    """

    runner: Runner = "local"
    address: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise UsageError(
                "no process", where="--workers", found=self.workers, wanted="1 or more"
            )
        if self.address is not None and self.runner != "ray":
            raise UsageError(
                "an address without a cluster",
                where="--address",
                found=self.address,
                do="add --engine ray, or leave it out",
            )

    def start(self) -> None:
        """Import Daft and connect to the cluster.

        Raises:
            UsageError: Daft or Ray is not installed, or another engine was started before.
            ResourceError: there is no cluster at the address.
        """
        os.environ["DAFT_PROGRESS_BAR"] = "0"
        daft = require("curation", "daft", "pyarrow")
        if _STARTED and self.runner not in _STARTED:
            raise UsageError(
                "another engine was started in this process",
                found=_STARTED[0],
                wanted="one engine in a process",
                do="start a new process for the other engine",
            )
        if self.runner == "ray":
            self._start_ray()
            daft.set_runner_ray(noop_if_initialized=True)
        elif not _STARTED:
            daft.set_runner_native()
        _STARTED[:] = [self.runner]

    def _start_ray(self) -> None:
        ray = require("--engine ray", "ray", do=install("daft[ray]"))
        if ray.is_initialized():
            return
        try:
            _require_listening(self.address)
            ray.init(
                address=self.address,
                num_cpus=None if self.address else self.workers,
                log_to_driver=False,
                logging_level="ERROR",
                include_dashboard=None if self.address else False,
            )
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            raise ResourceError(
                "no Ray cluster answers",
                where=self.address or "this machine",
                found=str(error).strip().split("\n")[0][:200],
                wanted="a running cluster that this machine reaches",
                do="start it (ray start --head), correct --address, or leave out --engine ray",
            ) from error

    @property
    def processes(self) -> int:
        """The number of tasks that run at the same time."""
        if self.workers:
            return self.workers
        if self.runner == "ray":
            import ray

            return max(1, int(ray.cluster_resources().get("CPU", 1)))
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

    # -------------------------------------------------------------------------- tasks
    def run(
        self, function: Function, tasks: Sequence[Mapping[str, Any]], size: int, done: Done
    ) -> None:
        """Run the tasks whose output folder `task["out"]` does not exist.

        Args:
            function: a module-level function, or a partial of one, as it is pickled.
            size: bytes of text in all tasks together.
            done: called with the number of finished tasks.

        Raises:
            MaskwrightError: the first error of a task.
            DataError: an output folder of an earlier command is damaged.
            ResourceError: the cluster lost the same tasks in each of `ATTEMPTS` attempts.
        """
        self._verify_existing([Path(task["out"]) for task in tasks])
        last_error = ""
        for _ in range(ATTEMPTS):
            pending = [task for task in tasks if not Path(task["out"]).is_dir()]
            finished = len(tasks) - len(pending)
            done(finished)
            if not pending:
                return
            in_process = min(len(pending), self.processes) == 1 or size <= INLINE_BYTES
            if self.runner == "local" and in_process:
                for number, task in enumerate(pending):
                    function(dict(task))
                    done(finished + number + 1)
                return
            try:
                self._send(function, pending, lambda n, b=finished: done(b + n))  # type: ignore[misc]
            except MaskwrightError:
                raise
            except Exception as error:
                if self.runner == "local" or not _is_lost(error):
                    raise
                last_error = str(error)
        if unfinished := [task["out"] for task in tasks if not Path(task["out"]).is_dir()]:
            raise ResourceError(
                "tasks were lost again and again",
                where=self.address or "this machine",
                found=f"{len(unfinished)} of {len(tasks)} tasks not done: "
                f"{last_error[:160] or unfinished[0]}",
                wanted="workers that stay, and a folder that this machine and all of them share",
                do="look at the cluster (ray status), and whether all machines reach --out by the "
                "same path; the same command goes on from here",
            )

    def _verify_existing(self, folders: Sequence[Path]) -> None:
        """Verify the hashes of folders that exist, each once per process; folders that this
        process writes are not verified. Raise DataError if one is damaged."""
        existing = [path for path in folders if str(path) not in _INTACT and path.is_dir()]
        if existing:
            with ThreadPoolExecutor(min(8, self.processes)) as pool:
                for _ in pool.map(_require_intact, existing):
                    pass
        _INTACT.update(map(str, folders))

    def _send(self, function: Function, tasks: Sequence[Mapping[str, Any]], done: Done) -> None:
        """Run the tasks in workers. The results are always read to the end, since Daft does not
        survive an abandoned query; after an error the `stop` file makes the other tasks no-ops.

        Raises:
            MaskwrightError: the first error of a task.
        """
        import daft

        stop = Path(tasks[0]["out"]).with_name(f".stop-{os.getpid()}-{os.urandom(6).hex()}")
        frame = daft.from_pydict({"task": [json.dumps(task) for task in tasks]})
        if self.runner == "ray":
            # Ray waits forever for the resources of a lost actor; a function runs on any free core.
            worker = _function_worker(function, VERSION, str(stop))
            frame = frame.into_partitions(len(tasks))
        else:
            worker = _actor_worker(min(self.processes, len(tasks)))(function, VERSION, str(stop))
        results = frame.select(worker(frame["task"]).alias("answer")).iter_rows()
        error: MaskwrightError | None = None
        try:
            for number, row in enumerate(results, start=1):
                result = json.loads(row["answer"])
                if "error" in result and error is None:
                    error = _task_error(result["error"])
                    stop.touch()
                elif error is None:
                    done(number)
        except BaseException:
            with contextlib.suppress(Exception):
                stop.touch()
                for _ in results:
                    pass
            raise
        finally:
            stop.unlink(missing_ok=True)
        if error is not None:
            raise error

    # -------------------------------------------------------------------------- queries
    def repeated(
        self, files: Sequence[tuple[int, Path]], keys: Sequence[str], columns: Sequence[str]
    ) -> pa.Table:
        """`Tables.repeated`; `files` holds (number of the shard, Parquet file)."""
        if _count_rows(files) <= FEW_ROWS:
            return repeated_rows(files, keys, columns)
        import daft
        import pyarrow as pa

        output_columns = [*keys, *columns]
        tables = []
        for frame in self._partitions(files, keys, output_columns):
            counts = frame.groupby(*keys).agg(
                daft.col(output_columns[0]).count("all").alias("_count")
            )
            repeated = counts.where(daft.col("_count") >= daft.lit(2)).select(*keys)
            tables.append(frame.join(repeated, on=list(keys)).select(*output_columns).to_arrow())
        return _sorted(pa.concat_tables(tables), output_columns)

    def totals(
        self,
        files: Sequence[tuple[int, Path]],
        keys: Sequence[str],
        sums: Sequence[str],
        least: int,
    ) -> pa.Table:
        """`Tables.totals`; `files` holds (number of the shard, Parquet file)."""
        if _count_rows(files) <= FEW_ROWS:
            return summed_rows(files, keys, sums, least)
        import daft
        import pyarrow as pa

        tables = []
        for frame in self._partitions(files, keys, [*keys, *sums]):
            sums_of = frame.groupby(*keys).agg(*(daft.col(name).sum().alias(name) for name in sums))
            tables.append(
                sums_of.where(daft.col(sums[0]) >= daft.lit(least)).select(*keys, *sums).to_arrow()
            )
        return _sorted(pa.concat_tables(tables), keys)

    def _partitions(
        self, files: Sequence[tuple[int, Path]], keys: Sequence[str], columns: Sequence[str]
    ) -> Iterator[Any]:
        """Yield the rows as data frames that fit into memory, partitioned by a hash of `keys`."""
        import daft

        row_count = _count_rows(files)
        memory = free_bytes() * SHARE if self.runner == "local" else math.inf
        part_count = max(1, math.ceil(row_count * ROW_BYTES / memory))
        paths = [str(path) for _, path in files]
        frame = daft.read_parquet(paths, file_path_column="_path")
        if DOCUMENT in columns:
            shard_numbers = {"_path": paths, "_shard": [number << 32 for number, _ in files]}
            frame = frame.with_column("_path", daft.col("_path").replace("file://", ""))
            frame = frame.join(daft.from_pydict(shard_numbers), on="_path")
            frame = frame.with_column(DOCUMENT, daft.col("_shard") + daft.col("row"))
        frame = frame.select(*columns)
        for part_number in range(part_count):
            if part_count > 1:
                key_hash = daft.col(keys[0]).hash()
                for key in keys[1:]:
                    key_hash = daft.col(key).hash(seed=key_hash)
                yield frame.where(key_hash % daft.lit(part_count) == daft.lit(part_number))
            else:
                yield frame


def _require_intact(folder: Path) -> None:
    try:
        verify(folder, error=DataError)
    except DataError as error:
        raise error.advising(
            f"remove the folder {folder}; the same command makes it again"
        ) from error


def _count_rows(files: Sequence[tuple[int, Path]]) -> int:
    """Return the number of rows of all tables."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for _, path in files)


def _sorted(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in columns]).combine_chunks()


def _actor_worker(processes: int) -> Any:
    """Return a Daft class with one instance per process, each running one task at a time."""
    import daft

    @daft.cls(use_process=True, max_concurrency=processes)
    class Worker:
        def __init__(self, function: Function, version: str, stop: str) -> None:
            self.function, self.version, self.stop = function, version, stop

        @daft.method.batch(return_dtype=daft.DataType.string(), batch_size=1)
        def __call__(self, tasks: Any) -> list[str]:
            return [
                run_task(self.function, self.version, self.stop, task) for task in tasks.to_pylist()
            ]

    return Worker


def _function_worker(function: Function, version: str, stop: str) -> Any:
    """Return a stateless Daft function that runs one task at a time."""
    import daft

    @daft.func.batch(return_dtype=daft.DataType.string(), batch_size=1, use_process=True)
    def work(tasks: Any) -> list[str]:
        return [run_task(function, version, stop, task) for task in tasks.to_pylist()]

    return work


def _require_listening(address: str | None) -> None:
    """Check that `host:port` accepts connections; Ray itself would retry for minutes.

    Raises:
        OSError: it does not.
    """
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def _is_lost(error: BaseException) -> bool:
    """Whether an error reports a lost machine or process, rather than a fault of the task."""
    words = (
        "died lost unavailable disconnected ActorDied WorkerCrashed killed NodeDied ObjectLost "
        "OwnerDied RaySystemError Connection"
    )
    text = f"{type(error).__name__} {error}"
    return any(word in text for word in words.split())


def _task_error(plain: Mapping[str, Any]) -> MaskwrightError:
    """Rebuild the error that `run_task` serialised."""
    import maskwright.base.errors as errors

    error_class = getattr(errors, plain["sort"], IncompatibleError)
    fields = {name: plain.get(name) for name in ("where", "found", "wanted", "do")}
    error: MaskwrightError = error_class(plain["what"], **fields)
    return error
