"""Checks whether recipes can be compared, and by which metrics."""

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

# Corpus settings that determine the held-out text even if its files are named explicitly.
NAMED = ("held_out_text", "form", "column", "on_bad")
APART = ("training.seed", "training.budget")
KIND = ("kind", "lowercase")  # settings by which tokenizers are certain to differ
LOSS = Metric("loss", "held-out loss")
OWN = Metric("loss", "own held-out loss", compares=False)
# For replaced-token detection, the loss is that of the generator, which samples the replacements.
GENERATOR = replace(LOSS, title="held-out loss of the generator")
BITS = Metric("bits_per_byte", "bits per byte")
# Not comparable: lower-cased letters and unknown words cost nothing to predict.
KEPT_BITS = replace(BITS, title="bits per byte of what its tokenizer keeps", compares=False)
MASKED = Metric("masked_loss", "masked loss (15 %)")
# The metric that is shared by bidirectional and causal models.
HIDDEN = Metric("hidden", "hidden tokens named (15 %)", higher_is_better=True)
PAIRS = Metric("pairs", "minimal pairs", higher_is_better=True)


def refuse_names(recipes: Sequence[Recipe], seeds: int) -> None:
    """Raise a `UsageError` if there are no recipes or seeds, or names are invalid or not unique."""
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
    """Raise a `UsageError` that names two recipes if their settings are equal."""
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
    """Return the recipes as plain values, and the paths of settings that differ. If all have the
    same objective or family, settings that a recipe omits are filled in with their defaults."""
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
    """Raise an `IncompatibleError`, before texts are prepared, where `measures` would do so later:
    for tokenizers of different kinds, if not all models have bits per byte."""
    if pairs or all(recipe.objective.spec.codes for recipe in recipes):
        return
    learned = [recipe for recipe in recipes if isinstance(recipe.tokenizer, TokenizerChoice)]
    for second in learned[1:]:
        if any(getattr(second.tokenizer, n) != getattr(learned[0].tokenizer, n) for n in KIND):
            raise _incomparable(learned[0], second, "tokenizer")


def same_characters(recipes: Sequence[Recipe]) -> tuple[list[Recipe], Finding | None]:
    """Let all recipes that split the text by character ranges hold out the range of the first one,
    unless another is trained on it. Returns the recipes, and a finding if any was changed."""
    reference, *contenders = recipes
    if reference.corpus.characters is None:
        return list(recipes), None
    reference_range, changed = reference.corpus.characters.held_out, list[str]()
    adjusted = [reference]
    for recipe in contenders:
        own_range = recipe.corpus.characters
        if own_range is None or own_range.held_out == reference_range:
            adjusted.append(recipe)
            continue
        try:
            changed_ranges = replace(own_range, held_out=reference_range)
        except ConfigError:  # they are trained on
            return list(recipes), None
        adjusted.append(replace(recipe, corpus=replace(recipe.corpus, characters=changed_ranges)))
        changed.append(
            f"{recipe.name} holds out {own_range.held_out[0]:,} to {own_range.held_out[1]:,} by "
            "itself"
        )
    if not changed:
        return list(recipes), None
    begin, end = reference_range
    message = f"all are asked about characters {begin:,} to {end:,}, as {reference.name} holds "
    message += "them out"
    return adjusted, Finding("held-out-alike", message, "; ".join(changed))


def refuse_other_text(recipes: Sequence[Recipe]) -> None:
    """Raise an `IncompatibleError` that names the first setting by which recipes hold out different
    text."""

    def held_out(recipe: Recipe) -> dict[str, Any]:
        plain: dict[str, Any] = config.to_plain(recipe.corpus)
        # With weights, a share of each text is held out, independent of the weights; mixing by a
        # column holds out the same as without.
        weights_by_text = recipe.corpus.mixed and recipe.corpus.mix_by is None
        plain["weights"] = "one for each text" if weights_by_text else "none"
        for name in ("weights_end", "mix_by", "temperature"):
            plain.pop(name)
        named_settings = {k: plain[k] for k in NAMED}
        return named_settings if recipe.corpus.held_out_text else {**named_settings, **plain}

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
    """Raise an `IncompatibleError` if held-out documents differ although the settings are equal, as
    the recipes have read different versions of the files."""
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
    """Return the metrics to show, at least one of which compares all entrants.

    Raises:
        IncompatibleError: no metric compares all; the message names the fields that differ.
    """
    same_loss = len({e.measure for e in entrants}) == 1
    one_tokenizer = len({e.prepared.tokenizer.fingerprint for e in entrants}) == 1
    codes, fills = ([getattr(e, name) for e in entrants] for name in ("is_language_model", "fills"))
    coding = [e for e in entrants if e.is_language_model]
    same_bits = len({e.prepared.tokenizer.fingerprint for e in coding}) == 1
    same_bits = same_bits or all(e.keeps_text for e in coding)
    # The metric for bidirectional and causal models with one tokenizer.
    hidden_applies = one_tokenizer and all(e.reads is not None for e in entrants)
    hidden_applies = hidden_applies and len({e.reads for e in entrants}) > 1
    comparable = same_loss or pairs or hidden_applies
    comparable = comparable or (all(codes) and same_bits) or (one_tokenizer and all(fills))
    if not comparable:
        candidate = next(e for e in entrants[1:] if e.measure != entrants[0].measure)
        field = "tokenizer" if not one_tokenizer else "objective"
        raise _incomparable(entrants[0].recipe, candidate.recipe, field)
    loss_metric = LOSS if all(e.scores_itself for e in entrants) else GENERATOR
    metrics = [loss_metric if same_loss else OWN]
    metrics += [BITS if same_bits else KEPT_BITS] if any(codes) and not same_loss else []
    metrics += [MASKED] if any(fills) and one_tokenizer and not same_loss else []
    metrics += [HIDDEN] if hidden_applies else []
    return metrics + ([PAIRS] if pairs else [])


def _incomparable(recipe: Recipe, second: Recipe, field: str) -> IncompatibleError:
    """Return the error about two recipes without a common metric that differ in `field`."""
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
