"""Find the model folder in a path: the newest checkpoint of a run, the model of a fine-tuning."""

from __future__ import annotations

from pathlib import Path

from maskwright.base.errors import CheckpointError, IncompatibleError, StorageError
from maskwright.base.storage import commit
from maskwright.base.terminal import shell_word
from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.fine_tuned import ADAPTER, MODEL, TASK, read_task, require_finished
from maskwright.model.checkpoint.sentence_modules import transformer_folder
from maskwright.model.opening.run_folder import is_run


def newest(run: Path) -> Path:
    """Return the newest valid checkpoint of a run folder.

    Raises:
        CheckpointError: there is none.
    """
    return commit.newest(run / "checkpoints")[0]


def called(path: Path) -> str:
    """Return the display name of the model in `path`: of its run, or of the parent of `model`."""
    path = path.resolve()
    if path.parent.name == "checkpoints":
        return path.parent.parent.name
    return path.parent.name if path.name == "model" else path.name


def has_checkpoint(out: Path) -> bool:
    """Whether the run in `out` has a checkpoint, valid or not."""
    return bool(commit.numbered(out / "checkpoints"))


def learned_beside(folder: Path) -> bool:
    """Whether the trained weights of `folder` are in an adapter next to its model."""
    record = read_task(folder)
    return record is not None and record.attached


def model_folder(folder: Path) -> Path:
    """Return `folder`, or the newest checkpoint in a run, or the model in a fine-tuning.

    Raises:
        CheckpointError: a run without a valid newest checkpoint, or an unfinished fine-tuning.
        IncompatibleError: the trained weights are not in the model, but in an adapter or head.
    """
    require_finished(folder)
    if (folder / TASK).is_file() and not (folder / pretrained.CONFIG).exists():
        if learned_beside(folder) and not (folder / MODEL).exists():
            raise IncompatibleError(
                "this is a head, and no model",
                where=folder,
                wanted="a model with all its weights",
                do="ask it with maskwright predict; or name the model that it stands on, which "
                f"{folder / ADAPTER / 'adapter.json'} says",
            )
        if learned_beside(folder):
            raise IncompatibleError(
                "the adapter is in a folder beside this model",
                where=folder,
                wanted="a model with all its weights",
                do=f"ask it with maskwright predict, or name {folder / MODEL} to go without",
            )
        return folder / MODEL
    has_weights = has_checkpoint(folder) or (folder / pretrained.CONFIG).exists()
    if is_run(folder) and not has_weights:
        raise CheckpointError(
            "the run has no checkpoint yet",
            where=folder,
            do=f"let it come to one: maskwright resume {shell_word(folder)}",
        )
    return _undamaged(folder) if (folder / "checkpoints").is_dir() else transformer_folder(folder)


def _undamaged(run: Path) -> Path:
    """Return the newest checkpoint of a run; file sizes are checked here, hashes on reading.

    Raises:
        CheckpointError: there is none, or the newest is damaged.
    """
    steps = commit.numbered(run / "checkpoints")
    try:
        if steps:
            commit.verify(steps[-1], full=False)
            return steps[-1]
    except (CheckpointError, StorageError):
        pass
    path, _, skipped = commit.newest(run / "checkpoints")
    if not skipped:
        return path
    raise damaged(run, skipped[0], path)


def damaged(
    run: Path, reason: CheckpointError | StorageError, older: Path | None = None
) -> CheckpointError:
    """Return the error for a damaged newest checkpoint. An older one would silently give different
    predictions; only `resume` continues from it, and reports that.

    Args:
        older: the newest valid one; None to search for it.
    """
    newest = commit.numbered(run / "checkpoints")[-1]
    if older is None:
        try:
            older = commit.newest(run / "checkpoints")[0]
        except CheckpointError as error:
            return error
    if older == newest:  # it is not damaged: the error has another reason
        return CheckpointError(
            reason.what,
            where=reason.where,
            found=reason.found,
            wanted=reason.wanted,
            do=reason.do,
        )
    return CheckpointError(
        "the newest checkpoint is damaged",
        where=reason.where,
        found=reason.what,
        wanted=f"a whole one, as {older.name} is",
        do=f"name that one, {shell_word(older)}; go on from it with maskwright resume "
        f"{shell_word(run)}; or remove {shell_word(newest)}",
    )
