"""From a recipe's choices to the objects that train: the model and the objective (rows: `rows`).

This is the only place where the names in a recipe become objects. Folders that a recipe names are
pinned by their full paths and hashes, and refused before any work is done if they are missing
(`resolved`). A run that starts from a model folder uses its tokenizer and trains none. A resumed
run does not need the folder: it continues from its own checkpoint.

A new head above a folder's model is trained alone first (`HeadFirst`), then the model with it.
The head at the end of its own stage is saved in the run's folder: a loss before the pretraining
needs it (`continued_pretraining.worth`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.base import config
from maskwright.base.budget import Budget
from maskwright.base.errors import CheckpointError, ConfigError, IncompatibleError
from maskwright.base.randomness import key, torch_seed
from maskwright.base.storage import commit
from maskwright.base.terminal import Say, quiet
from maskwright.learn.pretrain.checkpoints import PREFIX
from maskwright.learn.pretrain.rows import check_length
from maskwright.learn.recipes.base.find import config_of, require_settings
from maskwright.learn.recipes.base.recipe import FamilyModel, Folder, Point, Recipe, TokenizerFolder
from maskwright.learn.train.loop import Hook
from maskwright.learn.train.optimizers import Parameters
from maskwright.learn.train.state import TrainState
from maskwright.model.adapters.base.freeze import learning_rate_factors
from maskwright.model.checkpoint import files, pretrained
from maskwright.model.checkpoint.layout import CheckpointLayout
from maskwright.model.checkpoint.matching import load_matching
from maskwright.model.checkpoint.safe_read import model_folder
from maskwright.model.nn.characters import SpelledVectors
from maskwright.model.nn.config import Patches, TransformerConfig
from maskwright.model.nn.initialise import build as build_transformer
from maskwright.model.nn.stack import recompute_layers
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.opening import folders, special_tokens
from maskwright.model.opening.folders import fingerprint
from maskwright.model.opening.open import open_weights
from maskwright.text.images.processor import ImageProcessor, PixelEncoder
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.merging import CONTINUATION

# ------------------------------------------------------------------------------ a new head
HEAD_FOLDER, HEAD_WEIGHTS = "head-first", "head.safetensors"


def new_heads(current: TransformerConfig, requested: TransformerConfig) -> tuple[str, ...]:
    """Return the parameter prefixes of the heads in `requested` that are not in `current`."""
    current_heads = {head.name: head for head in current.heads}
    new = ["vocabulary_head"] * (current.vocabulary_head != requested.vocabulary_head)
    new += ["pooler"] * (requested.pooler and not current.pooler)
    new += [f"heads.{h.name}" for h in requested.heads if current_heads.get(h.name) != h]
    return tuple(name for name in new if name != "vocabulary_head" or requested.vocabulary_head)


def layer_rates(network: Transformer, parameters: Parameters, decay: float) -> dict[str, float]:
    """Return the factor of the learning rate of each parameter: of the trained `network`, `decay`
    for each layer above it (Howard & Ruder 2018, 3.2); of others, 1."""
    factors = learning_rate_factors(network, decay)
    return {name: factors.get(name.removeprefix(PREFIX), 1.0) for name in parameters.named}


class HeadFirst(Hook):
    """Trains first a new head alone, then all parameters. It is a hook of the loop, which unfreezes
    the body, and the function of `ParameterRates`: learning rate factors by parameter name."""

    def __init__(
        self,
        choice: Folder,
        budget: Budget,
        parameters: Parameters,
        out: Path | None,
        rates: dict[str, float],
    ) -> None:
        self.choice, self.budget, self.parameters, self.out = choice, budget, parameters, out
        self.state, self.rates = TrainState(), rates
        self.new = [name for name in parameters.named if not self._is_body(name)]

    @staticmethod
    def is_needed(choice: object) -> TypeGuard[Folder]:
        """Whether a run initialises a new head above the model of the folder `choice`, and trains
        the two differently."""
        if not isinstance(choice, Folder) or not choice.new:
            return False
        return choice.head_first != 0.0 or choice.body_rate != 1.0

    def _is_body(self, name: str) -> bool:
        network_name = name.removeprefix(PREFIX)
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
        return {
            name: body_factor * rate if self._is_body(name) else 1.0
            for name, rate in self.rates.items()
        }

    def after_step(self, state: TrainState, record: dict[str, Any]) -> None:
        if self._body_frozen and not self.alone:
            if self.out is not None:
                masters = self.parameters.state()
                save_head(self.out, {n.removeprefix(PREFIX): masters[n] for n in self.new})
            self._set_body_trainable(True)

    def _set_body_trainable(self, learn: bool) -> None:
        """Train or freeze the body; a step without its gradients is much faster."""
        self._body_frozen = not learn
        for name, parameter in self.parameters.named.items():
            if self._is_body(name):
                parameter.requires_grad_(learn)


def save_head(out: Path, weights: dict[str, torch.Tensor]) -> None:
    """Save the `weights` of the head in the run folder `out`."""
    content = {name: tensor.detach().cpu().clone() for name, tensor in weights.items()}
    commit.commit(
        out / HEAD_FOLDER,
        lambda staging: staging.write_bytes(HEAD_WEIGHTS, files.chunks(content)),
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
def load_head(out: Path, model: Transformer, new: Sequence[str]) -> bool:
    """Load the head that the run `out` saved into `model`; return whether there is one. `new` are
    the prefixes of its parameters (see `new_heads`).

    Raises:
        CheckpointError: the file is damaged, or belongs to another model.
    """
    if not (out / HEAD_FOLDER).is_dir():
        return False
    commit.verify(out / HEAD_FOLDER)
    saved = files.open_file(out / HEAD_FOLDER / HEAD_WEIGHTS)
    head_parameters = {
        n: p
        for n, p in model.named_parameters()
        if n.startswith(tuple(f"{prefix}." for prefix in new))
    }
    if head_parameters.keys() != set(saved.entries):
        raise CheckpointError(
            "the saved head belongs to another model",
            where=out / HEAD_FOLDER,
            found=", ".join(sorted(saved.entries)[:5]),
            wanted=", ".join(sorted(head_parameters)[:5]),
            do="remove that folder, and start the run again",
        )
    for name, parameter in head_parameters.items():
        parameter.copy_(saved.read(name))
    return True


# ------------------------------------------------------------------------------ model and objective
def pixels(recipe: Recipe) -> PixelEncoder | None:
    """Return what makes documents of images, as the recipe's model reads them; None for texts."""
    if not isinstance(recipe.tokenizer, ImageProcessor):
        return None
    patches = transformer_config(recipe, None).tokens
    if not isinstance(patches, Patches):
        remedy = "choose a model that reads images, such as vit"
        raise IncompatibleError(
            "the recipe reads images, its model texts", where="model", do=remedy
        )
    recipe.tokenizer.require_fit(patches.image_size, patches.channels, "tokenizer")
    return PixelEncoder(recipe.tokenizer, patches.image_size, patches.channels)


