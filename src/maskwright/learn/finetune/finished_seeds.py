"""Saved results of the finished seeds of an unfinished fine-tuning, to continue it.

    out/unfinished/seed-N/
      tuned.json           validation metrics, losses, chosen epoch, seconds
      weights.safetensors  the trained weights, float32
      MANIFEST.json        written last; names the model, the data and the settings
    out/unfinished/seed-N-fold-K/
      tuned.json           losses, seconds
      outputs.safetensors  the outputs for the fold

The same command continues from them, produces the same files, and then removes them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.base import config
from maskwright.base.config import canonical_json
from maskwright.base.errors import CheckpointError, UsageError
from maskwright.base.storage import commit
from maskwright.base.storage.strict_json import parse_object
from maskwright.learn.finetune.tune import TrainingResult
from maskwright.model.checkpoint import files
from maskwright.model.nn.transformer import Transformer

FOLDER, FACTS, WEIGHTS = "unfinished", "tuned.json", "weights.safetensors"
OUTPUTS = "outputs.safetensors"
LARGEST = 1 << 20  # bytes of the facts
HASH = 64  # digits of a SHA-256
REJECTS = "rejects.jsonl"  # rows that were skipped when the data was read


# Setting -> its option on the command line.
OPTIONS = {
    "training.epochs": "--epochs",
    "training.batch": "--batch",
    "training.accumulate": "--accumulate",
    "training.patience": "--patience",
    "training.optimizer.learning_rate": "--rate",
    "training.optimizer.decay": "--weight-decay",
    "training.schedule.warmup": "--warmup",
    "training.class_weights": "--class-weights",
    "training.label_smoothing": "--label-smoothing",
    "method.name": "--method",
    "method.layer_decay": "--layer-decay",
    "method.head_rate": "--head-rate",
    "length": "--length",
    "long": "--long",
    "precision": "--precision",
    "device": "--device",
    "model": "the model",
    "data": "the rows of --data, their columns or parts",
    "kind": "--task",
    "settled.prompt": "--prompt",
    "settled.label_prompt": "--prompt",
    "settled.pooling": "--pooling",
    "settled.measure": "--measure",
    "head": "the head",
}


class SettingDifference(NamedTuple):
    """A setting and its values in the saved and the requested fine-tuning, as text."""

    saved: str
    requested: str


def _differences(name: str, saved: Any, requested: Any) -> list[SettingDifference]:
    """Return the differences of the entry `name`, described by command-line options."""
    if saved == requested:
        return []
    changes: list[tuple[str, Any, Any]] = [(name, saved, requested)]
    if isinstance(saved, dict) and isinstance(requested, dict):
        changes = list(config.differences(saved, requested))
    differences = []
    for path, old, new in changes:
        hashed = isinstance(old, str) and len(old) == HASH
        pairs = ("another", "its own") if hashed else (_text(old), _text(new))
        option = OPTIONS.get(path) or path.replace("method.", "--set ", 1)
        differences.append(SettingDifference(*(f"{option} {value}" for value in pairs)))
    return differences


def _text(value: Any) -> str:
    return "not given" if value is None else str(value)


class FoldOutputs(NamedTuple):
    """The outputs (N, …) of a training for the rows that it was not trained on, its loss in each
    epoch, and its duration."""

    outputs: NDArray[Any]
    losses: list[float]
    seconds: float


@dataclass(frozen=True)
class FinishedSeeds:
    """The finished seeds of a fine-tuning into `out`, which is identified by the JSON `about`."""

    out: Path
    about: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        return self.out / FOLDER

    def require_same(self) -> None:
        """Check that the saved seeds are of this fine-tuning. Call it while holding the lock.

        Raises:
            UsageError: with the settings that differ.
            CheckpointError: a seed's folder is damaged.
        """
        commit.sweep(self.folder)
        requested = json.loads(canonical_json(dict(self.about)))
        for folder in sorted(self.folder.glob("seed-*")):
            saved = commit.verify(folder).about
            changes = [
                change
                for name in sorted(requested.keys() | saved.keys())
                for change in _differences(name, saved.get(name), requested.get(name))
            ]
            if changes:
                raise UsageError(
                    "an unfinished fine-tuning with other settings is there",
                    where=folder,
                    found="; ".join(change.saved for change in changes[:8]),
                    wanted="; ".join(change.requested for change in changes[:8])
                    + ", as this command says",
                    do="repeat the command with what is there, to go on with it; or choose another "
                    "--out, or remove the folder",
                )

    def keep(self, seed: int, tuned: TrainingResult) -> None:
        """Save the result of `seed`.

        Raises:
            OutputError, StoppedError, StorageError: as `commit`.
        """
        weights = {
            n: p.detach().cpu().contiguous()
            for n, p in tuned.network.named_parameters()
            if p.requires_grad
        }
        facts = {
            "figures": [value if math.isfinite(value) else None for value in tuned.figures],
            "losses": tuned.losses,
            "epoch": tuned.epoch,
            "seconds": tuned.seconds,
        }

        def write(staging: commit.Staging) -> None:
            staging.write_json(FACTS, facts)
            staging.write_bytes(WEIGHTS, files.chunks(weights))

        commit.commit(
            self._path(seed), write, about=dict(self.about), expected_bytes=files.num_bytes(weights)
        )

    def restore(self, seed: int, model: Transformer) -> TrainingResult | None:
        """Load the result of `seed` into `model` and return it; None if the seed is not finished.

        Raises:
            CheckpointError: the files are damaged.
        """
        folder = self._path(seed)
        if not folder.is_dir():
            return None
        weights = files.open_file(folder / WEIGHTS)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    parameter.copy_(weights.read(name))
        facts = _facts_of(folder)
        figures = [-math.inf if value is None else value for value in facts["figures"]]
        return TrainingResult(
            model.float().eval(), figures, facts["losses"], facts["epoch"], facts["seconds"]
        )

    def keep_outputs(
        self, name: str, outputs: NDArray[Any], losses: Sequence[float], seconds: float
    ) -> None:
        """Save the outputs (N, …) of a training whose model is not needed, such as a fold's.

        Raises:
            OutputError, StoppedError, StorageError: as `commit`.
        """
        tensors = {"outputs": torch.from_numpy(np.ascontiguousarray(outputs))}

        def write(staging: commit.Staging) -> None:
            staging.write_json(FACTS, {"losses": list(losses), "seconds": seconds})
            staging.write_bytes(OUTPUTS, files.chunks(tensors))

        commit.commit(
            self.folder / name,
            write,
            about=dict(self.about),
            expected_bytes=files.num_bytes(tensors),
        )

    def restore_outputs(self, name: str) -> FoldOutputs | None:
        """Return what `keep_outputs` saved; None if there is nothing.

        Raises:
            CheckpointError: the files are damaged.
        """
        folder = self.folder / name
        if not folder.is_dir():
            return None
        facts = _facts_of(folder)
        outputs = files.open_file(folder / OUTPUTS).read("outputs").numpy()
        return FoldOutputs(outputs, facts["losses"], facts["seconds"])

    def has(self, seed: int) -> bool:
        """Whether `seed` is saved."""
        return self._path(seed).is_dir()

    @property
    def count(self) -> int:
        """The number of saved trainings."""
        return len(list(self.folder.glob("seed-*")))

    def finish(self) -> None:
        """Remove all saved seeds."""
        if self.folder.is_dir():
            commit.remove_folder(self.folder)

    def _path(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}"


def _facts_of(folder: Path) -> dict[str, Any]:
    """Return the JSON facts of a saved training."""
    path = folder / FACTS
    return parse_object(path.read_bytes(), path, error=CheckpointError, largest=LARGEST)
