"""A result of which only the head was saved, written as one with all weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from maskwright.checkpoint import pretrained
from maskwright.checkpoint.fine_tuned import (
    ADAPTER,
    MODEL,
    TASK,
    finish,
    read_task,
    require_finished,
)
from maskwright.checkpoint.layout import About
from maskwright.errors import UsageError
from maskwright.models.head_alone import opened
from maskwright.objectives.supervised import PROBLEM_TYPES
from maskwright.storage.commit import require_new
from maskwright.storage.one_file import write_file
from maskwright.tasks.parts.find import task_for


def write_whole(folder: Path | str, out: Path | str) -> Path:
    """Write the result in `folder`, of which only the head was saved, as one with all weights into
    the new folder `out`; the model folder is returned. Other programs read it where the head is
    one of the model's family (`--method head`).

    Raises:
        UsageError: it is no such result, or `out` is there.
        CheckpointError, IncompatibleError: as `opened`.
        OutputError, StoppedError, StorageError: the place cannot be written, is full, or fails.
    """
    folder, out = Path(folder), Path(out)
    home = require_finished(folder) or folder
    record, made = read_task(home), opened(home / ADAPTER)
    if record is None or made is None or made.tokenizer is None:
        raise UsageError(
            "not a head that was saved alone",
            where=folder,
            wanted="what finetune --method probe or head writes",
        )
    require_new(out, error=UsageError, what="the output folder is there already")
    task_type = task_for(record.kind, record.labels, record.settled)
    problem = PROBLEM_TYPES[task_type.problem] if task_type.head == "sequence" else None
    task = replace(record, attached=False).render()
    pretrained.save(
        made.model,
        made.tokenizer.padding(),
        out / MODEL,
        About(labels=task_type.labels, problem_type=problem),
        more={TASK: task.encode()},
    )
    write_file(out / TASK, task.encode())
    finish(out, [])
    return out / MODEL