def transformer_config(recipe: Recipe, tokenizer: Tokenizer | None) -> TransformerConfig:
    """Return the config of the recipe's model; its vocabulary size defaults to the tokenizer's.

    Raises:
        ConfigError: the model family does not know a setting.
        IncompatibleError: the vocabulary is smaller than the tokenizer's.
    """
    choice = recipe.model
    if isinstance(choice, FamilyModel):
        keys = {} if tokenizer is None else _special_ids(tokenizer)
        model_config = config_of(choice, keys)
    else:
        model_config = choice.config if isinstance(choice, Point) else layout(choice).config
    if tokenizer is None:
        return model_config
    if model_config.tokens.vocabulary < tokenizer.vocabulary_size:
        raise IncompatibleError(
            "the tokenizer has more tokens than the model's vocabulary",
            where="model",
            found=f"{tokenizer.vocabulary_size} tokens",
            wanted=f"at most {model_config.tokens.vocabulary}",
            do="train a smaller tokenizer (tokenizer.vocabulary)",
        )
    return model_config


def family_name(recipe: Recipe) -> str | None:
    """Return the family whose parameter names the recipe's model is saved under; None: the first
    family that the model belongs to."""
    if isinstance(recipe.model, Folder):
        member = layout(recipe.model).family
        return None if member is None else member.name
    return recipe.model.family if isinstance(recipe.model, FamilyModel) else None


