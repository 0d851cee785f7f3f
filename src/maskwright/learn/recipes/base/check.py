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
    """Refuse settings that no run of the recipe could use, whatever its text is.

    Raises:
        UsageError: no such objective or family.
        ConfigError: no such size, or a setting that the family, or an option that the objective,
            does not know or take.
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
        # Whatever the tokenizer will be; its own numbers are looked at when it is there.
        config_of(recipe.model, {"vocab_size": 1 << 16})


def config_of(model: FamilyModel, of_tokenizer: Mapping[str, Any]) -> TransformerConfig:
    """The config of a family's model; `of_tokenizer` are keys of its config.json.

    Raises:
        UsageError: no such family.
        ConfigError: no such size, or a setting that the family does not know or take.
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
