"""What a step is: a frozen dataclass of settings with one pure function over batches.

A module of `curate/steps/` has

    SUMMARY   one line for lists and the card
    Settings  the step: a subclass of `Step` or `CorpusStep`; its fields, all with defaults, are the
              table of the recipe that has the step's name; a string under each says what it does

`Step` judges a document by itself. `CorpusStep` must have seen all documents first: its `gather`
may send a function over the whole corpus as often as it needs, and answers what `apply` is to know
of single documents. Neither depends on how the corpus is cut into shards and batches, or on the
order of the documents: survivors are chosen by `curate/parts/order.py`, never by arrival.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.curate.parts.batch import Batch
from maskwright.curate.parts.outcome import Outcome
from maskwright.findings import Finding

if TYPE_CHECKING:
    import pyarrow as pa

# A document's number in tables about the whole corpus: its shard's tag << 32 | its row there.
DOCUMENT = "document"
# A fact about the corpus behind a step (`Step.LEAVES`).
NO_NEAR_COPIES = "no near-duplicates"


@dataclass(frozen=True, kw_only=True)
class Step(ABC):
    """A step that looks at each document by itself."""

    CHANGES_TEXT: ClassVar[bool] = False
    """Whether documents may leave with another text."""
    NOTES: ClassVar[tuple[str, ...]] = ()
    """The notes that it writes."""
    UNLESS: ClassVar[str] = ""
    """What is to be said of a corpus that the step did not look at, for its card."""
    REMOVES_COPIES: ClassVar[bool] = False
    """Whether documents are removed because of others that are kept."""
    LEAVES: ClassVar[tuple[str, ...]] = ()
    """What holds of the corpus behind the step, for steps that need it (`needs_before`)."""
    PRIVATE: ClassVar[bool] = False
    """Whether records and examples of the step show no text as it came to it."""

    def check(self) -> None:
        """Look at the settings before anything is read.

        Raises:
            ConfigError: naming the field, without the step's name before it.
        """
        return None

    def check_beside(self, name: str, steps: Mapping[str, Step]) -> None:
        """Look at the other steps of the recipe, in their order; `name` is this one's.

        Raises:
            ConfigError: two of them contradict each other.
        """
        return None

    def needs_before(self) -> Mapping[str, str]:
        """What steps before this one must have left (`LEAVES`), each with what goes wrong without
        it. A recipe that has no such step before it runs, with a warning."""
        return {}

    def proposed(self, counts: Mapping[str, int]) -> tuple[Self, Finding | None]:
        """The step as a first look suggests it, and what to tell of that.

        Args:
            counts: documents for each value of the first of `NOTES`.
        """
        return self, None

    def wordless(self) -> Collection[str]:
        """The rules of its changes that leave all words as they are; of other changes the record
        has the text as it was."""
        return ()

    def files(self) -> Sequence[Path]:
        """The files that the step reads besides the corpus; their content is part of the result."""
        return ()

    def require(self) -> None:
        """Refuse files that cannot serve, before anything of the corpus is read; what `open`
        refuses is refused then, too.

        Raises:
            MaskwrightError: naming the file.
        """
        return None

    def open(self) -> Any:
        """What `apply` needs and is costly to make (word lists, a model); made once per process."""
        return None

    @abstractmethod
    def apply(self, batch: Batch, opened: Any, known: pa.Table | None = None) -> Outcome:
        """Judge the documents of a batch. A pure function.

        Args:
            opened: what `open` gave.
            known: of a `CorpusStep`: what `gather` found about this batch.
        """


Pass = Callable[[Batch, Any], "pa.Table"]


class Corpus(Protocol):
    """The whole corpus, as a `CorpusStep` may ask it. An implementation runs the passes over the
    shards, here or on a cluster, and keeps what they gave on disk, so that a stopped curation goes
    on behind the last pass."""

    def map(self, name: str, function: Pass, known: pa.Table | None = None) -> Tables:
        """Send `function(batch, known about this batch)` over all documents.

        Args:
            name: of the pass; unique in the step.
            function: a module-level function or a method of the step: it travels to processes. Its
                table has a column `row`, the documents' numbers in the shard, which arrives as
                `document`, their numbers in the corpus. It may have any number of rows.
            known: a table with the column `document`; each batch gets the rows that are about it,
                with `row` instead, and only shards that it mentions are read. A table without that
                column goes to every batch whole.
        """
        ...

    def say(self, found: Finding) -> None:
        """Tell the user, and the card."""
        ...


class Tables(Protocol):
    """What a pass gave: tables on disk, to be read whole, by column, or by equal keys."""

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, in the order of `document`."""
        ...

    def repeated(self, keys: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """The rows whose `keys` together occur at least twice: keys and `columns`, sorted by both.
        Computed by the engine, in parts where it would not fit into memory."""
        ...

    def among(self, key: str, values: NDArray[np.int64]) -> pa.Table:
        """`document` and `key` of the rows whose `key` is one of the values."""
        ...

    def totals(self, keys: Sequence[str], sums: Sequence[str], least: int = 0) -> pa.Table:
        """For every value of `keys` the sum of each column of `sums`, sorted by the keys; only
        those whose first sum is at least `least`."""
        ...


@dataclass(frozen=True, kw_only=True)
class CorpusStep(Step):
    """A step that must have seen the whole corpus before it judges a document."""

    def first_pass(self) -> tuple[str, Pass] | None:
        """Name and function of the pass with nothing known that `gather` begins with. The engine
        may send it over documents as they leave the step before, while they are in memory; None:
        there is none."""
        return None

    @abstractmethod
    def gather(self, corpus: Corpus, opened: Any) -> pa.Table:
        """What `apply` is to know: a table with the column `document` (each batch then gets the
        rows about its documents, with `row` instead), or one without it, which every batch gets
        whole."""
