"""From a labelled file to a fine-tuned model: what was understood is said before anything is
trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from maskwright.checkpoint import pretrained
from maskwright.errors import UsageError
from maskwright.finetune.run import FULL, finetune, usual_rate
from maskwright.finetune.tune import Settings
from maskwright.pretrain import checkpoints
from maskwright.pretrain.run import said
from maskwright.report import tables
from maskwright.tasks import splits, survey
from maskwright.tasks.prepare import prepare
from maskwright.train.optimizer import AdamW

# What is held back where the user gives one file.
DIVISION = splits.Division(validation=0.1, test=0.1)


def finetune_file(
    model: Path,
    data: Path,
    out: Path,
    *,
    method: str = FULL,
    task: str | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    seeds: int = 3,
    epochs: int = 3,
    batch: int = 32,
    rate: float | None = None,
    length: int | None = None,
    stream: TextIO | None = None,
) -> Path:
    """Read `data`, say what it is, and fine-tune; the model folder is returned.

    Raises:
        UsageError, DataError and others: as `tasks` and `finetune.run` say.
    """
    if seeds < 1:
        raise UsageError("no seed to try", where="--seeds", found=seeds, wanted="1 or more")
    say = said(stream)
    examples = prepare(data, columns=columns or None, kind=task, division=DIVISION)
    for line in examples.task.lines():
        say(line)
    looked = survey.survey(examples)
    for each in looked.tables():
        say("\n" + tables.for_terminal(each))
    for warning in looked.warnings:
        say(f"note: {warning}")
    config = pretrained.described(checkpoints.model_folder(model)).config
    chosen = usual_rate(config, method) if rate is None else rate
    settings = Settings(epochs=epochs, batch=batch, optimizer=AdamW(learning_rate=chosen))
    return finetune(
        model,
        examples,
        out,
        method=method,
        settings=settings,
        seeds=seeds,
        length=length,
        stream=stream,
    )
