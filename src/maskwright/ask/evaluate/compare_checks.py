"""Whether recipes can be compared, and by which figures."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from maskwright.ask.evaluate.compare_recipe import ComparedRecipe
from maskwright.ask.evaluate.compare_report import Metric
from maskwright.base import config, dotted
from maskwright.base.errors import ConfigError, IncompatibleError, UsageError
from maskwright.base.findings import Finding
from maskwright.learn.recipes.base.check import config_of
from maskwright.learn.recipes.base.recipe import FamilyModel, Recipe, frozen_part
from maskwright.model.families.base.family import family
from maskwright.text.tokenizer.choice import TokenizerChoice

# What of the corpus decides the held-out text: files named for it, or a share of all.
NAMED = ("held_out_text", "form", "column", "on_bad")
APART = ("training.seed", "training.budget")
KIND = ("kind", "lowercase")  # of tokenizers: two that differ in one are two
LOSS = Metric("loss", "held-out loss")
OWN = Metric("loss", "own held-out loss", compares=False)
# Of replaced tokens the network beside the model is asked, which draws them.
GENERATOR = replace(LOSS, title="held-out loss of the generator")
BITS = Metric("bits_per_byte", "bits per byte")
# Folded capitals and unknown words cost nothing to predict: such figures are of different texts.
KEPT_BITS = replace(BITS, title="bits per byte of what its tokenizer keeps", compares=False)
MASKED = Metric("masked_loss", "masked loss (15 %)")
# The one question to models that read both ways and models that read one way.
HIDDEN = Metric("hidden", "hidden tokens named (15 %)", higher_is_better=True)
PAIRS = Metric("pairs", "minimal pairs", higher_is_better=True)


def refuse_names(recipes: Sequence[Recipe], seeds: int) -> None:
    """Refuse recipes that cannot be told apart, or none.

    Raises:
        UsageError: with the names.
    """
    names = [r.name for r in recipes]
    if not names or seeds < 1:
        raise UsageError("nothing to compare", found=f"{len(names)} recipes, {seeds} seeds")
    for name in names:
        if names.count(name) > 1 or not name or name.startswith(".") or "/" in name:
            raise UsageError(
                "recipes are told apart by their names",
                where="name",
                found=", ".join(names),
                wanted="different names without a slash",
                do="maskwright show RECIPE --set name=OTHER > other.toml",
            )


def refuse_equal(recipes: Sequence[Recipe]) -> None:
    """Refuse to train the same thing twice.

    Raises:
        UsageError: naming the two recipes.
    """
    for recipe, second in itertools.combinations(recipes, 2):
        if set(differences([recipe, second])[1]) <= {"model.size"}:  # its settings are compared
            raise UsageError(
                "two recipes are equal but for their names",
                where="recipes",
                found=f"{recipe.name} and {second.name}",
                wanted="a setting that differs, and not by being said where it is the default",
                do="leave one out, or change it: maskwright show RECIPE --set … > other.toml",
            )


def differences(recipes: Sequence[Recipe]) -> tuple[list[dict[str, Any]], list[str]]:
    """The plain recipes, and the path of each setting that is not the same in all. Where they share
    objective or family, what a recipe does not say is there as its default."""
    plain = [frozen_part(recipe) for recipe in recipes]
    families = {getattr(recipe.model, "family", None) for recipe in recipes}
    for recipe, values in zip(recipes, plain, strict=True):
        if len({recipe.objective.name for recipe in recipes}) == 1:
            values["objective"]["options"] |= config.to_plain(recipe.objective.checked)
        if len(families) == 1 and isinstance(recipe.model, FamilyModel):
            member = family(recipe.model.family)
            settings = member.read(config_of(recipe.model, {"vocab_size": 1 << 16}))
            values["model"]["settings"] |= {**settings, "architectures": None}
    paths = dict.fromkeys(
        path
        for compared in plain[1:]
        for path, _, _ in dotted.differences(plain[0], compared)
        if not path.startswith(APART)
    )
    return plain, list(paths)


def refuse_incomparable(recipes: Sequence[Recipe], *, pairs: bool) -> None:
    """Refuse before any work what `measures` would refuse, where the recipes show it: tokenizers of
    other kinds, without bits per byte for all.

    Raises:
        IncompatibleError: naming the fields that differ.
    """
    if pairs or all(recipe.objective.spec.codes for recipe in recipes):
        return
    learned = [recipe for recipe in recipes if isinstance(recipe.tokenizer, TokenizerChoice)]
    for second in learned[1:]:
        if any(getattr(second.tokenizer, n) != getattr(learned[0].tokenizer, n) for n in KIND):
            raise _incomparable(learned[0], second, "tokenizer")


def same_characters(recipes: Sequence[Recipe]) -> tuple[list[Recipe], Finding | None]:
    """The recipes, asked alike where they read one text by characters and only hold out others of
    them: on those of the first, if none is trained on them; and a finding that says so."""
    reference, *remaining = recipes
    if reference.corpus.characters is None:
        return list(recipes), None
    reference_range, changed = reference.corpus.characters.held_out, list[str]()
    alike = [reference]
    for recipe in remaining:
        own_range = recipe.corpus.characters
        if own_range is None or own_range.held_out == reference_range:
            alike.append(recipe)
            continue
        try:
            changed_ranges = replace(own_range, held_out=reference_range)
        except ConfigError:  # they are trained on
            return list(recipes), None
        alike.append(replace(recipe, corpus=replace(recipe.corpus, characters=changed_ranges)))
        changed.append(
            f"{recipe.name} holds out {own_range.held_out[0]:,} to {own_range.held_out[1]:,} by "
            "itself"
        )
    if not changed:
        return list(recipes), None
    begin, end = reference_range
    message = f"all are asked about characters {begin:,} to {end:,}, as {reference.name} holds "
    message += "them out"
    return alike, Finding("held-out-alike", message, "; ".join(changed))


def refuse_other_text(recipes: Sequence[Recipe]) -> None:
    """Refuse recipes whose settings hold out other text.

    Raises:
        IncompatibleError: with the first setting that differs.
    """

    def held_out(recipe: Recipe) -> dict[str, Any]:
        plain: dict[str, Any] = config.to_plain(recipe.corpus)
        # Of texts with weights each has its own share held out, whatever the weights are; mixing by
        # a column holds out what the whole text would.
        apart = recipe.corpus.mixed and recipe.corpus.mix_by is None
        plain["weights"] = "one for each text" if apart else "none"
        for name in ("weights_end", "mix_by", "temperature"):
            plain.pop(name)
        named = {k: plain[k] for k in NAMED}
        return named if recipe.corpus.held_out_text else {**named, **plain}

    for second in recipes[1:]:
        for path, ours, theirs in dotted.differences(
            held_out(recipes[0]), held_out(second), "corpus"
        ):
            raise IncompatibleError(
                "the recipes do not hold out the same text",
                where=path,
                found=f"{recipes[0].name}: {ours!r}, {second.name}: {theirs!r}",
                wanted="the same questions for all",
                do=f"give all the same: --text, --set {path}=…, or corpus.held_out_text",
            )


def refuse_other_documents(entrants: Sequence[ComparedRecipe]) -> None:
    """Refuse recipes with the same settings that read different versions of the files.

    Raises:
        IncompatibleError: with the two recipes.
    """
    document_bytes = entrants[0].prepared.held_out.document_bytes
    for candidate in entrants[1:]:
        if not np.array_equal(document_bytes, candidate.prepared.held_out.document_bytes):
            raise IncompatibleError(
                "the recipes do not hold out the same text",
                where="corpus",
                found=f"other documents for {entrants[0].recipe.name} and {candidate.recipe.name}",
                do="start the comparison anew in another folder",
            )


def measures(entrants: Sequence[ComparedRecipe], *, pairs: bool) -> list[Metric]:
    """The figures to show. At least one compares all entrants.

    Raises:
        IncompatibleError: none does; the fields that differ are named.
    """
    alike = len({e.measure for e in entrants}) == 1
    one_tokenizer = len({e.prepared.tokenizer.fingerprint for e in entrants}) == 1
    codes, fills = ([getattr(e, name) for e in entrants] for name in ("is_language_model", "fills"))
    coding = [e for e in entrants if e.is_language_model]
    same_bits = len({e.prepared.tokenizer.fingerprint for e in coding}) == 1
    same_bits = same_bits or all(e.keeps_text for e in coding)
    # A figure for models that read both ways and models that read one way.
    hidden = one_tokenizer and all(e.reads is not None for e in entrants)
    hidden = hidden and len({e.reads for e in entrants}) > 1
    common = alike or pairs or hidden
    common = common or (all(codes) and same_bits) or (one_tokenizer and all(fills))
    if not common:
        candidate = next(e for e in entrants[1:] if e.measure != entrants[0].measure)
        field = "tokenizer" if not one_tokenizer else "objective"
        raise _incomparable(entrants[0].recipe, candidate.recipe, field)
    usual = LOSS if all(e.scores_itself for e in entrants) else GENERATOR
    shown = [usual if alike else OWN]
    shown += [BITS if same_bits else KEPT_BITS] if any(codes) and not alike else []
    shown += [MASKED] if any(fills) and one_tokenizer and not alike else []
    shown += [HIDDEN] if hidden else []
    return shown + ([PAIRS] if pairs else [])


def _incomparable(recipe: Recipe, second: Recipe, field: str) -> IncompatibleError:
    changes = dotted.differences(getattr(recipe, field), getattr(second, field), field)
    listed = "; ".join(f"{path}: {ours!r} and {theirs!r}" for path, ours, theirs in changes)
    return IncompatibleError(
        "no figure says the same of all these recipes",
        where=field,
        found=listed or f"{recipe.name} and {second.name} learn from other text",
        wanted="one tokenizer and one objective; masked and causal models of one tokenizer "
        "that has a mask; or causal models whose tokenizers keep all of the text (byte-bpe "
        "that folds no capitals), for bits per byte",
        do="score minimal pairs with all of them: --data FOLDER",
    )
