"""What a recipe's objective asks for: its Spec, its options, the rows it learns from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from maskwright import catalogue, config
from maskwright.checkpoint.conventions import Conventions
from maskwright.models import of_recipe
from maskwright.objectives.parts.objective import Objective
from maskwright.objectives.parts.spec import Spec, Usual
from maskwright.recipes.parts.recipe import Recipe

PAIRS = ("pairs", "swapped-pairs")


@dataclass(frozen=True)
class Member:
    """An objective as a module of its room gives it.

    Attributes:
        name: by which recipes choose it.
        options: the type of its options.
        build: (network, options, vocabulary, further networks by name) -> the objective.
    """

    name: str
    spec: Spec
    options: type
    build: Callable[..., Objective]


def member_of(name: str) -> Member:
    """The objective of that name.

    Raises:
        UsageError: there is none; the message has the near names.
    """
    module = catalogue.load("objectives", name)
    return Member(name, module.SPEC, module.Options, module.build)


def usual_for(form: Usual) -> Member:
    """The objective by which any model of that form is measured, and trained further."""
    return next(each for each in _members() if each.spec.usual_for == form)


def _members() -> Iterator[Member]:
    return map(member_of, catalogue.names("objectives"))


def spec_of(recipe: Recipe) -> Spec:
    """The Spec of the recipe's objective."""
    return member_of(recipe.objective.name).spec


def options_of(recipe: Recipe) -> Any:
    """The options of the recipe's objective.

    Raises:
        ConfigError: one that it does not take.
    """
    options = member_of(recipe.objective.name).options
    return config.from_plain(options, recipe.objective.options, "objective.options")


def row_kind(recipe: Recipe) -> str:
    """Which rows the objective learns from, unless the recipe says otherwise."""
    return spec_of(recipe).rows if recipe.rows.kind == "auto" else recipe.rows.kind


def streams(recipe: Recipe) -> bool:
    """Whether the last token of a stream's row is wanted and not read. A student may be a decoder,
    for which it is."""
    spec = spec_of(recipe)
    return spec.rows == "stream" or bool(spec.networks)


def needs_sentences(recipe: Recipe) -> bool:
    """Whether the store has to say where sentences start."""
    return row_kind(recipe) in ("sentences", *PAIRS) or spec_of(recipe).sentences


def conventions_of(recipe: Recipe, stacks: int) -> Conventions:
    """How the recipe's model, of one stack or two, is to be asked."""
    objective, rows, corpus = map(config.to_plain, (recipe.objective, recipe.rows, recipe.corpus))
    return of_recipe.conventions_of(objective, rows, corpus, stacks)
