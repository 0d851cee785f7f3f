"""What a recipe's objective asks for: its options, the rows it eats, how its model is read."""

from __future__ import annotations

from typing import Any

from maskwright import catalogue, config
from maskwright.checkpoint.conventions import Conventions
from maskwright.models import of_recipe
from maskwright.recipes.parts.recipe import Recipe

PAIRS = ("pairs", "swapped-pairs")


def options_of(recipe: Recipe) -> Any:
    """The options of the recipe's objective.

    Raises:
        ConfigError: one that it does not take.
    """
    member = catalogue.load("objectives", recipe.objective.name)
    return config.from_plain(member.Options, recipe.objective.options, "objective.options")


def row_kind(recipe: Recipe) -> str:
    """Which rows the objective eats, unless the recipe says otherwise."""
    if recipe.rows.kind != "auto":
        return recipe.rows.kind
    return str(catalogue.load("objectives", recipe.objective.name).ROWS)


def streams(recipe: Recipe) -> bool:
    """Whether the last token of a stream's row is wanted and not read. A student may be a decoder,
    for which it is."""
    member = catalogue.load("objectives", recipe.objective.name)
    return member.ROWS == "stream" or hasattr(member, "NETWORKS")


def needs_sentences(recipe: Recipe) -> bool:
    """Whether the store has to say where sentences start."""
    member = catalogue.load("objectives", recipe.objective.name)
    asked = row_kind(recipe) in ("sentences", *PAIRS)
    return asked or getattr(member, "SENTENCES", False)


def conventions_of(recipe: Recipe, stacks: int) -> Conventions:
    """How the recipe's model, of one stack or two, is to be asked."""
    objective, rows, corpus = map(config.to_plain, (recipe.objective, recipe.rows, recipe.corpus))
    return of_recipe.conventions_of(objective, rows, corpus, stacks)
