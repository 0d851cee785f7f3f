"""What a run writes while it trains: its journal, and its checkpoints.

`metrics.jsonl` holds losses, learning rates, evaluations and samples; an identical run writes the
same bytes. `timings.jsonl` holds seconds, tokens per second and memory. The journal is flushed
before a checkpoint is saved, and resuming truncates it to the checkpoint. If the disk is full,
lines are kept in memory until the next flush.

Each checkpoint is a Hugging Face folder with the training state:

    checkpoints/step-00001200/
        config.json, model.safetensors, tokenizer.json, ...     loads in transformers as it stands
        training/optimizer.safetensors                          moments, by parameter name
        training/objective.safetensors                          weights of the objective, if any
        training/masters.safetensors                            weights, where an average is saved
        training/state.json                                     counters of the training loop
        MANIFEST.json                                           sizes and hashes, written last

The saved weights are the float32 master weights, or their moving average if the run keeps one; the
master weights are then saved with the training state. A run resumes from the newest folder that
passes verification. Beside the weights lies a card, `README.md`, made from the recipe alone.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from maskwright.base import config
from maskwright.base.config import to_plain
from maskwright.base.errors import (
    CheckpointError,
    DataError,
    Finding,
    IncompatibleError,
    MaskwrightError,
)
from maskwright.base.report import document
from maskwright.base.storage import commit
from maskwright.base.storage.files import FULL, new_file, os_errors_refused
from maskwright.base.storage.manifest import BEST, require_as_saved
from maskwright.base.storage.strict_json import parse_object
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.learn.train.optimizers import Average, OptimizerState
from maskwright.learn.train.records import announce
from maskwright.learn.train.state import TrainState
from maskwright.model.checkpoint import files, layout, pretrained
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.spec import Spec
from maskwright.model.opening import open
from maskwright.text.tokenizer.tokenizer import Tokenizer

# ------------------------------------------------------------------------------ the journal
METRICS = "metrics.jsonl"
TIMINGS = "timings.jsonl"
# Number of buffered bytes at which lines are written.
WAITING = 8192


class Journal:
    """Appends to both files of the run folder `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, BinaryIO] = {}
        self._waiting: dict[str, bytearray] = {}

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, error_type: object, error: object, trace: object) -> None:
        """Write the buffered lines; an error is raised only if the block raised none."""
        try:
            with nullcontext() if error is None else suppress(MaskwrightError):
                self.flush()
        finally:
            for file in self._files.values():
                file.close()

    def write(self, record: dict[str, Any]) -> None:
        """Append a line to `metrics.jsonl`; it must not depend on time or machine."""
        announce(self.folder, record)
        self._append(METRICS, record)

    def time(self, step: int, seconds: float, tokens_per_second: float, peak_memory: int) -> None:
        """Append a line to `timings.jsonl`; `peak_memory` in bytes."""
        record = {
            "step": step,
            "seconds": round(seconds, 3),
            "tokens_per_second": round(tokens_per_second, 1),
            "peak_memory": peak_memory,
        }
        announce(self.folder, {"kind": "timing", **record})
        self._append(TIMINGS, record)

    def flush(self) -> None:
        """Write all buffered lines to disk.

        Raises:
            StoppedError: the disk is full.  OutputError, StorageError: it cannot be written.
        """
        with os_errors_refused(self.folder):
            for name in self._waiting:
                self._write(name)
                os.fsync(self._files[name].fileno())

    def _append(self, name: str, record: dict[str, Any]) -> None:
        buffer = self._waiting.setdefault(name, bytearray())
        buffer += (json.dumps(record, separators=(",", ":")) + "\n").encode()
        if len(buffer) < WAITING:
            return
        with os_errors_refused(self.folder / name):
            try:
                self._write(name)
            except OSError as error:
                if error.errno not in FULL:  # a full disk is reported when a checkpoint is saved
                    raise

    def _write(self, name: str) -> None:
        if name not in self._files:
            self._files[name] = (self.folder / name).open("ab", buffering=0)
        buffer = self._waiting[name]
        while buffer:
            del buffer[: self._files[name].write(bytes(buffer))]


def cut_journal(folder: Path, step: int) -> int:
    """Remove the lines after `step`, and an incomplete last line, from both files.

    Each file is replaced atomically. Returns the number of removed lines.
    """
    removed = 0
    for name in (METRICS, TIMINGS):
        path = folder / name
        if not path.is_file():
            continue
        lines = path.read_bytes().splitlines(keepends=True)
        remaining = [line for line in lines if (at := _step(line)) is not None and at <= step]
        if len(remaining) == len(lines):
            continue
        removed += len(lines) - len(remaining)
        with new_file(path) as file:
            file.writelines(remaining)
    return removed


def read_journal(folder: Path, name: str = METRICS) -> list[dict[str, Any]]:
    """Return the records of all complete lines of one of the two files."""
    path = folder / name
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    records = [json.loads(line) for line in lines if _step(line) is not None]
    return records if name != METRICS else [r for r in records if isinstance(r.get("kind"), str)]


def figures(folder: Path, saved: Mapping[str, Any] | None, *, bits: bool) -> list[dict[str, Any]]:
    """Return the validated records of `metrics.jsonl`, for comparison with those of other runs.

    Args:
        saved: the `stamp` in the newest checkpoint; None if there was no such file.
        bits: whether evaluations must have bits per byte.

    Raises:
        DataError: the file differs from the saved stamp, or a line lacks a number.
    """
    if saved is not None and stamp(folder, saved.get("bytes")) != saved:
        raise _damaged(folder, f"not the {saved.get('bytes')} bytes with {saved.get('sha256')}")
    lines = read_journal(folder)
    required = {"train": ("tokens",), "evaluation": ("loss", *["bits_per_byte"] * bits)}
    for line in lines:
        if missing := [n for n in required.get(line["kind"], ()) if not _is_number(line.get(n))]:
            name = missing[0]
            raise _damaged(folder, f"step {line['step']}: {name}: {line.get(name)!r}"[:200])
    trained_steps = {line["step"] for line in lines if line["kind"] == "train"}
    evaluated_steps = {line["step"] for line in lines if line["kind"] == "evaluation"}
    if not evaluated_steps or not evaluated_steps <= trained_steps:
        raise _damaged(folder, "no evaluation, or one of a step without a line")
    return lines


def _damaged(folder: Path, content: str) -> DataError:
    return DataError(
        "metrics.jsonl is not what the run saved",
        where=folder / METRICS,
        found=content,
        do="take an intact copy of the run, or remove its folder and let it be trained again",
    )


def journal_times(folder: Path) -> list[dict[str, Any]]:
    """Return the records of `timings.jsonl` that have a time and a step."""
    return [
        line
        for line in read_journal(folder, TIMINGS)
        if _is_number(line.get("seconds")) and _is_number(line["step"])
    ]


def stamp(folder: Path, size: Any = None) -> dict[str, Any] | None:
    """Return {"bytes", "sha256"} of `metrics.jsonl`, or of its first `size` bytes; None if the file
    does not exist or is shorter."""
    path = folder / METRICS
    if not path.is_file():
        return None
    data = path.read_bytes()
    size = len(data) if size is None else size
    if not isinstance(size, int) or not 0 <= size <= len(data):
        return None
    return {"bytes": size, "sha256": hashlib.sha256(data[:size]).hexdigest()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _step(line: bytes) -> int | None:
    if not line.endswith(b"\n"):
        return None
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None  # incomplete, or not written by `Journal`


# ------------------------------------------------------------------------------ checkpoints
STATE = "training/state.json"
MOMENTS = "training/optimizer.safetensors"
OBJECTIVE = "training/objective.safetensors"
MASTERS = "training/masters.safetensors"
LARGEST_STATE = 64 << 20
# Prefix of the saved network's parameter names within an objective.
PREFIX = "product."
CARD_FOLDER = "."  # the folder of the card


class CheckpointStore:
    """The folder `run/checkpoints`, which holds the newest `keep` checkpoints, and with `keep_best`
    that of the lowest held-out loss, which the manifests of later ones name.

    Args:
        about: facts for the manifest of each checkpoint (recipe, tokenizer, data and machine).
        model: further content of each saved model folder, such as its card.
    """

    def __init__(
        self,
        run: Path,
        keep: int,
        about: dict[str, Any],
        model: layout.About = layout.About(),  # noqa: B008 - frozen
        keep_best: bool = False,
    ) -> None:
        self.folder = run / "checkpoints"
        self.keep, self.keep_best = keep, keep_best
        self.about = about
        self.model = model

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def save(
        self,
        model: Transformer,
        tokenizer: Tokenizer | None,
        optimizer: OptimizerState,
        state: TrainState,
        average: Average | None = None,
    ) -> Path:
        """Commit the checkpoint of `state.step` and return its folder. Older checkpoints are
        removed only after it is on disk and verified.

        Raises:
            StoppedError: the disk is full.  StorageError, OutputError: it cannot be written.
            CheckpointError: a weight is not finite.
        """
        target = self.path(state.step)
        steps = optimizer.steps
        if _is_complete(target, full=True) and read_state(target) == (state, steps):
            return target
        masters = optimizer.parameters.state()
        weights = masters if average is None else average.state()
        network_weights = {
            n.removeprefix(PREFIX): t for n, t in weights.items() if n.startswith(PREFIX)
        }
        content = pretrained.save_files(model, tokenizer, self.model, state=network_weights)
        objective_weights = {n: t for n, t in weights.items() if not n.startswith(PREFIX)}

        def write(staging: commit.Staging) -> None:
            for name, data in content.items():
                staging.write_bytes(name, data() if callable(data) else data)
            staging.write_bytes(MOMENTS, files.chunks(moments))
            if objective_weights:
                staging.write_bytes(OBJECTIVE, files.chunks(objective_weights))
            if average is not None:
                staging.write_bytes(MASTERS, files.chunks(masters))
            staging.write_json(STATE, {**state.to_json(), "optimizer_steps": steps})

        moments = optimizer.state()
        size = sum(t.nbytes for t in [*masters.values(), *moments.values()])
        size += 0 if average is None else sum(t.nbytes for t in weights.values())
        about = {**self.about, "step": state.step, "journal": stamp(self.folder.parent)}
        best = self.path(state.best_step)
        if self.keep_best and (best == target or best.is_dir()):
            about[BEST] = best.name
        commit.commit(target, write, about=about, expected_bytes=size, replace=True)
        self.retain(target, best)
        return target

    def retain(self, newest: Path, best: Path | None = None) -> None:
        """Verify `newest`, then keep it and the last complete checkpoints before it, `keep` in
        all, and with `keep_best` the `best`, and remove the others. Folders of later steps stay:
        they are damaged checkpoints that a resumed run skipped."""
        up_to_newest = commit.numbered(self.folder)
        up_to_newest = up_to_newest[: up_to_newest.index(newest) + 1]
        complete = [p for p in up_to_newest if _is_complete(p)]
        retained = complete[-self.keep :] + [best] * self.keep_best
        outdated = [p for p in up_to_newest[:-1] if p not in retained]
        if not outdated:
            return
        commit.verify(newest)
        for folder in outdated:
            commit.remove_folder(folder)

    def restore(
        self, optimizer: OptimizerState, average: Average | None = None
    ) -> tuple[TrainState, list[Finding]]:
        """Load the newest valid checkpoint into `optimizer`, its master weights and their
        `average`; return its counters, and what the user should know about it.

        Raises:
            CheckpointError: no checkpoint is valid; the reason for each is listed.
            IncompatibleError: recipe, tokenizer or data are not those of the checkpoint.
        """
        path, manifest, skipped = commit.newest(self.folder)
        network = open.open_weights(path).network
        weights = {PREFIX + n: p.detach() for n, p in network.named_parameters()}
        if (path / OBJECTIVE).exists():
            weights |= _tensors(path / OBJECTIVE)
        if average is not None:
            average.load(weights)
            weights = _tensors(path / MASTERS)
        optimizer.parameters.load(weights)
        state, steps = read_state(path)
        optimizer.load(_tensors(path / MOMENTS), steps)
        self._require_same_run(path, manifest.about)
        message = "skipped a damaged checkpoint"
        findings = [Finding("damaged-checkpoint", message, f"{e.where}: {e.what}") for e in skipped]
        # Older releases saved fewer facts.
        before = {**self.about["machine"], **manifest.about["machine"]}
        for name, now, then in config.differences(self.about["machine"], before):
            message = f"{name} was {then} and is {now}: the run continues, not bit-exactly"
            findings.append(Finding("other-machine", message))
        return state, findings

    def _require_same_run(self, path: Path, saved: dict[str, Any]) -> None:
        for name, described in (
            ("recipe", "the recipe"),
            ("tokenizer", "the tokenizer"),
            ("data", "the training data"),
        ):
            if saved.get(name) == self.about[name]:
                continue
            where, now, then = str(path), str(self.about[name])[:16], str(saved.get(name))[:16]
            if name == "recipe" and isinstance(saved.get("settings"), dict):  # edited by hand
                changes = [*config.differences(saved["settings"], self.about["settings"])][:8]
                where = f"{self.folder.parent / 'recipe.toml'}: {changes[0][0] if changes else ''}"
                now = "; ".join(f"{setting} = {new!r}" for setting, _, new in changes)
                then = "; ".join(f"{setting} = {old!r}" for setting, old, _ in changes)
            raise IncompatibleError(
                f"{described} is not the one this checkpoint was trained with",
                where=where,
                found=now,
                wanted=then,
                do="restore it, or start another run with: maskwright pretrain RECIPE --out FOLDER",
            )


@torch.no_grad()
def load_objective(objective: nn.Module, checkpoint: Path) -> list[str]:
    """Load the objective's own weights (those outside the saved model) from `checkpoint` and return
    their names; load nothing and return [] if there are none or if they do not match."""
    if not (checkpoint / OBJECTIVE).exists():
        return []
    require_as_saved(checkpoint / OBJECTIVE)
    parameters = dict(objective.named_parameters())
    weights = _tensors(checkpoint / OBJECTIVE)
    if any(n not in parameters or parameters[n].shape != t.shape for n, t in weights.items()):
        return []
    for name, tensor in weights.items():
        parameters[name].copy_(tensor)
    return list(weights)


def read_state(checkpoint: Path) -> tuple[TrainState, int]:
    """Read the training state and the optimizer's number of steps from a checkpoint folder.

    Raises:
        CheckpointError: the file is not a training state.
    """
    path = checkpoint / STATE
    content = path.read_bytes()
    require_as_saved(path, content)
    fields = parse_object(content, path, error=CheckpointError, largest=LARGEST_STATE)
    steps = fields.pop("optimizer_steps", None)
    state = TrainState.from_json(fields, str(path))
    if type(steps) is not int:
        raise CheckpointError(
            "not a training state",
            where=path,
            found=repr(steps),
            wanted="the steps of the optimizer",
            do="resume from an older checkpoint: remove this one",
        )
    return state, steps


def _tensors(path: Path) -> dict[str, Tensor]:
    file = files.open_file(path)
    return {name: file.read(name) for name in file.entries}


def _is_complete(folder: Path, *, full: bool = False) -> bool:
    """Whether all files of a checkpoint exist with the recorded sizes (`full`: and hashes)."""
    try:
        commit.verify(folder, full=full)
    except CheckpointError:
        return False
    return True


def describe(
    recipe: Recipe, config: TransformerConfig, tokenizer: Tokenizer | None, model: layout.About
) -> layout.About:
    """Return `model` with the conventions and the card (README) of the recipe's model."""
    conventions = conventions_of(recipe, len(config.stacks))
    model = replace(model, conventions=conventions)
    model_files = layout.documents(layout.of_config(config, model.family), tokenizer, model, {})
    text = model_files["config.json"]
    assert isinstance(text, bytes)
    saved_config = json.loads(text)
    spec = recipe.objective.spec
    usage = None if tokenizer is None else usage_of(spec, config, tokenizer, conventions)
    warning = document.misread(saved_config)
    front = {
        "library_name": "maskwright" if warning else "transformers",
        **({"pipeline_tag": usage.tag} if usage else {}),
        "tags": ["maskwright", recipe.objective.name],
    }
    card = document.render(
        "pretrained.md",
        front=front,
        name=recipe.name,
        objective=recipe.objective.name,
        note=recipe.note,
        warning=warning,
        loads=document.opening_code(saved_config, CARD_FOLDER).splitlines(),
        ask=usage.line if usage else "",
    )
    return replace(model, readme=card)


def conventions_of(recipe: Recipe, stacks: int) -> layout.Conventions:
    """Return the conventions of the recipe's model, which has one or two `stacks`."""
    member, options = recipe.objective.member, recipe.objective.options
    rows, corpus = to_plain(recipe.rows), to_plain(recipe.corpus)
    return open.conventions_of(member, to_plain(options), rows, corpus, stacks)


@dataclass(frozen=True)
class Usage:
    """An example of use of a model.

    Attributes:
        tag: the name that hubs have for it.
        verb: the command, `fill-mask`, `generate` or `neighbours`.
        prompt: an input in words that the tokenizer knows.
    """

    tag: str
    verb: str
    prompt: str

    @property
    def line(self) -> str:
        """The call in Python, from within the model's folder."""
        if self.verb == "fill-mask":
            return f"api.fill_mask({CARD_FOLDER!r}, {self.prompt!r})"
        if self.verb == "neighbours":
            return f"api.neighbours({CARD_FOLDER!r}, [{self.prompt!r}])"
        return f"api.generate_text({CARD_FOLDER!r}, {self.prompt!r}, tokens=20)"


def usage_of(
    spec: Spec, config: TransformerConfig, tokenizer: Tokenizer, conventions: layout.Conventions
) -> Usage | None:
    """Return an example of use; None if the model can neither fill masks nor generate text, and has
    no vectors of words."""
    if not any(stack.blocks for stack in config.stacks.values()):
        is_word = tokenizer.starts_word.nonzero()[0].tolist()
        words = (n for n in is_word if n not in tokenizer.special_ids)
        word = max(map(tokenizer.vocabulary.__getitem__, itertools.islice(words, 100)), key=len)
        return Usage("feature-extraction", "neighbours", word)
    if config.vocabulary_head is None:
        return None
    prompt = _known_words(tokenizer)
    generates = config.decoder is not None and conventions.decoder_trained
    fills_spans = len(config.stacks) == 2 and generates and bool(tokenizer.sentinels)
    fills_spans &= tokenizer.mask is None or spec.usual_for == "sentinels"
    gap = tokenizer.sentinels[0] if fills_spans else tokenizer.mask
    if gap is not None and (config.encoder is not None or fills_spans):
        return Usage("fill-mask", "fill-mask", f"{prompt} {tokenizer.tokens([gap])[0]}".strip())
    if not generates:
        return None
    tag = "text-generation" if config.encoder is None else "text2text-generation"
    return Usage(tag, "generate", prompt)


def _known_words(tokenizer: Tokenizer) -> str:
    """Return a few words that the tokenizer can encode; "" if there are none."""
    try:
        tokenizer.encode("It is")
        return "It is"
    except IncompatibleError:
        ordinary = (i for i in range(tokenizer.vocabulary_size) if i not in tokenizer.special_ids)
        return next((text for i in ordinary if (text := tokenizer.decode([i])).strip()), "")
