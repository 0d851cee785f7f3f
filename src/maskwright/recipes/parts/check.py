"""What of a recipe can be refused before torch is loaded: names of objectives and families, and
settings that the family does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maskwright import catalogue
from maskwright.errors import UsageError, near
from maskwright.families.parts.family import family
from maskwright.nn.config import TransformerConfig
from maskwright.recipes.parts.recipe import FamilyModel, Recipe


def require_names(recipe: Recipe) -> None:
    """Refuse a recipe that names what there is not.

    Raises:
        UsageError: no such objective or family.
        ConfigError: no such size, or a setting that the family does not know or take.
    """
    known = catalogue.names("objectives")
    if recipe.objective.name not in known:
        raise UsageError(
            "no objective of that name",
            where="objective.name",
            found=repr(recipe.objective.name),
            wanted=near(recipe.objective.name, known),
            do="maskwright list objectives",
        )
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
