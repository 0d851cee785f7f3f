"""Records of trainings for programs that follow them: callbacks, and TensorBoard.

Whatever a training writes to `metrics.jsonl` and `timings.jsonl`, and every step and epoch of a
fine-tuning, is given to the callbacks of `on_record` first (docs/metrics.md lists the keys).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from maskwright.base.catalogue import require_packages
from maskwright.base.errors import UsageError, near

Record = Mapping[str, Any]
RecordCallback = Callable[[Path, Record], None]
TENSORBOARD = "tensorboard"
_callbacks: list[RecordCallback] = []


@contextmanager
def on_record(callback: RecordCallback) -> Iterator[None]:
    """Context in which `callback(folder, record)` is called with every record of a training in this
    process: `folder` is that of the run or result. An exception of the callback ends the training.
    """
    _callbacks.append(callback)
    try:
        yield
    finally:
        _callbacks.remove(callback)


def announce(folder: Path, record: Record) -> None:
    """Give a record to all callbacks."""
    for callback in _callbacks:
        callback(folder, record)


@contextmanager
def logging_to(name: str | None) -> Iterator[None]:
    """Context in which records go to a program of the name, too; None: to none.

    Raises:
        UsageError: no such program is known, or its package is not installed.
    """
    if name is None:
        yield
        return
    if name != TENSORBOARD:
        raise UsageError(
            "no such program", where="--log", found=repr(name), wanted=near(name, (TENSORBOARD,))
        )
    require_packages("--log tensorboard", "tensorboard", where="--log")
    from torch.utils.tensorboard import SummaryWriter

    writers: dict[Path, Any] = {}

    def write(folder: Path, record: Record) -> None:
        if folder not in writers:
            writers[folder] = SummaryWriter(str(folder / TENSORBOARD))
        for tag, value in scalars(record).items():
            writers[folder].add_scalar(tag, value, int(record.get("step", 0)))

    try:
        with on_record(write):
            yield
    finally:
        for writer in writers.values():
            writer.close()


def scalars(record: Record) -> dict[str, float]:
    """Return the numbers of a record by their tags, such as `train/loss`."""
    prefix = "/".join(str(record[name]) for name in ("name", "kind") if name in record)
    numbers: dict[str, float] = {}
    for name, value in record.items():
        nested = value if isinstance(value, Mapping) else {"": value}
        for inner, number in nested.items():
            if isinstance(number, int | float) and not isinstance(number, bool) and name != "step":
                numbers["/".join(part for part in (prefix, name, inner) if part)] = float(number)
    return numbers
