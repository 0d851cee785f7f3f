"""The model folder or tokenizer that a run starts from.

    recipe --pinned--> the recipe with full paths and hashes of the folders
    model.folder --init_from_folder--> its weights in a new model, and a line on new weights

A run that starts from a model folder uses its tokenizer and trains none. A resumed run does not
need the folder: it continues from its own checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from maskwright.base.budget import Budget
from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.base.storage import commit
from maskwright.learn.pretrain import checkpoints
from maskwright.learn.recipes.base.recipe import Folder, Recipe, TokenizerFolder
from maskwright.learn.train.parameters import Parameters
from maskwright.learn.train.state import TrainState
from maskwright.model.checkpoint import files, pretrained
from maskwright.model.checkpoint.layout import CheckpointLayout
from maskwright.model.checkpoint.safe_read import model_folder
from maskwright.model.checkpoint.transfer import load_matching
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.model.opening import folders
from maskwright.model.opening.model import fingerprint
from maskwright.model.opening.open import open_weights
from maskwright.text.tokenizer.tokenizer import Tokenizer

FOLDER, WEIGHTS = "head-first", "head.safetensors"
PRODUCT = "product."


def new_parts(current: TransformerConfig, requested: TransformerConfig) -> tuple[str, ...]:
    """Return the parameter prefixes of the heads in `requested` that are not in `current`."""
    current_heads = {head.name: head for head in current.heads}
    new = ["vocabulary_head"] * (current.vocabulary_head != requested.vocabulary_head)
    new += ["pooler"] * (requested.pooler and not current.pooler)
    new += [f"heads.{h.name}" for h in requested.heads if current_heads.get(h.name) != h]
    return tuple(name for name in new if name != "vocabulary_head" or requested.vocabulary_head)


class HeadFirst:
    """Trains first a new head alone, then all parameters. It is a hook of the loop, which unfreezes
    the body, and the function of `ParameterRates`: learning rate factors by parameter name."""

    def __init__(
        self, choice: Folder, budget: Budget, parameters: Parameters, out: Path | None
    ) -> None:
        self.choice, self.budget, self.parameters, self.out = choice, budget, parameters, out
        self.state = TrainState()
        self.new = [name for name in parameters.named if not self._is_body(name)]

    @classmethod
    def of(
        cls, choice: Any, budget: Budget, parameters: Parameters, out: Path | None
    ) -> HeadFirst | None:
        """Return the stages of a run that initialises a new head above the model of the folder
        `choice`; None for other runs."""
        if not isinstance(choice, Folder) or not choice.new:
            return None
        if choice.head_first == 0.0 and choice.body_rate == 1.0:
            return None
        return cls(choice, budget, parameters, out)

    def _is_body(self, name: str) -> bool:
        network_name = name.removeprefix(PRODUCT)
        return network_name != name and not network_name.startswith(
            tuple(f"{prefix}." for prefix in self.choice.new)
        )

    @property
    def alone(self) -> bool:
        """Whether the run is in its first stage."""
        used = self.budget.used(**self.state.counted)
        return used < self.choice.head_first * self.budget.total

    def begin(self, state: TrainState) -> None:
        """Use the run's `state`, and freeze the body if the run is in its first stage."""
        self.state = state
        self._set_body_trainable(not self.alone)

    def __call__(self, step: int) -> dict[str, float]:
        body_factor = 0.0 if self.alone else self.choice.body_rate
        return {name: body_factor if self._is_body(name) else 1.0 for name in self.parameters.named}

    def after_step(self, state: TrainState, record: dict[str, Any]) -> None:
        if self._body_frozen and not self.alone:
            if self.out is not None:
                save(
                    self.out,
                    {
                        n.removeprefix(PRODUCT): t
                        for n, t in self.parameters.state().items()
                        if n in self.new
                    },
                )
            self._set_body_trainable(True)

    def at_end(self, state: TrainState) -> None:
        pass

    def _set_body_trainable(self, learn: bool) -> None:
        """Train or freeze the body; a step without its gradients is much faster."""
        self._body_frozen = not learn
        for name, parameter in self.parameters.named.items():
            if self._is_body(name):
                parameter.requires_grad_(learn)


def save(out: Path, weights: dict[str, torch.Tensor]) -> None:
    """Save the `weights` of the head in the run folder `out`."""
    content = {name: tensor.detach().cpu().clone() for name, tensor in weights.items()}

    def write(staging: commit.Staging) -> None:
        staging.write_bytes(WEIGHTS, files.chunks(content))

    commit.commit(
        out / FOLDER,
        write,
        about={"kind": "head"},
        expected_bytes=files.num_bytes(content),
        replace=True,
    )


@torch.no_grad()
def expect_frequencies(model: Transformer, counts: NDArray[np.float64]) -> None:
    """Initialise the bias of a new vocabulary head, if it has one, with the log frequencies of the
    tokens (`counts` by id), so that it does not have to learn them."""
    bias = None if model.vocabulary_head is None else model.vocabulary_head.bias
    if bias is None:
        return
    frequencies = np.ones(len(bias))
    frequencies[: len(counts)] += counts
    bias.copy_(torch.from_numpy(np.log(frequencies / frequencies.sum())))


