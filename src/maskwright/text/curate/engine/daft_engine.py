"""Run tasks with Daft in local processes or on a Ray cluster, with equal results.

A task is the keyword arguments of a function, as plain JSON values. Its output is the folder `out`,
which is written atomically and reused if it exists. So a task may run twice, tasks may end in any
order, and a cluster that loses a machine repeats only the tasks whose folders are missing.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from maskwright.base import errors
from maskwright.base.catalogue import install_command, require_packages
from maskwright.base.errors import (
    DataError,
    IncompatibleError,
    MaskwrightError,
    ResourceError,
    UsageError,
)
from maskwright.base.storage.manifest import verify
from maskwright.base.version import VERSION

Function = Callable[..., None]
# Called with the name of a phase of the work, and its total and finished units.
Progress = Callable[[str, int, int], None]
Runner = Literal["local", "ray"]
# Tasks with less text run in this process, as worker processes take a second to start.
INLINE_BYTES = 24 << 20
CONNECT_SECONDS = 10
ATTEMPTS = 4  # of tasks that a cluster lost
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
        daft = require_packages("curation", "daft", "pyarrow")
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
        ray = require_packages("--engine ray", "ray", do=install_command("daft[ray]"))
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

    def run(
        self,
        name: str,
        function: Function,
        tasks: Sequence[Mapping[str, Any]],
        size: int,
        progress: Progress,
    ) -> list[Path]:
        """Run the tasks whose output folder `task["out"]` does not exist. Return all folders.

        Args:
            function: a module-level function, or a partial of one, as it is pickled.
            size: bytes of text in all tasks together.

        Raises:
            MaskwrightError: the first error of a task.
            DataError: an output folder of an earlier command is damaged.
            ResourceError: the cluster lost the same tasks in each of `ATTEMPTS` attempts.
        """
        folders = [Path(task["out"]) for task in tasks]
        self._verify_existing(folders)
        done = functools.partial(progress, name, len(tasks))
        last_error = ""
        for _ in range(ATTEMPTS):
            pending = [task for task in tasks if not Path(task["out"]).is_dir()]
            finished = len(tasks) - len(pending)
            done(finished)
            if not pending:
                return folders
            in_process = min(len(pending), self.processes) == 1 or size <= INLINE_BYTES
            if self.runner == "local" and in_process:
                for number, task in enumerate(pending, finished + 1):
                    function(**task)
                    done(number)
                return folders
            try:
                self._send(function, pending, done, finished)
            except MaskwrightError:
                raise
            except Exception as error:
                if self.runner == "local" or not _is_lost(error):
                    raise
                last_error = str(error)
        if unfinished := [folder for folder in folders if not folder.is_dir()]:
            raise ResourceError(
                "tasks were lost again and again",
                where=self.address or "this machine",
                found=f"{len(unfinished)} of {len(tasks)} tasks not done: "
                f"{last_error[:160] or unfinished[0]}",
                wanted="workers that stay, and a folder that this machine and all of them share",
                do="look at the cluster (ray status), and whether all machines reach --out by the "
                "same path; the same command goes on from here",
            )
        return folders

    def _verify_existing(self, folders: Sequence[Path]) -> None:
        """Verify the hashes of folders that exist, each once per process; folders that this
        process writes are not verified. Raise DataError if one is damaged."""
        existing = [path for path in folders if str(path) not in _INTACT and path.is_dir()]
        if existing:
            with ThreadPoolExecutor(min(8, self.processes)) as pool:
                for _ in pool.map(_require_intact, existing):
                    pass
        _INTACT.update(map(str, folders))

    def _send(
        self,
        function: Function,
        tasks: Sequence[Mapping[str, Any]],
        done: Callable[[int], None],
        finished: int,
    ) -> None:
        """Run the tasks in workers. The results are always read to the end, since Daft does not
        survive an abandoned query; after an error the `stop` file makes the other tasks no-ops.

        Args:
            done: called with the number of finished tasks, which begins at `finished`.
        """
        import daft

        stop = Path(tasks[0]["out"]).with_name(f".stop-{os.getpid()}-{os.urandom(6).hex()}")
        frame = daft.from_pydict({"task": [json.dumps(task) for task in tasks]})
        work = functools.partial(run_task, function, VERSION, str(stop))
        if self.runner == "ray":
            # Ray waits forever for the resources of a lost actor; a function runs on any free core.
            worker = _function_worker(work)
            frame = frame.into_partitions(len(tasks))
        else:
            worker = _actor_worker(work, min(self.processes, len(tasks)))
        results = frame.select(worker(frame["task"]).alias("answer")).iter_rows()
        error: MaskwrightError | None = None
        try:
            for number, row in enumerate(results, finished + 1):
                result = json.loads(row["answer"])
                if result and error is None:
                    error_class = getattr(errors, result.pop("class"), IncompatibleError)
                    error = error_class(result.pop("what"), **result)
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


def run_task(function: Function, version: str, stop: str, task: str) -> str:
    """Run a task (JSON). Return "{}", or the class and the five fields of a MaskwrightError.

    Args:
        stop: a file; once it exists, further tasks are skipped.
    """
    try:
        if Path(stop).exists():
            return "{}"
        if version != VERSION:
            raise IncompatibleError(
                "a worker has another version of maskwright",
                found=VERSION,
                wanted=version,
                do="install the same version on every machine of the cluster",
            )
        function(**json.loads(task))
    except MaskwrightError as error:
        fields = {name: getattr(error, name) for name in ("what", "where", "found", "wanted", "do")}
        plain = {name: None if field is None else str(field) for name, field in fields.items()}
        return json.dumps({"class": type(error).__name__, **plain})
    return "{}"


def _require_intact(folder: Path) -> None:
    try:
        verify(folder, error=DataError)
    except DataError as error:
        raise error.advising(
            f"remove the folder {folder}; the same command makes it again"
        ) from error


def _actor_worker(work: Callable[[str], str], processes: int) -> Any:
    """Return a Daft function of tasks with one worker per process, each running one at a time."""
    import daft

    @daft.cls(use_process=True, max_concurrency=processes)
    class Worker:
        def __init__(self, work: Callable[[str], str]) -> None:
            self.work = work

        @daft.method.batch(return_dtype=daft.DataType.string(), batch_size=1)
        def __call__(self, tasks: Any) -> list[str]:
            return [self.work(task) for task in tasks.to_pylist()]

    return Worker(work)


def _function_worker(work: Callable[[str], str]) -> Any:
    """Return a stateless Daft function that runs one task at a time."""
    import daft

    @daft.func.batch(return_dtype=daft.DataType.string(), batch_size=1, use_process=True)
    def run(tasks: Any) -> list[str]:
        return [work(task) for task in tasks.to_pylist()]

    return run


def _require_listening(address: str | None) -> None:
    """Check that `host:port` accepts connections; Ray itself would retry for minutes."""
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
