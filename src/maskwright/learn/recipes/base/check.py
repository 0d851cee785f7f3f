"""Checks of a recipe before torch is loaded and any text is read: names of objectives and families,
options of the objective, its rows, and settings of the family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maskwright.base import catalogue
from maskwright.base.errors import UsageError, near
from maskwright.learn.recipes.base.objective_rows import require_rows
from maskwright.learn.recipes.base.recipe import FamilyModel, Recipe
from maskwright.model.families.base.family import family
from maskwright.model.nn.config import TransformerConfig


def require_settings(recipe: Recipe) -> None:
    """Check the settings of a recipe that do not depend on its text.

    Raises:
        UsageError: the objective or family does not exist.
        ConfigError: the size does not exist, or a setting of the family or an option of the
            objective is unknown or invalid.
        IncompatibleError: the objective does not learn from such rows.
    """
    objectives = catalogue.names("objectives")
    if recipe.objective.name not in objectives:
        raise UsageError(
            "no objective of that name",
            where="objective.name",
            found=repr(recipe.objective.name),
            wanted=near(recipe.objective.name, objectives),
            do="maskwright list objectives",
        )
    require_rows(recipe)
    member, options = recipe.objective.member, recipe.objective.options
    # Networks may be named later.
    member.read({**dict.fromkeys(member.spec.networks, "."), **options})
    if isinstance(recipe.model, FamilyModel):
        # With any vocabulary size; that of the tokenizer is checked later.
        config_of(recipe.model, {"vocab_size": 1 << 16})


def config_of(model: FamilyModel, of_tokenizer: Mapping[str, Any]) -> TransformerConfig:
    """Return the config of a family's model; `of_tokenizer` has keys of its config.json.

    Raises:
        UsageError: the family does not exist.
        ConfigError: the size does not exist, or a setting is unknown or invalid.
    """
    member = family(model.family)
    keys = {**of_tokenizer, **model.settings}
    architectures = {"architectures": [model.architecture]}
    if model.size is None:
        config = member.config({**keys, **architectures})
    else:
        config = member.size(model.size, model.architecture, **keys)
        keys = {**member.sizes[model.size], **keys}
    member.require_known(model.settings, {**keys, **architectures}, "model.settings")
    return config