@torch.no_grad()
def take(out: Path, model: Transformer, new: Sequence[str]) -> bool:
    """Load the head that the run `out` saved into `model`; return whether there is one. `new` are
    the prefixes of its parameters (see `new_parts`).

    Raises:
        CheckpointError: the file is damaged, or belongs to another model.
    """
    if not (out / FOLDER).is_dir():
        return False
    commit.verify(out / FOLDER)
    saved = files.open_file(out / FOLDER / WEIGHTS)
    head_parameters = {
        n: p
        for n, p in model.named_parameters()
        if n.startswith(tuple(f"{prefix}." for prefix in new))
    }
    if head_parameters.keys() != set(saved.entries):
        raise CheckpointError(
            "the saved head belongs to another model",
            where=out / FOLDER,
            found=", ".join(sorted(saved.entries)[:5]),
            wanted=", ".join(sorted(head_parameters)[:5]),
            do="remove that folder, and start the run again",
        )
    for name, parameter in head_parameters.items():
        parameter.copy_(saved.read(name))
    return True


def pinned(recipe: Recipe) -> Recipe:
    """Return `recipe` with the full paths and hashes of the folders that it starts from. For a run,
    these are of its newest checkpoint; a model folder also sets the tokenizer.

    Raises:
        UsageError: a folder does not exist.
        ConfigError, CheckpointError, TokenizerError: a file in it is invalid.
        IncompatibleError: a hash differs from the recipe's, or the tokenizer is not the model's.
    """
    model, tokenizer = recipe.model, recipe.tokenizer
    if isinstance(model, Folder):
        layout(replace(model, path=str(_full_path(model.path))))
        full, digest = pinned_folder(model.path, model.sha256)
        model = replace(model, path=full, sha256=digest)
        if model.head_first != 0.0 or model.body_rate != 1.0:
            current = pretrained.described(model.path).config
            model = replace(model, new=new_parts(current, layout(model).config))
        model_tokenizer = TokenizerFolder(path=full)
        tokenizer = tokenizer if isinstance(tokenizer, TokenizerFolder) else model_tokenizer
    if isinstance(tokenizer, TokenizerFolder):
        path = _full_path(tokenizer.path)
        loaded = Tokenizer.load(path)
        fingerprint = _require_digest(path, loaded.fingerprint, tokenizer.fingerprint)
        tokenizer = TokenizerFolder(path=str(path), fingerprint=fingerprint)
        if isinstance(model, Folder):
            pretrained.require_tokenizer(Tokenizer.load(model.path).fingerprint, loaded)
    return replace(recipe, model=model, tokenizer=tokenizer)


def resumed(recipe: Recipe, out: Path) -> Recipe:
    """Return `recipe`; if it starts from a model folder, with the newest checkpoint of the run
    `out` as that folder."""
    if not isinstance(recipe.model, Folder):
        return recipe
    return replace(recipe, model=Folder(path=str(folders.newest(out))))


def layout(model: Folder) -> CheckpointLayout:
    """Return the family of the folder's model, and its config with the heads of the recipe."""
    return pretrained.described(model.path, model.architecture)


def init_from_folder(model: Folder, fresh: Transformer, say: Callable[[str], None]) -> Transformer:
    """Load the folder's weights into `fresh`; tell `say` which were loaded, new and omitted.

    Raises:
        IncompatibleError: the folder has changed since the recipe was pinned.
        CheckpointError and others: the folder is no model.
    """
    require_same(Path(model.path), model.sha256)
    transfer = load_matching(open_weights(model.path).network, fresh)
    say(f"model: from {model.path}: {transfer.render()}")
    return transfer.model


def load_objective_state(objective: nn.Module, model: Folder, say: Callable[[str], None]) -> None:
    """Load the objective's own weights from the folder, such as the generator of replaced tokens,
    if it has weights for the same parts."""
    if names := checkpoints.take_others(objective, Path(model.path)):
        components = sorted({name.partition(".")[0] for name in names})
        say(f"also loaded from the folder: {', '.join(components)}")


def pinned_folder(path: str, expected_digest: str | None = None) -> tuple[str, str]:
    """Return the full path of a model folder, or of a run's newest checkpoint, and its hash.

    Raises:
        IncompatibleError: the hash is not `expected_digest`.
    """
    full = _full_path(path)
    return str(full), _require_digest(full, fingerprint(full), expected_digest)


def require_same(folder: Path, expected_digest: str | None) -> None:
    """Raise IncompatibleError if the folder's hash is not `expected_digest` (None: any)."""
    if expected_digest is not None:
        _require_digest(folder, fingerprint(folder), expected_digest)


def _full_path(path: str) -> Path:
    return folders.model_folder(model_folder(Path(path).expanduser())).resolve()


def _require_digest(where: Path, digest: str, expected_digest: str | None) -> str:
    if expected_digest is not None and digest != expected_digest:
        raise IncompatibleError(
            "the model folder has changed since the recipe was written",
            where=where,
            found=digest,
            wanted=expected_digest,
            do="restore it; or take the hash out of the recipe, to start from what is there now",
        )
    return digest
