"""What recipes, and the published sizes of families, cost on this machine: tables of estimates from
one measurement of a few seconds, the steps of `MEASURED`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from maskwright.base import catalogue
from maskwright.base.errors import MaskwrightError
from maskwright.learn.pretrain.cost import estimate, measure
from maskwright.learn.recipes.base.find import find
from maskwright.learn.recipes.base.recipe import FamilyModel, Recipe

MEASURED = "bert-mini"
TOKENS_PER_PARAMETER = 20  # Hoffmann et al. 2022, arXiv:2203.15556, table 3
CostRow = tuple[str, str, str, int, float, float]
"""Name, family, objective, number of parameters, tokens per second, seconds of the training; of
models that are not estimated, such as those without layers, the last three are 0."""


def table(set_name: str) -> list[CostRow]:
    """Return the rows of the recipes, whose seconds are those of their budget, or of the models,
    whose seconds are those of `TOKENS_PER_PARAMETER`."""
    measured = measure(find(MEASURED))
    per_flop = measured.seconds_per_token / measured.flops
    recipes = {name: find(name) for name in catalogue.names("recipes")}
    if set_name == "models":
        return [_row(*model, per_flop, TOKENS_PER_PARAMETER) for model in _models(recipes)]
    return [_row(name, recipe, per_flop) for name, recipe in recipes.items()]


def _models(recipes: dict[str, Recipe]) -> Iterator[tuple[str, Recipe]]:
    """Yield a recipe for each published size of each family that some recipe trains."""
    of_family: dict[str, tuple[Recipe, FamilyModel]] = {}
    for recipe in recipes.values():
        if isinstance(model := recipe.model, FamilyModel):
            of_family.setdefault(model.family, (recipe, model))
    for family in sorted(of_family):
        recipe, model = of_family[family]
        for size, settings in catalogue.load("families", family).SIZES.items():
            words = {key: value for key, value in settings.items() if key == "vocab_size"}
            sized = replace(model, size=size, settings=words)
            yield f"{family}-{size}", replace(recipe, model=sized)


def _row(name: str, recipe: Recipe, per_flop: float, per_parameter: int = 0) -> CostRow:
    family = recipe.model.family if isinstance(recipe.model, FamilyModel) else "-"
    head = (name, family, recipe.objective.name)
    try:
        cost = estimate(recipe, per_flop)
    except MaskwrightError:  # sizes of another kind than the recipe of the family
        cost = None
    if cost is None:
        return (*head, 0, 0.0, 0.0)
    budget, per_token = recipe.training.budget, cost.seconds_per_token
    if per_parameter:
        seconds = per_parameter * cost.parameters * per_token
    elif budget.minutes is not None:
        seconds = 60 * budget.minutes
    else:
        steps = (budget.steps or 0) * cost.seconds
        seconds = steps or (budget.tokens or 0) * per_token or (budget.flops or 0) * per_flop
    return (*head, cost.parameters, 1 / per_token, seconds if math.isfinite(seconds) else 0.0)
