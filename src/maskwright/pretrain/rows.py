"""From stored tokens to the rows that the recipe's objective learns from, or is measured on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args, get_type_hints

from maskwright.data.mixture import mixed
from maskwright.data.pack import PackedDocuments, PackedSentences
from maskwright.data.pairs import SentencePairs
from maskwright.data.rows import RowSource
from maskwright.data.store import TokenStore
from maskwright.data.stream import Stream, Windows
from maskwright.errors import IncompatibleError
from maskwright.inference import held_out_loss as likelihood
from maskwright.pretrain.objective_of import PAIRS, options_of, row_kind, spec_of, streams
from maskwright.recipes.parts.recipe import Recipe, RowChoice


def held_out_rows(recipe: Recipe, store: TokenStore, length: int | None = None) -> RowSource:
    """`rows` to evaluate on: the same for every seed of the recipe."""
    return rows(recipe, store, length, seed=likelihood.SEED)


def training_rows(
    recipe: Recipe, stores: Sequence[TokenStore], length: int | None = None
) -> RowSource:
    """`rows` of one store, or of several mixed by the weights of the recipe's texts."""
    sources = [rows(recipe, store, length) for store in stores]
    return mixed(sources, recipe.corpus.weights, seed=recipe.training.seed)


def rows(
    recipe: Recipe, store: TokenStore, length: int | None = None, *, seed: int | None = None
) -> RowSource:
    """The store's tokens as rows of `length`, the recipe's own if none is given; so is the seed.

    Objectives that predict the next token get one token more per row, and those that shorten a
    block of text get blocks of which so many are left.

    Raises:
        IncompatibleError: the objective does not learn from such rows.
    """
    require_rows(recipe)
    kind, length = row_kind(recipe), length or recipe.rows.length
    spec = spec_of(recipe)
    shifted = spec.rows == "stream"
    seed = recipe.training.seed if seed is None else seed
    if kind == "documents":
        return PackedDocuments(store, length, seed=seed)
    if kind == "sentences":
        return PackedSentences(store, length + 1 if shifted else length, seed=seed)
    if kind == "stream":
        return Stream(store, length if streams(recipe) else length - 1)  # and one token more
    if kind == "windows":
        return Windows(store, length + 1 if shifted else length)
    if kind == "blocks":
        if spec.text_length is not None:
            length = spec.text_length(options_of(recipe), length)
        return Windows(store, length, step=length)
    if kind == "pairs":
        return SentencePairs(store, length, seed=seed)
    assert kind == "swapped-pairs"
    return SentencePairs(store, length, seed=seed, negatives="swapped")


def require_rows(recipe: Recipe) -> None:
    """Refuse rows without what the objective learns from. Pairs are made for one objective each;
    the others learn from any text.

    Raises:
        IncompatibleError: the rows are of another kind, or no text is what the objective wants.
    """
    name, kind = recipe.objective.name, row_kind(recipe)
    own = spec_of(recipe).rows
    if own not in get_args(get_type_hints(RowChoice)["kind"]):
        raise IncompatibleError(
            f"`{name}` learns from labelled data, and a text has no labels",
            where="objective.name",
            found=name,
            wanted="an objective that learns from text alone (maskwright list objectives)",
            do="with labelled data: maskwright finetune",
        )
    drawn = "corpus.weights" if recipe.corpus.weights else "rows.kind" if kind in PAIRS else ""
    if drawn and (static := _static(recipe)):
        raise IncompatibleError(
            "static masking needs rows that are the same in every epoch",
            where=drawn,
            found=f"{'pairs drawn' if kind in PAIRS else 'rows mixed'} anew in every epoch, and "
            f"{static}",
            wanted="one of them",
            do=f"--set {static}=false",
        )
    if own in PAIRS and kind != own:
        raise IncompatibleError(
            f"`{name}` does not learn from rows of this kind",
            where="rows.kind",
            found=kind,
            wanted=own,
            do=f"--set rows.kind={own}, or choose another objective",
        )


def _static(recipe: Recipe) -> str:
    """The setting by which masks never change; empty where they do."""
    options = options_of(recipe)
    masking = getattr(options, "masking", None)
    if getattr(options, "static", False):
        return "objective.options.static"
    return "objective.options.masking.static" if getattr(masking, "static", False) else ""
