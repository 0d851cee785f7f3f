"""Which rows a recipe's objective learns from, and what a store has to record for them."""

from __future__ import annotations

from typing import get_args, get_type_hints

from maskwright.base.errors import IncompatibleError
from maskwright.learn.recipes.base.recipe import Recipe, RowChoice

PAIRS = ("pairs", "swapped-pairs")


def row_kind(recipe: Recipe) -> str:
    """Return the kind of the recipe's rows; by default that of its objective."""
    return recipe.objective.spec.rows if recipe.rows.kind == "auto" else recipe.rows.kind


def streams(recipe: Recipe) -> bool:
    """Whether the last token of a stream's row is only a target: for objectives that predict the
    next token, and those with further networks, whose student may be a decoder."""
    spec = recipe.objective.spec
    return spec.rows == "stream" or bool(spec.networks)


def needs_sentences(recipe: Recipe) -> bool:
    """Whether the store has to record where sentences start."""
    return row_kind(recipe) in ("sentences", *PAIRS) or recipe.objective.spec.sentences


def require_rows(recipe: Recipe) -> None:
    """Check that the objective can be trained on the recipe's rows. Each kind of pairs is for one
    objective; others learn from any text.

    Raises:
        IncompatibleError: it cannot, or it does not learn from text.
    """
    name, kind, usual_kind = recipe.objective.name, row_kind(recipe), recipe.objective.spec.rows
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