def model(recipe: Recipe, network: TransformerConfig, say: Say = quiet) -> Transformer:
    """Build a model, initialised from the recipe's seed or with the weights of its model folder.

    Args:
        say: receives a line on which weights were loaded from a folder and which were missing.

    Raises:
        IncompatibleError: the folder has changed since the recipe was pinned.
        CheckpointError and others: the folder has no model.
    """
    generator = torch.Generator().manual_seed(torch_seed(key("init", recipe.training.seed)))
    initialisation = recipe.initialisation
    new_model = build_transformer(
        network,
        generator,
        distribution=initialisation.distribution,
        deviation=initialisation.deviation,
        scaled_residual=initialisation.scaled_residual,
    )
    if not isinstance(recipe.model, Folder):
        return new_model
    folder = Path(recipe.model.path)
    if recipe.model.sha256 is not None:
        _require_same(folder, recipe.model.sha256)
    transfer = load_matching(open_weights(folder).network, new_model)
    say(f"model: from {folder}: {transfer.render()}")
    return transfer.model


def objective(recipe: Recipe, network: Transformer, tokenizer: Tokenizer | None) -> Objective:
    """Build the recipe's objective around `network`. The objective's own weights are initialised
    from the recipe's seed, too."""
    member, options = recipe.objective.member, recipe.objective.checked
    if isinstance(network.tokens, SpelledVectors) and tokenizer is not None:
        continues = [*(~tokenizer.starts_word), *[False] * network.config.tokens.vocabulary]
        spelled = zip(tokenizer.vocabulary, continues, strict=False)
        texts = [t.removeprefix(CONTINUATION) if inside else t for t, inside in spelled]
        count = network.config.tokens.vocabulary
        network.tokens.spell([*texts, *[""] * (count - len(texts))], continues[:count])
    networks = {}
    for name, (folder, sha256) in _networks(recipe).items():
        if sha256 is not None:
            _require_same(folder, sha256)
        assert tokenizer is not None
        opened = open_weights(folder)
        if opened.words is not None:
            pretrained.require_tokenizer(opened.words.fingerprint, tokenizer)
        networks[name] = opened.network.to(network.device)
        check_length(recipe, networks[name].config, f"objective.options.{name}")
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(torch_seed(key("init", recipe.training.seed, 1)))
        try:
            images = recipe.tokenizer
            reader = images if isinstance(images, ImageProcessor) else tokenizer
            built = member.build(network, options, special_tokens.vocabulary(reader), **networks)
        except IncompatibleError as error:
            raise _with_remedy(error, recipe) from error
    assert isinstance(built, Objective)
    if recipe.training.gradient_checkpointing:
        recompute_layers(built)
    return built


def _with_remedy(error: IncompatibleError, recipe: Recipe) -> IncompatibleError:
    """Return `error`; if a folder's model lacks a head that the objective needs, with the remedy
    to initialise that head."""
    if not isinstance(recipe.model, Folder) or not str(error.where).startswith("model"):
        return error
    member = layout(recipe.model).family
    if member is None:
        return error
    names = ", ".join(member.architectures)
    remedy = f"draw it anew: --set model.architecture=NAME, of {names}"
    return IncompatibleError(
        error.what, where=error.where, found=error.found, wanted=error.wanted, do=remedy
    )


