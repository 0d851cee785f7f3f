"""The folder of a fine-tuning: the record of its task, and whether it is finished.

    out/
      adapter/  model/   each committed by itself; of a head trained alone the adapter only
      task.json          the columns that are read, and the names of the answers; in model/, too
      MANIFEST.json      last: the hashes of the files above and of the manifests of both folders

The commits are valid only together: a model without its adapter would answer as if it had not been
trained. So a folder without the last manifest is not opened. A folder of an earlier release that
wrote none (`format` 1) counts as finished unless it holds remains of a stopped training, and its
copies of the record are compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskwright.base.config import from_plain, require, to_plain
from maskwright.base.errors import CheckpointError, ConfigError, MaskwrightError
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
FORMAT = 2
ABOUT = {"kind": "fine-tuning"}  # in the last manifest
LARGEST = 16 << 20  # bytes of task.json
LONGEST = 1 << 24  # tokens of an example
PARTS = (TASK, f"{MODEL}/{MANIFEST}", f"{ADAPTER}/{MANIFEST}")
COPY = "take a whole copy of the folder, or fine-tune again into another one"


@dataclass(frozen=True, kw_only=True)
class TaskRecord:
    """The content of `task.json`.

    Attributes:
        format: 1 where no last manifest was written.
        kind: the task.
        columns: what is read of a row, by role.
        targets: where the training data had what is to be answered, by role.
        length: the most tokens of an example.
        long: what becomes of a longer text.
        labels: the names of the classes in the order of the head's outputs.
        values: the numbers that stood in the data for the labels; None: these stood there.
        separator: what stood between several labels of a cell.
        settled: what was chosen on validation data.
        attached: whether the trained weights are in the folder `adapter/` next to the model.
    """

    format: int = 1
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
        require("format", self.format, 1, FORMAT)
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
        """The text of the file."""
        return json.dumps(to_plain(self), indent=2) + "\n"


def read_task(folder: Path) -> TaskRecord | None:
    """The record in the `task.json` of `folder`; None if there is none.

    Raises:
        CheckpointError: not JSON, a field that is missing, unknown or of another type, or not the
            file that was saved.
    """
    path = folder / TASK
    if not path.is_file():
        if (folder / MANIFEST).is_file() and TASK in read_manifest(folder).files:
            raise CheckpointError(
                f"not complete: {TASK} is missing",
                where=path,
                wanted="the record of the task, its labels and its options",
                do=COPY,
            )
        return None
    data = path.read_bytes()
    require_as_saved(path, data)
    plain = parse_object(data, path, error=CheckpointError, largest=LARGEST)
    try:
        return from_plain(TaskRecord, plain)
    except MaskwrightError as error:
        raise CheckpointError(
            error.what,
            where=f"{path}: {error.where}",
            found=error.found,
            wanted=error.wanted,
            do=COPY,
        ) from error


def result_around(folder: Path) -> Path | None:
    """The fine-tuning folder that `folder` is, or is the `model` or `adapter` of; None if
    neither."""
    if _is_result(folder):
        return folder
    full = Path(folder).resolve()
    if full.name not in (MODEL, ADAPTER) or not _is_result(full.parent):
        return None
    return folder.parent if folder.name == full.name else full.parent


def require_finished(folder: Path) -> Path | None:
    """The folder of a fine-tuning around `folder`, as `result_around`, if it is finished.

    Raises:
        CheckpointError: a stopped fine-tuning, with the way on; or its parts do not belong
            together.
    """
    home = result_around(folder)
    if home is None:
        return None
    if (home / MANIFEST).is_file():
        manifest = read_manifest(home)
        for name in (name for name in PARTS if name in manifest.files):
            _require(home, name, manifest)
        read_task(home / MODEL)  # which is read where that is copied away
        return home
    unfinished = (home / UNFINISHED).is_dir()
    records = [read_task(folder) for folder in (home, home / MODEL)]
    if unfinished or any(record is not None and record.format > 1 for record in records):
        raise CheckpointError(
            "this fine-tuning is not finished",
            where=home,
            found=f"no {MANIFEST}, which is written last",
            wanted="a folder that maskwright finetune has finished",
            do="give the same finetune command again: with --out "
            f"{shell_word(home)} it goes on where it stopped"
            if unfinished
            else COPY,
        )
    if None not in records and records[0] != records[1]:
        raise CheckpointError(
            f"two {TASK} of one model say different things",
            where=home / TASK,
            found=_first_difference(records[0], records[1]),
            wanted=f"the same as {home / MODEL / TASK}",
            do=COPY,
        )
    return home


def is_finished(folder: Path) -> bool:
    """Whether the fine-tuning in `folder` is finished."""
    model = (folder / MODEL).exists() and not (folder / UNFINISHED).is_dir()
    return model or (folder / MANIFEST).is_file()


def finish(folder: Path, names: list[str]) -> None:
    """Write the last manifest, over the files `names` of the folder."""
    present = [name for name in (*names, *PARTS) if (folder / name).is_file()]
    files = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": hash_file(folder / name)}
        for name in sorted(set(present))
    }
    write_file(folder / MANIFEST, Manifest(MANIFEST_FORMAT, ABOUT, files).render())


def require_agreement(
    record: TaskRecord, labels: tuple[str, ...], head: str, outputs: int, where: Path
) -> None:
    """Refuse a task whose classes differ from those in the model's config.json.

    Args:
        labels: of the config's `id2label`; empty where it names none.
        head: the type of the model's head, for messages.
        outputs: how many scores the head gives.

    Raises:
        CheckpointError: naming both.
    """
    if labels and record.labels and labels != record.labels:
        raise CheckpointError(
            "the labels are not those of the model",
            where=f"{where}: labels",
            found=list(record.labels),
            wanted=f"{list(labels)}, as id2label in config.json",
            do=COPY,
        )
    if record.labels and len(record.labels) != outputs:
        raise CheckpointError(
            "the number of labels is not the number of the model's scores",
            where=f"{where}: labels",
            found=len(record.labels),
            wanted=f"{outputs}, for its {head} head",
            do=COPY,
        )


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
        raise CheckpointError(f"not complete: {name} is missing", where=path, do=COPY)
    if hash_file(path) != manifest.files[name]["sha256"]:
        raise CheckpointError(
            "a file does not belong to this fine-tuning",
            where=path,
            wanted=f"sha256 {manifest.files[name]['sha256']}",
            do=COPY,
        )


def _first_difference(record: TaskRecord | None, other_record: TaskRecord | None) -> str:
    fields, other_fields = (dict[str, Any](to_plain(folder)) for folder in (record, other_record))
    names: Mapping[str, Any] = {n: v for n, v in fields.items() if v != other_fields[n]}
    return ", ".join(f"{n}: {v!r}, not {other_fields[n]!r}" for n, v in names.items())[:200]
