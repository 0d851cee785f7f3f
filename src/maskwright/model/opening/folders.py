"""The model folder of a path: the newest checkpoint of a run, the model of a fine-tuning."""

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
    """The newest valid checkpoint of a run folder.

    Raises:
        CheckpointError: there is none.
    """
    return commit.newest(run / "checkpoints")[0]


def called(path: Path) -> str:
    """The display name of the model in `path`: its run, or the folder around a `model`."""
    path = path.resolve()
    if path.parent.name == "checkpoints":
        return path.parent.parent.name
    return path.parent.name if path.name == "model" else path.name


def has_checkpoint(out: Path) -> bool:
    """Whether the run in `out` has a checkpoint, valid or not."""
    return bool(commit.numbered(out / "checkpoints"))


def learned_beside(folder: Path) -> bool:
    """Whether a task's weights are in an adapter beside the model of `folder`."""
    record = read_task(folder)
    return record is not None and record.attached


def model_folder(folder: Path) -> Path:
    """`folder`, the newest valid checkpoint of a run, or the model of a fine-tuning.

    Raises:
        CheckpointError: it is a run, and it has no checkpoint yet, or none that is valid; or a
            fine-tuning that is not finished.
        IncompatibleError: it was fine-tuned, and its model alone would be another one.
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
    """The newest checkpoint of a run, its file sizes checked; hashes are checked on reading.

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
    """The error that the newest checkpoint of a run is damaged. An older one would silently give
    other answers; only `resume` goes on from it, and says so.

    Args:
        older: the newest one that is whole; None: it is looked for.
    """
    newest = commit.numbered(run / "checkpoints")[-1]
    if older is None:
        try:
            older = commit.newest(run / "checkpoints")[0]
        except CheckpointError as error:
            return error
    if older == newest:  # what is wrong with it is no damage
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
