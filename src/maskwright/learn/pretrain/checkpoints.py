"""A run's checkpoints: each is a Hugging Face folder with the training state.

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

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from maskwright.base import dotted
from maskwright.base.config import to_plain
from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.base.findings import Finding
from maskwright.base.report import document, opened
from maskwright.base.storage import commit
from maskwright.base.storage.manifest import require_as_saved
from maskwright.base.storage.strict_json import parse_object
from maskwright.learn.pretrain import journal
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.learn.train.optimizers.states import OptimizerState
from maskwright.learn.train.parameters import Average
from maskwright.learn.train.state import TrainState
from maskwright.model.checkpoint import files, layout, pretrained
from maskwright.model.checkpoint.conventions import Conventions
from maskwright.model.checkpoint.layout import About
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.spec import Spec
from maskwright.model.opening import of_recipe
from maskwright.model.opening.open import open_weights
from maskwright.text.tokenizer.tokenizer import Tokenizer

STATE = "training/state.json"
MOMENTS = "training/optimizer.safetensors"
OTHERS = "training/objective.safetensors"
MASTERS = "training/masters.safetensors"
LARGEST_STATE = 64 << 20
# Prefix of the saved network's parameter names within an objective.
OWN = "product."
CARD_FOLDER = "."  # the folder of the card


class CheckpointStore:
    """The folder `run/checkpoints`, which holds the newest `keep` checkpoints.

    Args:
        about: facts for the manifest of each checkpoint (recipe, tokenizer, data and machine).
        model: further content of each saved model folder, such as its card.
    """

    def __init__(
        self,
        run: Path,
        keep: int,
        about: dict[str, Any],
        model: About = About(),  # noqa: B008 - frozen
    ) -> None:
        self.folder = run / "checkpoints"
        self.keep = keep
        self.about = about
        self.model = model

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def save(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
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
        if _is_complete(target, full=True):
            return target
        masters = optimizer.parameters.state()
        weights = masters if average is None else average.state()
        content = pretrained.save_files(model, tokenizer, self.model, state=own_weights(weights))
        other_weights = {n: t for n, t in weights.items() if not n.startswith(OWN)}

        def write(staging: commit.Staging) -> None:
            for name, data in content.items():
                staging.write_bytes(name, data() if callable(data) else data)
            staging.write_bytes(MOMENTS, files.chunks(moments))
            if other_weights:
                staging.write_bytes(OTHERS, files.chunks(other_weights))
            if average is not None:
                staging.write_bytes(MASTERS, files.chunks(masters))
            staging.write_json(STATE, {**state.to_json(), "optimizer_steps": optimizer.steps})

        moments = optimizer.state()
        size = sum(t.nbytes for t in [*masters.values(), *moments.values()])
        size += 0 if average is None else sum(t.nbytes for t in weights.values())
        about = {**self.about, "step": state.step, "journal": journal.stamp(self.folder.parent)}
        commit.commit(target, write, about=about, expected_bytes=size, replace=True)
        self.retain(target)
        return target

    def retain(self, newest: Path) -> None:
        """Verify `newest`, then keep it and the last complete checkpoints before it, `keep` in
        all, and remove the others. Folders of later steps stay: they are damaged checkpoints that
        a resumed run skipped."""
        up_to_newest = commit.numbered(self.folder)
        up_to_newest = up_to_newest[: up_to_newest.index(newest) + 1]
        complete = [p for p in up_to_newest if _is_complete(p)]
        outdated = [p for p in up_to_newest[:-1] if p not in complete[-self.keep :]]
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
        network = open_weights(path).network
        weights = {OWN + n: p.detach() for n, p in network.named_parameters()}
        if (path / OTHERS).exists():
            weights |= _tensors(path / OTHERS)
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
        for name, now, then in dotted.differences(self.about["machine"], before):
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
                changes = [*dotted.differences(saved["settings"], self.about["settings"])][:8]
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
def take_others(objective: nn.Module, checkpoint: Path) -> list[str]:
    """Load the objective's own weights (those outside the saved model) from `checkpoint` and return
    their names; load nothing and return [] if there are none or if they do not match."""
    if not (checkpoint / OTHERS).exists():
        return []
    require_as_saved(checkpoint / OTHERS)
    parameters = dict(objective.named_parameters())
    file = files.open_file(checkpoint / OTHERS)
    weights = {name: file.read(name) for name in file.entries}
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


def own_weights(masters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the saved network's weights among those of an objective, without the prefix."""
    return {n.removeprefix(OWN): t for n, t in masters.items() if n.startswith(OWN)}


def describe(
    recipe: Recipe, config: TransformerConfig, tokenizer: Tokenizer, model: About
) -> About:
    """Return `model` with the conventions and the card (README) of the recipe's model."""
    conventions = conventions_of(recipe, len(config.stacks))
    model = replace(model, conventions=conventions)
    model_files = layout.documents(layout.of_config(config, model.family), tokenizer, model, {})
    text = model_files["config.json"]
    assert isinstance(text, bytes)
    saved_config = json.loads(text)
    usage = usage_of(recipe.objective.spec, config, tokenizer, conventions)
    warning = opened.misread(saved_config)
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
        loads=opened.code(saved_config, CARD_FOLDER).splitlines(),
        ask=usage.line if usage else "",
    )
    return replace(model, readme=card)


def conventions_of(recipe: Recipe, stacks: int) -> Conventions:
    """Return the conventions of the recipe's model, which has one or two `stacks`."""
    member, options = recipe.objective.member, recipe.objective.options
    rows, corpus = to_plain(recipe.rows), to_plain(recipe.corpus)
    return of_recipe.conventions_of(member, to_plain(options), rows, corpus, stacks)


@dataclass(frozen=True)
class Usage:
    """An example of use of a model.

    Attributes:
        tag: the name that hubs have for it.
        verb: the command, `fill-mask` or `generate`.
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
        return f"api.generate_text({CARD_FOLDER!r}, {self.prompt!r}, tokens=20)"


def usage_of(
    spec: Spec, config: TransformerConfig, tokenizer: Tokenizer, conventions: Conventions
) -> Usage | None:
    """Return an example of use; None if the model can neither fill masks nor generate text."""
    if config.vocabulary_head is None:
        return None
    prompt = _known_words(tokenizer)
    generates = config.decoder is not None and conventions.decoder_trained
    fills_spans = len(config.stacks) == 2 and generates and bool(tokenizer.sentinels)
    fills_spans &= tokenizer.mask is None or spec.usual_for == "sentinels"
    if config.encoder is not None and tokenizer.mask is not None and not fills_spans:
        gap_token = tokenizer.tokens([tokenizer.mask])[0]
        return Usage("fill-mask", "fill-mask", f"{prompt} {gap_token}".strip())
    if not generates:
        return None
    if fills_spans:
        gap_token = tokenizer.vocabulary[tokenizer.sentinels[0]]
        return Usage("fill-mask", "fill-mask", f"{prompt} {gap_token}".strip())
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
