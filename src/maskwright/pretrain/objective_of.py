"""What a recipe's objective asks for: its options, the rows it eats, how its model is read."""

from __future__ import annotations

from typing import Any

from maskwright import catalogue, config
from maskwright.checkpoint.layout import Taught
from maskwright.recipes.parts.recipe import Recipe

PAIRS = ("pairs", "swapped-pairs")
FRAMED = ("documents", "sentences")
"""Rows in which every text stands in its frame."""


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


def shift(recipe: Recipe) -> int:
    """How many places before a hole the recipe's model is read off."""
    return int(getattr(catalogue.load("objectives", recipe.objective.name), "SHIFT", 0))


def reads_whole(recipe: Recipe) -> bool:
    """Whether the recipe's model was taught to read a prompt in both directions."""
    return bool(getattr(catalogue.load("objectives", recipe.objective.name), "WHOLE", False))


def writes(recipe: Recipe) -> bool:
    """Whether an encoder of the recipe was taught to go on with a text."""
    return bool(getattr(catalogue.load("objectives", recipe.objective.name), "WRITES", False))


def taught_of(recipe: Recipe, stacks: int) -> Taught:
    """How the recipe's model, of one stack or two, is to be asked."""
    streamed = catalogue.load("objectives", recipe.objective.name).ROWS == "stream"
    goes_on = writes(recipe) or reads_whole(recipe) or streamed
    return Taught(
        shift=shift(recipe),
        whole=reads_whole(recipe),
        decoder=stacks == 1 or decoder_start(recipe) is not None,
        writes=writes(recipe),
        framed=stacks == 1 and goes_on and row_kind(recipe) in FRAMED,
    )


def decoder_start(recipe: Recipe) -> str | None:
    """The role of the token that the decoder of two stacks is taught to begin with; None where the
    objective leaves the decoder as it was."""
    options = options_of(recipe)
    return str(options.start) if hasattr(options, "start") else None
