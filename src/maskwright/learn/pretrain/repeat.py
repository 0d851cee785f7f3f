"""Repeating a run from its folder, which holds all tokens and the tokenizer that made them.

the text exists and is the same     it is read again
the text exists and has changed     it is read as it is now, with a note
the text does not exist             the tokens of the run are used, with a note
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from maskwright.base.findings import Finding
from maskwright.learn.pretrain.prepare import is_prepared, take_tokens, text_changed, text_is_there
from maskwright.learn.recipes.base.find import read
from maskwright.learn.recipes.base.objective_rows import needs_sentences
from maskwright.learn.recipes.base.recipe import Recipe, TokenizerFolder

RECIPE = "recipe.toml"


def same_tokens(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes make the same tokens from one text."""

    def tokenizer(recipe: Recipe) -> object:
        chosen = recipe.tokenizer
        known = isinstance(chosen, TokenizerFolder) and chosen.fingerprint is not None
        return chosen.fingerprint if known else chosen  # type: ignore[union-attr]

    choices = (lambda r: r.corpus, tokenizer, needs_sentences)
    return all(choice(one) == choice(other) for choice in choices)


def with_its_tokenizer(recipe: Recipe, origin: Path | None) -> Recipe:
    """`recipe` with the tokenizer in the run `origin`, if the tokenizer folder it names does not
    exist."""
    named = recipe.tokenizer
    if origin is None or not isinstance(named, TokenizerFolder) or Path(named.path).is_dir():
        return recipe
    saved = origin / "tokenizer"
    return replace(recipe, tokenizer=replace(named, path=str(saved))) if saved.is_dir() else recipe


def take(recipe: Recipe, origin: Path | None, out: Path, say: Callable[[str], None]) -> None:
    """Copy the tokens of the run `origin` into the run `out` if the text they were made of does not
    exist; if it has changed, note that.

    Raises:
        OutputError, StorageError, StoppedError: they cannot be written.
    """
    corpus = recipe.corpus
    if origin is None or is_prepared(corpus, out) or not is_prepared(corpus, origin):
        return
    if not same_tokens(read(origin / RECIPE), recipe):
        return
    if not (changed := text_changed(corpus, origin)):
        return
    change = changed[0] + ", …" * (len(changed) > 1)
    if text_is_there(corpus):
        what = f"the text is not what {origin} learned from"
        say(Finding("other-text", what, change, "this run reads it as it is now").line())
        return
    what = f"this run takes the tokens that {origin} made of its text"
    say(Finding("tokens-of-another-run", what, change).line())
    take_tokens(origin, out)
