"""Checks of settings that several steps have: shares, counts, the languages of a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from maskwright.curate.parts.batch import Batch
from maskwright.curate.parts.step import Step
from maskwright.errors import ConfigError

LANGUAGE, UNDECIDED = "language", "und"


def check_shares(settings: object, *names: str) -> None:
    """Refuse what is no share.

    Raises:
        ConfigError: naming the field.
    """
    for name in names:
        value = getattr(settings, name)
        if not 0.0 <= value <= 1.0:
            raise ConfigError(
                "a share is out of range", where=name, found=value, wanted="0.0 to 1.0"
            )


def check_counts(settings: object, *names: str) -> None:
    """Refuse what is below 0.

    Raises:
        ConfigError: naming the field.
    """
    for name in names:
        value = getattr(settings, name)
        if value < 0:
            raise ConfigError("a number below 0", where=name, found=value, wanted="0 or more")


def check_range(settings: object, low: str, high: str) -> None:
    """Refuse a range that nothing can lie in.

    Raises:
        ConfigError: naming the lower field.
    """
    least, most = getattr(settings, low), getattr(settings, high)
    if least > most:
        raise ConfigError(
            "no value can pass", where=low, found=least, wanted=f"at most {high}, {most}"
        )


def in_languages(batch: Batch, languages: Sequence[str]) -> NDArray[np.bool_]:
    """(B,) whether a rule for `languages` applies: a document's note `language` is one of them, is
    undecided (`und`), or is not there. Without any languages the rule is for all."""
    if not languages:
        return np.ones(len(batch), np.bool_)
    known = {*languages, None, UNDECIDED}
    notes = batch.note(LANGUAGE)
    return np.fromiter((n in known for n in notes), np.bool_, len(batch))


def where_applies(values: NDArray[np.generic], applies: NDArray[np.bool_]) -> NDArray[np.float64]:
    """`values` with NaN, which passes every limit, where the rule does not apply."""
    return np.where(applies, values.astype(np.float64), np.nan)


def shares(part: NDArray[np.generic], whole: NDArray[np.generic]) -> NDArray[np.float64]:
    """`part` / `whole`, and 0 where there is nothing."""
    below = whole.astype(np.float64)
    return np.divide(part.astype(np.float64), below, out=np.zeros(len(below)), where=below > 0)


def require_kept_language(languages: Sequence[str], steps: Mapping[str, Step]) -> None:
    """Refuse rules for languages of which the recipe keeps no document.

    Raises:
        ConfigError: none of `languages` is kept.
    """
    by = next((name for name, step in steps.items() if LANGUAGE in step.NOTES), "")
    kept = getattr(steps.get(by), "keep", ())
    if languages and kept and not set(languages) & set(kept):
        raise ConfigError(
            "the rules are for languages of which no document is kept",
            where="languages",
            found=", ".join(languages),
            wanted=f"one of those in {by}.keep: {', '.join(kept)}",
            do="set languages to them (and their stop words, where the step has such), to [] for "
            "all, or leave the step out",
        )
