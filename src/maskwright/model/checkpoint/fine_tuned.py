"""The folder of a fine-tuning: the record of its task, and whether it is finished.

    out/
      adapter/  model/   each committed separately; only the adapter if just a head was trained
      task.json          the input columns and the names of labels; a copy is in model/
      MANIFEST.json      written last: hashes of the files above and of both folders' manifests

Without its adapter the model would predict as if it had not been trained, so a folder without the
last manifest is not opened.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskwright.base.config import from_plain, require, to_plain
from maskwright.base.errors import CheckpointError, ConfigError, MaskwrightError, UsageError
from maskwright.base.storage.files import write_file
from maskwright.base.storage.manifest import FORMAT as MANIFEST_FORMAT
from maskwright.base.storage.manifest import (
    MANIFEST,
    Manifest,
    hash_file,
    read_manifest,
    require_as_saved,
)
from maskwright.base.storage.strict_json import parse_object
from maskwright.base.terminal import shell_word

TASK, MODEL, ADAPTER, UNFINISHED = "task.json", "model", "adapter", "unfinished"
BAG_OF_WORDS = "maskwright-bag-of-words"  # model_type of a model without a network
BAG_TENSORS = "bag_of_words.safetensors"
FORMAT = 2
ABOUT = {"kind": "fine-tuning"}  # of the last manifest
LARGEST = 16 << 20  # bytes of task.json
LONGEST = 1 << 24  # tokens of an example
PARTS = (TASK, f"{MODEL}/{MANIFEST}", f"{ADAPTER}/{MANIFEST}")
COPY = "take a whole copy of the folder, or fine-tune again into another one"


@dataclass(frozen=True, kw_only=True)
class TaskRecord:
    """The content of `task.json`.

    Attributes:
        format: the version of the format.
        kind: the type of task.
        columns: role -> names of the input columns.
        targets: role -> names of the columns with the targets in the training data.
        length: maximum number of tokens of an example; None for no maximum.
        long: treatment of longer texts.
        labels: names of the classes in the order of the head's outputs.
        values: numbers that represented the labels in the data; None if the names did.
        separator: string between several labels in a cell; None for single labels.
        settled: settings chosen on validation data.
        attached: whether the trained weights are in the folder `adapter/` next to the model.
    """

    format: int = FORMAT
    kind: str
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    length: int | None = None
    long: str = "head"
    labels: tuple[str, ...]
    values: tuple[int, ...] | None = None
    separator: str | None = None
    settled: dict[str, Any]
    attached: bool = False

    def __post_init__(self) -> None:
        require("format", self.format, FORMAT, FORMAT)
        if self.length is not None:
            require("length", self.length, 1, LONGEST)
        if len(set(self.labels)) != len(self.labels):
            raise ConfigError(
                "two labels have the same name",
                where="labels",
                found=self.labels,
                do="give each label a name of its own",
            )
        if self.values is not None and (
            len(self.values) != len(self.labels) or len(set(self.values)) != len(self.values)
        ):
            raise ConfigError(
                "the values of the labels do not match the labels",
                where="values",
                found=self.values,
                wanted=f"{len(self.labels)} different numbers",
            )
        for name in ("columns", "targets"):
            if empty := [role for role, names in getattr(self, name).items() if not names]:
                raise ConfigError(
                    "a role has no column",
                    where=f"{name}.{empty[0]}",
                    do="name a column for each role",
                )

    def render(self) -> str:
        """Return the text of the file."""
        return json.dumps(to_plain(self), indent=2) + "\n"


def read_task(folder: Path) -> TaskRecord | None:
    """Read the `task.json` of `folder`; None if there is none.

    Raises:
        CheckpointError: invalid JSON, a field that is missing, unknown or of the wrong type, or not
            the file that was saved.
    """
    path = folder / TASK
    if not path.is_file():
        if (folder / MANIFEST).is_file() and TASK in read_manifest(folder).files:
            raise _unlike(path, f"not complete: {TASK} is missing")
        return None
    data = path.read_bytes()
    require_as_saved(path, data)
    plain = parse_object(data, path, error=CheckpointError, largest=LARGEST)
    try:
        return from_plain(TaskRecord, plain)
    except MaskwrightError as error:
        where = f"{path}: {error.where}"
        raise _unlike(where, error.what, error.found, error.wanted) from error


def result_around(folder: Path) -> Path | None:
    """Return the fine-tuning folder that `folder` is, or whose `model` or `adapter` it is; None if
    neither."""
    if _is_result(folder):
        return folder
    resolved = Path(folder).resolve()
    if resolved.name not in (MODEL, ADAPTER) or not _is_result(resolved.parent):
        return None
    return folder.parent if folder.name == resolved.name else resolved.parent


def require_finished(folder: Path) -> Path | None:
    """Return `result_around(folder)` after checking that the fine-tuning is finished.

    Raises:
        CheckpointError: it was stopped (the message says how to resume), or its parts do not belong
            together.
    """
    home = result_around(folder)
    if home is None:
        return None
    if (home / MANIFEST).is_file():
        manifest = read_manifest(home)
        for name in (name for name in PARTS if name in manifest.files):
            _require(home, name, manifest)
        read_task(home / MODEL)  # check the copy, too, which is used if `model` is moved
        return home
    raise CheckpointError(
        "this fine-tuning is not finished",
        where=home,
        found=f"no {MANIFEST}, which is written last",
        wanted="a folder that maskwright finetune has finished",
        do="give the same finetune command again: with --out "
        f"{shell_word(home)} it goes on where it stopped"
        if (home / UNFINISHED).is_dir()
        else COPY,
    )


def is_finished(folder: Path) -> bool:
    """Whether the fine-tuning in `folder` is finished."""
    return (folder / MANIFEST).is_file()


def require_no_result(folder: Path) -> None:
    """Raise UsageError if the fine-tuning in `folder` is finished."""
    if is_finished(folder):
        message = "a fine-tuned model is there already"
        raise UsageError(message, where=folder, do="choose another --out")


def finish(folder: Path, names: list[str]) -> None:
    """Write the last manifest, with the hashes of the files `names` and of `PARTS`."""
    present = [name for name in (*names, *PARTS) if (folder / name).is_file()]
    files = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": hash_file(folder / name)}
        for name in sorted(set(present))
    }
    write_file(folder / MANIFEST, Manifest(MANIFEST_FORMAT, ABOUT, files).render())


def require_agreement(
    record: TaskRecord, labels: tuple[str, ...], head: str, outputs: int, where: Path
) -> None:
    """Check that the classes of a task are those of the model's config.json.

    Args:
        labels: names in the config's `id2label`; empty if it has none.
        head: the type of the model's head, for messages.
        outputs: number of outputs of the head.

    Raises:
        CheckpointError: they differ; the message has both.
    """
    if labels and record.labels and labels != record.labels:
        problem, names = "the labels are not those of the model", list(record.labels)
        expected = f"{list(labels)}, as id2label in config.json"
        raise _unlike(f"{where}: labels", problem, names, expected)
    if record.labels and len(record.labels) != outputs:
        problem = "the number of labels is not the number of the model's scores"
        expected = f"{outputs}, for its {head} head"
        raise _unlike(f"{where}: labels", problem, len(record.labels), expected)


def _unlike(
    where: object, problem: str, value: object = None, expected: object = None
) -> CheckpointError:
    return CheckpointError(problem, where=where, found=value, wanted=expected, do=COPY)


def _is_result(folder: Path) -> bool:
    if (folder / "config.json").exists():
        return False
    return (
        (folder / TASK).is_file()
        or (folder / UNFINISHED).is_dir()
        or (folder / MODEL / TASK).is_file()
    )


def _require(home: Path, name: str, manifest: Manifest) -> None:
    path = home / name
    if not path.is_file():
        raise _unlike(path, f"not complete: {name} is missing")
    sha256 = manifest.files[name]["sha256"]
    if (digest := hash_file(path)) != sha256:
        problem = "a file does not belong to this fine-tuning"
        raise _unlike(path, problem, f"sha256 {digest}", f"sha256 {sha256}")
