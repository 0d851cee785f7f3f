"""The settings of a corpus that mix several texts, or the documents by a column, in shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maskwright import config
from maskwright.errors import ConfigError

if TYPE_CHECKING:
    from maskwright.recipes.parts.corpus import Corpus

Weights = tuple[float, ...] | dict[str, float]
OTHERS = "*"
MOST_VALUES = 64
LEAST, LARGEST = 1e-6, 1e6


def shares(corpus: Corpus, sizes: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The shares (K,) at the beginning and at the end of a run.

    Args:
        sizes: how much text there is of each part, in the order of the texts or of the values.
    """
    if corpus.temperature is not None:
        natural = np.array(sizes, np.float64) / max(1, sum(sizes))
        begin = natural**corpus.temperature
    else:
        begin = _in_order(corpus.weights)
    end = _in_order(corpus.weights_end) if corpus.weights_end else begin
    return begin / begin.sum(), end / end.sum()


def _in_order(weights: Weights) -> NDArray[np.float64]:
    """The weights in the order of their stores: as listed, of a table by name."""
    values = [weights[name] for name in sorted(weights)] if isinstance(weights, dict) else weights
    return np.array(values, dtype=np.float64)


# ------------------------------------------------------------------------------ checks
def check(corpus: Corpus) -> None:
    """Refuse settings that contradict each other.

    Raises:
        ConfigError: naming the field.
    """
    if corpus.mix_by is not None:
        _check_column(corpus)
    elif isinstance(corpus.weights, dict) or isinstance(corpus.weights_end, dict):
        raise ConfigError(
            "weights by name need the column that has these values",
            where="corpus.mix_by",
            found="no column",
            wanted="a column of the files",
            do="for example --set corpus.mix_by=source, or give a list, one for each text",
        )
    elif corpus.mixed:
        _check_texts(corpus)
    if corpus.temperature is not None:
        config.require("corpus.temperature", corpus.temperature, 0.0, 10.0)
        if corpus.weights:
            raise ConfigError(
                "weights and a temperature are two ways to say the shares",
                where="corpus.temperature",
                found=f"{corpus.temperature:g}, and corpus.weights",
                wanted="one of them",
                do="leave one out",
            )
    _check_numbers(corpus)


def _check_column(corpus: Corpus) -> None:
    found = ""
    if not corpus.mix_by or corpus.mix_by in (OTHERS, corpus.column):
        found = repr(corpus.mix_by)
    elif not corpus.mixed:
        found = "a column without weights"
    elif corpus.characters is not None:
        found = "a column, and corpus.characters"
    if found:
        raise ConfigError(
            "the text cannot be mixed by this",
            where="corpus.mix_by",
            found=found,
            wanted="a column besides that of the text, with corpus.weights or corpus.temperature",
            do="for example --set corpus.mix_by=source --set corpus.temperature=0.7",
        )
    if corpus.weights and not isinstance(corpus.weights, dict):
        raise ConfigError(
            "weights of a column's values are a table",
            where="corpus.weights",
            found=list(corpus.weights),
            wanted=f"a weight for each value of the column {corpus.mix_by!r}",
            do="for example --set corpus.weights='{web = 1, books = 3, \"*\" = 1}'",
        )
    if len(corpus.weights) > MOST_VALUES:
        raise ConfigError(
            "too many weights",
            where="corpus.weights",
            found=len(corpus.weights),
            wanted=f"at most {MOST_VALUES}",
            do=f"give the largest a weight, and all others one together: {OTHERS!r}",
        )


def _check_texts(corpus: Corpus) -> None:
    where = "corpus.weights" if corpus.weights else "corpus.temperature"
    if corpus.weights and (len(corpus.weights) != len(corpus.text) or len(corpus.text) < 2):
        raise ConfigError(
            "the number of weights is not the number of texts",
            where=where,
            found=f"{len(corpus.weights)} weights, {len(corpus.text)} texts",
            wanted="one for each of two or more files or folders",
            do="name them: --text ONE TWO --set corpus.weights=[3,1]",
        )
    if len(corpus.text) < 2:
        raise ConfigError(
            "a temperature mixes two or more texts, or the values of a column",
            where=where,
            found=f"{len(corpus.text)} texts",
            wanted="two or more, or corpus.mix_by",
            do="name them: --text ONE TWO, or a column: --set corpus.mix_by=source",
        )
    if len(set(corpus.text)) < len(corpus.text):
        raise ConfigError(
            "a text has two weights",
            where=where,
            found=", ".join(corpus.text),
            do="name each text once",
        )
    for other in ("characters", "limit_bytes"):
        if getattr(corpus, other) is not None:
            raise ConfigError(
                f"{where.partition('.')[2]} does not go with corpus.{other}",
                where=where,
                wanted="one or the other",
                do=f"leave corpus.{other} out",
            )


def _check_numbers(corpus: Corpus) -> None:
    """The weights in range; with a schedule one of the two may be 0."""
    begin, end = corpus.weights, corpus.weights_end
    if end:
        keys = sorted(begin) if isinstance(begin, dict) else len(begin)
        if type(begin) is not type(end) or keys != (
            sorted(end) if isinstance(end, dict) else len(end)
        ):
            raise ConfigError(
                "the weights at the end are not those of the beginning",
                where="corpus.weights_end",
                found=_keys(end),
                wanted=f"a weight for each of corpus.weights: {_keys(begin)}",
                do="give both the same texts or values",
            )
    least = 0.0 if end else LEAST
    for where, weights in (("corpus.weights", begin), ("corpus.weights_end", end)):
        for weight in weights.values() if isinstance(weights, dict) else weights:
            config.require(where, weight, least, LARGEST)
        if weights and not _in_order(weights).sum() > 0:
            raise ConfigError(
                "all weights are 0", where=where, found=_keys(weights), wanted="one above 0"
            )
    if end and not (_in_order(begin) + _in_order(end) > 0).all():
        raise ConfigError(
            "a weight is 0 at the beginning and at the end",
            where="corpus.weights_end",
            found=_keys(end),
            wanted="above 0 at one of them",
            do="leave that text out",
        )


def _keys(weights: Weights) -> str:
    if isinstance(weights, dict):
        return ", ".join(f"{name} = {weights[name]:g}" for name in sorted(weights))
    return ", ".join(f"{weight:g}" for weight in weights) or "none"
