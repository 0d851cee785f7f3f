"""A head that was trained above a model which stood still: opened above that model.

The result of such a fine-tuning has no copy of the model, only the head, the model's place and its
hash (`adapters/parts/folder.py`). A model that was moved is found in the folder of the result, as
`base`.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import torch

from maskwright.adapters.parts import folder as folder_of_adapters
from maskwright.adapters.parts.folder import Base
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
from maskwright.checkpoint.pretrained import Pretrained
from maskwright.checkpoint.transfer import carry
from maskwright.errors import CheckpointError, IncompatibleError, UsageError
from maskwright.nn import initialise
from maskwright.objectives.supervised import PROBLEM_TYPES
from maskwright.pretrain import start
from maskwright.storage.one_file import write_file
from maskwright.tasks.parts.find import task_for


def opened(folder: Path) -> Pretrained | None:
    """The model with the head in the adapter's `folder`; None where that is no head alone.

    Raises:
        CheckpointError: the head is damaged, or its base is not there.
        IncompatibleError: what lies there is another model.
    """
    base = folder_of_adapters.base_of(folder) if folder.is_dir() else None
    if base is None:
        return None
    loaded = pretrained.load(_found(base, folder))
    generator = torch.Generator().manual_seed(0)  # every value is replaced by one that is read
    model = initialise.build(base.config, generator)
    carry(loaded.model, model, heads=False)
    folder_of_adapters.load(model, folder).merge()
    return replace(
        loaded, model=model.eval(), config=base.config, about=About(family=loaded.about.family)
    )


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
    told, made = read_task(home), opened(home / ADAPTER)
    if told is None or made is None or made.tokenizer is None:
        raise UsageError(
            "not a head that was saved alone",
            where=folder,
            wanted="what finetune --method probe or head writes",
        )
    if out.exists():
        raise UsageError("the output folder is there already", where=out, do="choose another")
    kind = task_for(told.kind, told.labels, told.settled)
    problem = PROBLEM_TYPES[kind.problem] if kind.head == "sequence" else None
    task = replace(told, attached=False).render()
    pretrained.save(
        made.model,
        made.tokenizer.padding(),
        out / MODEL,
        About(labels=kind.labels, problem_type=problem),
        more={TASK: task.encode()},
    )
    write_file(out / TASK, task.encode())
    finish(out, [])
    return out / MODEL


def _found(base: Base, folder: Path) -> Path:
    """Where the base lies now."""
    there = [place for place in base.places if place.is_dir()]
    same = (place for place in there if start.sha256(place) == base.sha256)
    if (found := next(same, None)) is not None:
        return found
    laid, told, _ = base.places
    remedy = f"put it there again, or link it: ln -s FOLDER {shlex.quote(str(laid))}"
    if there:
        raise IncompatibleError(
            "the model under this head is not the one it was trained on",
            where=there[0],
            found=f"sha256 {start.sha256(there[0])}",
            wanted=f"sha256 {base.sha256}",
            do=remedy,
        )
    raise CheckpointError(
        "the model under this head is not there",
        where=told,
        found="no such folder",
        wanted=f"the model that {folder.parent} was fine-tuned from, sha256 {base.sha256}",
        do=remedy,
    )
