"""What a run starts from besides its text: a model folder, or a tokenizer.

    recipe --pinned--> the same, with full paths and the hashes of what lies there
    model.folder --init_from_folder--> its weights in a new model, and a line on what is new

The tokenizer of a model folder is the run's tokenizer; none is trained. A resumed run does not need
the folder: it continues from its own checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import nn

from maskwright.checkpoint import pretrained
from maskwright.checkpoint.layout import Layout
from maskwright.checkpoint.safe_read import model_folder
from maskwright.checkpoint.transfer import load_matching
from maskwright.errors import IncompatibleError
from maskwright.models import folders
from maskwright.models.fingerprint import fingerprint
from maskwright.models.open import open_weights
from maskwright.nn.transformer import Transformer
from maskwright.pretrain import checkpoints, head_first
from maskwright.recipes.parts.recipe import Folder, Recipe, TokenizerFolder
from maskwright.tokenizer.tokenizer import Tokenizer


def pinned(recipe: Recipe) -> Recipe:
    """`recipe` with the full paths and hashes of the folders that it starts from. A run stands for
    its newest checkpoint, and a model folder brings its tokenizer.

    Raises:
        UsageError: there is no such folder.
        ConfigError, CheckpointError, TokenizerError: a file in it is wrong.
        IncompatibleError: it is not what the recipe was made with, or the tokenizer is not the
            model's.
    """
    model, tokenizer = recipe.model, recipe.tokenizer
    if isinstance(model, Folder):
        layout(replace(model, path=str(_full(model.path))))
        full, found = pinned_folder(model.path, model.sha256)
        model = replace(model, path=full, sha256=found)
        if model.head_first != 0.0 or model.body_rate != 1.0:
            current = pretrained.described(model.path).config
            model = replace(model, new=head_first.new_parts(current, layout(model).config))
        own = TokenizerFolder(path=full)
        tokenizer = tokenizer if isinstance(tokenizer, TokenizerFolder) else own
    if isinstance(tokenizer, TokenizerFolder):
        path = _full(tokenizer.path)
        loaded = Tokenizer.load(path)
        fingerprint = _same(path, loaded.fingerprint, tokenizer.fingerprint)
        tokenizer = TokenizerFolder(path=str(path), fingerprint=fingerprint)
        if isinstance(model, Folder):
            pretrained.require_tokenizer(Tokenizer.load(model.path).fingerprint, loaded)
    return replace(recipe, model=model, tokenizer=tokenizer)


def resumed(recipe: Recipe, out: Path) -> Recipe:
    """`recipe` for the run `out`: a run that started from a folder continues from its own newest
    checkpoint."""
    if not isinstance(recipe.model, Folder):
        return recipe
    return replace(recipe, model=Folder(path=str(folders.newest(out))))


def layout(model: Folder) -> Layout:
    """The family of the folder's model, and its config with the wanted heads."""
    return pretrained.described(model.path, model.architecture)


def init_from_folder(model: Folder, fresh: Transformer, say: Callable[[str], None]) -> Transformer:
    """`fresh` with the folder's weights; says which weights were taken, drawn and left out.

    Raises:
        IncompatibleError: the folder is not the one that the recipe was pinned to.
        CheckpointError and others: it is no model.
    """
    require_same(Path(model.path), model.sha256)
    transfer = load_matching(open_weights(model.path).network, fresh)
    say(f"model: from {model.path}: {transfer.render()}")
    return transfer.model


def load_objective_state(objective: nn.Module, model: Folder, say: Callable[[str], None]) -> None:
    """Load into `objective` what was trained next to the folder's model, such as the generator of
    replaced tokens, if the objective has the same parts."""
    if names := checkpoints.take_others(objective, Path(model.path)):
        parts = sorted({name.partition(".")[0] for name in names})
        say(f"also loaded from the folder: {', '.join(parts)}")


def pinned_folder(path: str, wanted: str | None = None) -> tuple[str, str]:
    """The full path of a model folder, or of a run's newest checkpoint, and its hash.

    Raises:
        IncompatibleError: that is not the hash that is `wanted`.
    """
    full = _full(path)
    return str(full), _same(full, fingerprint(full), wanted)


def require_same(folder: Path, wanted: str | None) -> None:
    """Refuse a model folder whose hash is not `wanted`, if there is one."""
    if wanted is not None:
        _same(folder, fingerprint(folder), wanted)


def _full(path: str) -> Path:
    return folders.model_folder(model_folder(Path(path).expanduser())).resolve()


def _same(where: Path, found: str, wanted: str | None) -> str:
    if wanted is not None and found != wanted:
        raise IncompatibleError(
            "the model folder has changed since the recipe was written",
            where=where,
            found=found,
            wanted=wanted,
            do="restore it; or take the hash out of the recipe, to start from what is there now",
        )
    return found
