"""Checks of a recipe before torch is loaded and any text is read: names of objectives and families,
options of the objective, its rows, and settings of the family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from maskwright.base import catalogue
from maskwright.base.errors import IncompatibleError, UsageError, near
from maskwright.learn.recipes.base.recipe import PAIRS, FamilyModel, Recipe, RowChoice
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


def require_rows(recipe: Recipe) -> None:
    """Check that the objective can be trained on the recipe's rows. Each kind of pairs is for one
    objective; others learn from any text.

    Raises:
        IncompatibleError: it cannot, or it does not learn from text.
    """
    name, kind, usual_kind = recipe.objective.name, recipe.row_kind, recipe.objective.spec.rows
    if usual_kind not in get_args(get_type_hints(RowChoice)["kind"]):
        raise IncompatibleError(
            f"`{name}` learns from labelled data, and a text has no labels",
            where="objective.name",
            found=name,
            wanted="an objective that learns from text alone (maskwright list objectives)",
            do="with labelled data: maskwright finetune MODEL --data FILE",
        )
    mixed = "corpus.weights" if recipe.corpus.weights else "corpus.temperature"
    sampled = mixed if recipe.corpus.mixed else "rows.kind" if kind in PAIRS else ""
    if sampled and (static := _static_setting(recipe)):
        raise IncompatibleError(
            "static masking needs rows that are the same in every epoch",
            where=sampled,
            found=f"{'pairs' if kind in PAIRS else 'mixed rows'} that are sampled anew in every "
            f"epoch, and {static}",
            wanted="one of them",
            do=f"--set {static}=false",
        )
    if usual_kind in PAIRS and kind != usual_kind:
        raise IncompatibleError(
            f"`{name}` does not learn from rows of this kind",
            where="rows.kind",
            found=kind,
            wanted=usual_kind,
            do=f"--set rows.kind={usual_kind}, or choose another objective",
        )


def _static_setting(recipe: Recipe) -> str:
    """Return the setting that keeps masks the same in every epoch; "" if it is not on."""
    path = recipe.objective.spec.static_option
    if not path:
        return ""
    value = recipe.objective.checked
    for name in path.split("."):
        value = vars(value)[name]
    return f"objective.options.{path}" if value else ""
