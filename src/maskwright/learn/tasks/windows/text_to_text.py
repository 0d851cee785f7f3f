"""Text to text: every task as an input text and a target text (Raffel et al. 2020).

    translate English to German: That is good.          ->   Das ist gut.
    cola sentence: The course is jumping well.          ->   unacceptable
    stsb sentence1: … sentence2: …                      ->   3.8

A generated text is a label only if it equals one exactly, except for whitespace at the ends; others
count as wrong (section 2.4). Numbers are rounded to steps (0.2 for STS-B), so that regression
becomes a choice among few texts.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import ConfigError, DataError, near

# The prefixes of T5 (appendix D), as templates over the fields of a row.
TEMPLATES = {
    "cola": "cola sentence: {text}",
    "sst2": "sst2 sentence: {text}",
    "mrpc": "mrpc sentence1: {first} sentence2: {second}",
    "stsb": "stsb sentence1: {first} sentence2: {second}",
    "qqp": "qqp question1: {first} question2: {second}",
    "mnli": "mnli hypothesis: {second} premise: {first}",
    "qnli": "qnli question: {first} sentence: {second}",
    "rte": "rte sentence1: {first} sentence2: {second}",
    "summarize": "summarize: {source}",
    "squad": "question: {question} context: {context}",
    "english-to-german": "translate English to German: {source}",
    "english-to-french": "translate English to French: {source}",
    "english-to-romanian": "translate English to Romanian: {source}",
}
NUMBER = re.compile(r"[+-]?[0-9]{1,12}(\.[0-9]{1,12})?")


class Template:
    """A text with placeholders, `{field}`, for a row's fields. Braces in values are plain text.

    Attributes:
        fields: the names of the placeholders, in order.

    Raises:
        ConfigError: no placeholder, one that is not a plain name, or an unclosed brace.
    """

    def __init__(self, text: str) -> None:
        try:
            fields_of_text = list(string.Formatter().parse(text))
        except ValueError as error:
            raise ConfigError(
                "not a template",
                found=repr(text),
                wanted="text with {field} in it",
                do="write {{ and }} for braces",
            ) from error
        for _, name, form, conversion in fields_of_text:
            if name is not None and (not name.isidentifier() or form or conversion):
                raise ConfigError(
                    "a field of the template has no plain name",
                    where=repr(text),
                    found=f"{{{name}}}",
                    wanted="{field}",
                )
        self.text = text
        self.fields = tuple(name for _, name, _, _ in fields_of_text if name is not None)
        self._parts = [(plain, name) for plain, name, _, _ in fields_of_text]
        if not self.fields:
            raise ConfigError(
                "a template that no row fills", found=repr(text), wanted="text with {field} in it"
            )

    def fill(self, row: Mapping[str, object], where: str = "") -> str:
        """Return the text for a row.

        Raises:
            DataError: a field is missing or no text.
        """
        pieces = []
        for plain, name in self._parts:
            pieces.append(plain)
            if name is None:
                continue
            if name not in row:
                raise DataError(
                    "the field is missing",
                    where=where or None,
                    found=", ".join(map(str, row)),
                    wanted=f'"{name}"',
                    do=near(name, map(str, row)),
                )
            value = row[name]
            if not isinstance(value, str):
                raise DataError(
                    f'the field "{name}" is no text', where=where or None, found=repr(value)[:80]
                )
            pieces.append(value)
        return "".join(pieces)


@dataclass(frozen=True)
class Labels:
    """The texts of the classes, in the order of their indices.

    Raises:
        ConfigError: fewer than two labels, an empty one, or two that are equal after stripping.
    """

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        bare = [text.strip() for text in self.texts]
        if len(bare) < 2 or "" in bare:
            raise ConfigError("fewer than two labels", found=list(self.texts))
        twice = sorted({text for text in bare if bare.count(text) > 1})
        if twice:
            raise ConfigError("two labels are equal except for blanks", found=repr(twice[0]))

    def read(self, written: Sequence[str]) -> NDArray[np.int64]:
        """Return the class index (N,) of each text; -1 for a text that is no label."""
        number = {text.strip(): i for i, text in enumerate(self.texts)}
        return np.array([number.get(text.strip(), -1) for text in written], np.int64)


# ------------------------------------------------------------------------------ numbers
def number_text(value: float, step: float = 0.2) -> str:
    """Round `value` to the nearest multiple of `step` and format it with the decimals of `step`:
    2.57 becomes "2.6". Halves are rounded to the even multiple.

    Raises:
        ConfigError: `step` is not above 0.  DataError: `value` is not finite.
    """
    if not step > 0 or math.isinf(step):
        raise ConfigError("a step that is not above 0", found=step)
    if not math.isfinite(value):
        raise DataError("a value that is no finite number", found=value)
    # In decimal arithmetic, as 0.2 has no exact binary representation.
    unit = Decimal(str(step)).normalize()
    digits = max(0, -int(unit.as_tuple().exponent))
    multiple = (Decimal(str(value)) / unit).to_integral_value() * unit
    return f"{multiple + 0:.{digits}f}"


def read_numbers(
    written: Sequence[str], low: float = -math.inf, high: float = math.inf
) -> NDArray[np.float64]:
    """Parse texts as numbers (N,); NaN for a text that is no number or out of range."""
    bare = [text.strip() for text in written]
    values = np.array([float(t) if NUMBER.fullmatch(t) else math.nan for t in bare], np.float64)
    return np.where((values >= low) & (values <= high), values, math.nan)
