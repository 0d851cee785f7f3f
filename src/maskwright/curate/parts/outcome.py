"""What a step answers for a batch: what it measured, removed, changed and noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Measure:
    """A number of every document with what is allowed; a document outside is removed.

    Attributes:
        rule: the name of the rule, as the field knows it (`gopher_short_doc`).
        values: (B,) numbers; NaN where the rule does not apply, which passes.
        low, high: the allowed range, both ends included; None for no limit.
    """

    rule: str
    values: NDArray[np.floating | np.integer]
    low: float | None = None
    high: float | None = None

    @property
    def outside(self) -> NDArray[np.bool_]:
        """(B,) whether a document is to be removed."""
        found = np.zeros(len(self.values), np.bool_)
        if self.low is not None:
            found |= self.values < self.low
        if self.high is not None:
            found |= self.values > self.high
        return found


@dataclass(frozen=True)
class Removal:
    """A document that goes, for a reason that is no number out of a range.

    Attributes:
        place: its number in the batch.
        rule: the name of the rule.
        value: what was found: a word of a list, the document that it is a copy of.
        where: where in the text (`line 3`, `characters 120 to 150`), or None for all of it.
        wanted: what the rule allows.
        survivor: of a copy: the id of the document that is kept in its place.
    """

    place: int
    rule: str
    value: str | float
    where: str | None = None
    wanted: str | None = None
    survivor: str | None = None


@dataclass(frozen=True)
class Change:
    """A change of a document's text that is worth telling: a line cut, a number masked.

    Attributes:
        place: its number in the batch.
        rule: the name of the rule.
        value: what was there, or how often.
        where: where in the text as it came to the step.
    """

    place: int
    rule: str
    value: str | float
    where: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What a step answers for B documents. All of it is optional; the order of the batch is kept.

    Attributes:
        texts: (B,) the texts as they are now. A text that is blank now is removed, and told, by the
            engine under the rule `nothing-left`.
        measures: rules that are ranges; a document is removed by the first that it breaks.
        removals: further removals; a document that a measure removes needs none.
        changes: what was changed in the texts; a step that gives other texts says where and why.
        notes: further columns, each of B strings or None.
    """

    texts: Sequence[str] | None = None
    measures: Sequence[Measure] = ()
    removals: Sequence[Removal] = ()
    changes: Sequence[Change] = ()
    notes: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