def resolved(recipe: Recipe) -> Recipe:
    """Return `recipe` with the hashes of its folders, after all checks that need no text.

    Raises:
        ConfigError: the family does not know a setting, the objective does not know an option, or
            a network that the objective needs is not named.
        IncompatibleError: the objective does not learn from such rows.
        UsageError, CheckpointError and others: a folder of the recipe has no model.
    """
    # Read the recipe back from its TOML text, as a resumed run will: this turns an integer 3 into
    # 3.0 for a float field and drops None values from free tables.
    recipe_toml = config.to_toml(recipe)
    try:
        recipe_toml.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            "a path cannot be written into recipe.toml",
            where="recipe",
            found=ascii(recipe_toml[max(0, error.start - 40) : error.end + 10]),
            wanted="paths in UTF-8",
            do="rename the file",
        ) from error
    reread = config.from_plain(Recipe, tomllib.loads(recipe_toml))
    if reread.objective == recipe.objective:
        reread = replace(reread, objective=recipe.objective)  # already resolved
    require_settings(reread)
    for name in reread.objective.spec.networks:
        if not reread.objective.options.get(name):
            raise ConfigError(
                f"`{reread.objective.name}` needs a {name}",
                where=f"objective.options.{name}",
                found="nothing",
                wanted="the folder of a model or of a run, with the tokenizer of this recipe",
                do=f"train one, and name it: --set objective.options.{name}=FOLDER",
            )
    for folder, _ in _networks(reread).values():
        pretrained.described(folders.model_folder(folder))
    return pinned(reread)


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
        model = replace(model, path=str(_full_path(model.path)))
        requested = layout(model).config
        model = replace(model, sha256=_require_same(Path(model.path), model.sha256))
        if model.head_first != 0.0 or model.body_rate != 1.0:
            current = pretrained.described(model.path).config
            model = replace(model, new=new_heads(current, requested))
        if isinstance(requested.tokens, Patches):
            images = pretrained.image_processor(Path(model.path), requested.tokens)
            tokenizer = images or tokenizer
        elif not isinstance(tokenizer, TokenizerFolder):
            tokenizer = TokenizerFolder(path=model.path)
    if isinstance(tokenizer, TokenizerFolder):
        path = _full_path(tokenizer.path)
        loaded = Tokenizer.load(path)
        fingerprint = _require_digest(path, loaded.fingerprint, tokenizer.fingerprint)
        tokenizer = TokenizerFolder(path=str(path), fingerprint=fingerprint)
        if isinstance(model, Folder):
            pretrained.require_tokenizer(Tokenizer.load(model.path).fingerprint, loaded)
    options = dict(recipe.objective.options)
    for name in recipe.objective.spec.networks:
        full = _full_path(options[name])
        digest = _require_same(full, options.get(f"{name}_sha256"))
        options |= {name: str(full), f"{name}_sha256": digest}
    objective_choice = recipe.objective.with_options(options)
    return replace(recipe, model=model, tokenizer=tokenizer, objective=objective_choice)


def resumed(recipe: Recipe, out: Path) -> Recipe:
    """Return `recipe`; if it starts from a model folder, with the newest checkpoint of the run
    `out` as that folder."""
    if not isinstance(recipe.model, Folder):
        return recipe
    return replace(recipe, model=Folder(path=str(folders.newest(out))))


def layout(model: Folder) -> CheckpointLayout:
    """Return the family of the folder's model, and its config with the heads of the recipe."""
    return pretrained.described(model.path, model.architecture)


def _networks(recipe: Recipe) -> dict[str, tuple[Path, str | None]]:
    """Return (folder, hash or None) of each further network of the objective, by its name."""
    options = vars(recipe.objective.checked)
    names = recipe.objective.spec.networks
    return {name: (Path(options[name]), options[f"{name}_sha256"]) for name in names}


def _full_path(path: str) -> Path:
    return folders.model_folder(model_folder(Path(path).expanduser())).resolve()


def _require_same(folder: Path, expected_digest: str | None) -> str:
    """Return the hash of a model folder."""
    return _require_digest(folder, fingerprint(folder), expected_digest)


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


def _special_ids(tokenizer: Tokenizer) -> dict[str, Any]:
    ids = {
        "vocab_size": tokenizer.vocabulary_size,
        "pad_token_id": tokenizer.pad,
        "bos_token_id": tokenizer.begin,
        "eos_token_id": tokenizer.end,
        "sep_token_id": tokenizer.separator,
    }
    return {k: v for k, v in ids.items() if v is not None}
