"""From stored tokens to the rows that the recipe's objective learns from, or is measured on."""

from __future__ import annotations

from collections.abc import Sequence

from maskwright.data.mixture import mixed
from maskwright.data.pack import PackedDocuments, PackedSentences
from maskwright.data.pairs import SentencePairs
from maskwright.data.rows import RowSource
from maskwright.data.store import TokenStore
from maskwright.data.stream import Stream, Windows
from maskwright.inference import held_out_loss as likelihood
from maskwright.recipes.parts.objective_rows import require_rows, row_kind, streams
from maskwright.recipes.parts.recipe import Recipe


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
    spec = recipe.objective.spec
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
            length = spec.text_length(recipe.objective.checked, length)
        return Windows(store, length, step=length)
    if kind == "pairs":
        return SentencePairs(store, length, seed=seed)
    assert kind == "swapped-pairs"
    return SentencePairs(store, length, seed=seed, negatives="swapped")
