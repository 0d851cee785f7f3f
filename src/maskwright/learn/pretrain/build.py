"""From a recipe's choices to the objects that train: the model and the objective (rows: `rows`).

This is the only place where the names in a recipe become objects. Folders that a recipe names are
pinned by their hashes, and refused before any work is done if they are missing (`resolved`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from maskwright.base import config
from maskwright.base.errors import ConfigError, IncompatibleError
from maskwright.base.randomness import key, torch_seed
from maskwright.base.toml import to_toml
from maskwright.learn.pretrain import start
from maskwright.learn.pretrain.rows import check_length
from maskwright.learn.recipes.base.check import config_of, require_settings
from maskwright.learn.recipes.base.recipe import FamilyModel, Folder, Point, Recipe
from maskwright.model.checkpoint import pretrained
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.initialise import build as build_transformer
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.opening import folders, special_tokens
from maskwright.model.opening.open import open_weights
from maskwright.text.tokenizer.tokenizer import Tokenizer


def transformer_config(recipe: Recipe, tokenizer: Tokenizer) -> TransformerConfig:
    """Return the config of the recipe's model; its vocabulary size defaults to the tokenizer's.

    Raises:
        ConfigError: the model family does not know a setting.
        IncompatibleError: the vocabulary is smaller than the tokenizer's.
    """
    choice = recipe.model
    if isinstance(choice, FamilyModel):
        vocabulary_size = {"vocab_size": tokenizer.vocabulary_size}
        model_config = config_of(choice, {**vocabulary_size, **_special_ids(tokenizer)})
    else:
        model_config = choice.config if isinstance(choice, Point) else start.layout(choice).config
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
        member = start.layout(recipe.model).family
        return None if member is None else member.name
    return recipe.model.family if isinstance(recipe.model, FamilyModel) else None


def model(
    recipe: Recipe,
    network: TransformerConfig,
    say: Callable[[str], None] = lambda text: None,
) -> Transformer:
    """Build a model, initialised from the recipe's seed or with the weights of its model folder.

    Args:
        say: receives a line on which weights were loaded from a folder and which were missing.
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
    return (
        start.init_from_folder(recipe.model, new_model, say)
        if isinstance(recipe.model, Folder)
        else new_model
    )


def objective(recipe: Recipe, network: Transformer, tokenizer: Tokenizer) -> Objective:
    """Build the recipe's objective around `network`. The objective's own weights are initialised
    from the recipe's seed, too."""
    member, options = recipe.objective.member, recipe.objective.checked
    networks = {}
    for name, (folder, sha256) in _networks(recipe).items():
        start.require_same(folder, sha256)
        networks[name] = _trained_network(folder, tokenizer).to(network.device)
        check_length(recipe, networks[name].config, f"objective.options.{name}")
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(torch_seed(key("init", recipe.training.seed, 1)))
        try:
            built = member.build(network, options, special_tokens.vocabulary(tokenizer), **networks)
        except IncompatibleError as error:
            raise _with_remedy(error, recipe) from error
    assert isinstance(built, Objective)
    return built


def _with_remedy(error: IncompatibleError, recipe: Recipe) -> IncompatibleError:
    """Return `error`; if a folder's model lacks a head that the objective needs, with the remedy
    to initialise that head."""
    if not isinstance(recipe.model, Folder) or not str(error.where).startswith("model"):
        return error
    member = start.layout(recipe.model).family
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
    recipe_toml = to_toml(recipe)
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
    recipe = reread
    require_settings(recipe)
    _require_networks(recipe)
    recipe = start.pinned(recipe)
    options = dict(recipe.objective.options)
    for name in recipe.objective.spec.networks:
        path, digest = start.pinned_folder(options[name], options.get(f"{name}_sha256"))
        options |= {name: path, f"{name}_sha256": digest}
    return replace(recipe, objective=recipe.objective.with_options(options))


def _require_networks(recipe: Recipe) -> None:
    for name in recipe.objective.spec.networks:
        if not recipe.objective.options.get(name):
            raise ConfigError(
                f"`{recipe.objective.name}` needs a {name}",
                where=f"objective.options.{name}",
                found="nothing",
                wanted="the folder of a model or of a run, with the tokenizer of this recipe",
                do=f"train one, and name it: --set objective.options.{name}=FOLDER",
            )
    for folder, _ in _networks(recipe).values():
        pretrained.described(folders.model_folder(folder))


def _networks(recipe: Recipe) -> dict[str, tuple[Path, str | None]]:
    """Return (folder, hash or None) of each further network of the objective, by its name."""
    options = vars(recipe.objective.checked)
    names = recipe.objective.spec.networks
    return {name: (Path(options[name]), options[f"{name}_sha256"]) for name in names}


def _trained_network(folder: Path, tokenizer: Tokenizer) -> Transformer:
    """Load the network of a model folder, or of the newest checkpoint of a run.

    Raises:
        IncompatibleError: its tokenizer differs from `tokenizer`.
    """
    model = open_weights(folder)
    if model.words is not None:
        pretrained.require_tokenizer(model.words.fingerprint, tokenizer)
    return model.network


def _special_ids(tokenizer: Tokenizer) -> dict[str, Any]:
    ids = {
        "pad_token_id": tokenizer.pad,
        "bos_token_id": tokenizer.begin,
        "eos_token_id": tokenizer.end,
    }
    return {k: v for k, v in ids.items() if v is not None}
