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
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.base import config
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

# How an error calls settings that are not called like their option of the command line.
NAMES = {
    "learning_rate": "--rate",
    "decay": "--weight-decay",
    "temperature": "--teacher-temperature",
    "name": "--method",
    "model": "the model",
    "data": "the rows of --data, their columns or parts",
    "kind": "--task",
    "label_prompt": "--prompt",
    "labels": "the labels",
    "head": "the head",
}


def _difference(path: str, saved: Any, requested: Any) -> tuple[str, str]:
    """Return a setting with its saved and its requested value, as options of the command line."""
    name = path.rstrip(".0123456789").rpartition(".")[2]
    option = NAMES.get(name, f"--{name.replace('_', '-')}")
    if path.startswith("settings.method.") and name not in ("name", "layer_decay", "head_rate"):
        option = path.replace("settings.method.", "--set ")
    if isinstance(saved, str) and len(saved) == HASH:
        return f"{option} another", f"{option} its own"
    saved, requested = ("not given" if value is None else value for value in (saved, requested))
    return f"{option} {saved}", f"{option} {requested}"


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

    def require_same(self, other_methods: Collection[str] = ()) -> None:
        """Check that the saved seeds are of this fine-tuning, or of one of `other_methods`. Call it
        while holding the lock.

        Raises:
            UsageError: with the settings that differ.
            CheckpointError: a seed's folder is damaged.
        """
        commit.sweep(self.folder)
        requested = json.loads(config.canonical_json(dict(self.about)))
        for folder in sorted(self.folder.glob("seed-*")):
            saved = commit.verify(folder).about
            if saved["settings"]["method"]["name"] in other_methods:
                continue
            changes = [_difference(*change) for change in config.differences(saved, requested)]
            if changes:
                before, after = ("; ".join(values) for values in zip(*changes[:8], strict=True))
                raise UsageError(
                    "an unfinished fine-tuning with other settings is there",
                    where=folder,
                    found=before,
                    wanted=f"{after}, as this command says",
                    do="repeat the command with what is there, to go on with it; or choose another "
                    "--out, or remove the folder",
                )

    def keep(self, seed: int, tuned: TrainingResult) -> None:
        """Save the result of `seed`.

        Raises:
            OutputError, StoppedError, StorageError: as `commit`.
        """
        trained = {n: p.detach() for n, p in tuned.network.named_parameters() if p.requires_grad}
        facts = {
            "figures": [value if math.isfinite(value) else None for value in tuned.figures],
            "losses": tuned.losses,
            "epoch": tuned.epoch,
            "seconds": tuned.seconds,
        }
        self._write(f"seed-{seed}", facts, WEIGHTS, trained)

    def restore(self, seed: int, model: Transformer) -> TrainingResult | None:
        """Load the result of `seed` into `model` and return it; None if the seed is not finished.

        Raises:
            CheckpointError: the files are damaged.
        """
        if not self.has(seed):
            return None
        facts, weights = self._read(f"seed-{seed}", WEIGHTS)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    parameter.copy_(weights.read(name))
        figures = [-math.inf if value is None else value for value in facts["figures"]]
        return TrainingResult(
            model.float().eval(), figures, facts["losses"], facts["epoch"], facts["seconds"]
        )

    def keep_outputs(self, name: str, result: FoldOutputs) -> None:
        """Save the result of a training whose model is not needed; errors as of `keep`."""
        tensors = {"outputs": torch.from_numpy(np.ascontiguousarray(result.outputs))}
        self._write(name, {"losses": result.losses, "seconds": result.seconds}, OUTPUTS, tensors)

    def restore_outputs(self, name: str) -> FoldOutputs | None:
        """Return what `keep_outputs` saved; None if there is nothing. Errors as of `restore`."""
        if not (self.folder / name).is_dir():
            return None
        facts, tensors = self._read(name, OUTPUTS)
        return FoldOutputs(tensors.read("outputs").numpy(), facts["losses"], facts["seconds"])

    def _write(
        self, name: str, facts: Mapping[str, Any], file: str, tensors: Mapping[str, torch.Tensor]
    ) -> None:
        on_cpu = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}

        def write(staging: commit.Staging) -> None:
            staging.write_json(FACTS, facts)
            staging.write_bytes(file, files.chunks(on_cpu))

        size = files.num_bytes(on_cpu)
        commit.commit(self.folder / name, write, about=dict(self.about), expected_bytes=size)

    def _read(self, name: str, file: str) -> tuple[dict[str, Any], files.Tensors]:
        path = self.folder / name / FACTS
        facts = parse_object(path.read_bytes(), path, error=CheckpointError, largest=LARGEST)
        return facts, files.open_file(self.folder / name / file)

    def has(self, seed: int) -> bool:
        """Whether `seed` is saved."""
        return (self.folder / f"seed-{seed}").is_dir()

    @property
    def count(self) -> int:
        """The number of saved trainings."""
        return len(list(self.folder.glob("seed-*")))

    def finish(self) -> None:
        """Remove all saved seeds."""
        if self.folder.is_dir():
            commit.remove_folder(self.folder)
