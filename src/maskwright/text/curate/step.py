"""What a step is: a frozen dataclass of settings with one pure function over batches.

A module of `text/curate/steps/` has

    SUMMARY   one line for lists and the card
    Settings  the step: a subclass of `Step` or `CorpusStep`; its fields, all with defaults, are the
              table of the recipe that has the step's name; a string under each says what it does

`Step` judges a document by itself. `CorpusStep` must have seen all documents first: its `gather`
may send a function over the whole corpus as often as it needs, and answers what `apply` is to know
of single documents. Neither depends on how the corpus is cut into shards and batches, or on the
order of the documents: survivors are chosen by `text/curate/arrays/winnow.py`, never by arrival.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import ConfigError
from maskwright.base.findings import Finding
from maskwright.text.curate.arrays.characters import Characters, characters_of
from maskwright.text.curate.arrays.lines import Lines, lines_of
from maskwright.text.curate.arrays.words import Words, words_of


@dataclass(frozen=True)
class RuleMeasure:
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
        is_outside = np.zeros(len(self.values), np.bool_)
        if self.low is not None:
            is_outside |= self.values < self.low
        if self.high is not None:
            is_outside |= self.values > self.high
        return is_outside


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
    measures: Sequence[RuleMeasure] = ()
    removals: Sequence[Removal] = ()
    changes: Sequence[Change] = ()
    notes: Mapping[str, Sequence[str | None]] = field(default_factory=dict)


if TYPE_CHECKING:
    import pyarrow as pa

ROW, ID, TEXT, NOTE, VALUES = "row", "id", "text", "note.", "values"


@dataclass(frozen=True)
class CurationBatch:
    """Documents in the order in which they were read.

    Attributes:
        rows: (B,) int64, the number of each document in its shard; it never changes.
        ids: where each stands: `path:line`.
        texts: never blank, and always text that UTF-8 can write.
        notes: further columns by name, each of B strings or None.
        values: B JSON objects of those notes that were no strings, or None; empty: there are none.
    """

    rows: NDArray[np.int64]
    ids: Sequence[str]
    texts: Sequence[str]
    notes: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    values: Sequence[str | None] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @functools.cached_property
    def words(self) -> Words:
        """The words of all texts, without regard to case."""
        return words_of(self.texts)

    @functools.cached_property
    def characters(self) -> Characters:
        """The characters of all texts, behind each other."""
        return characters_of(self.texts)

    @functools.cached_property
    def lines(self) -> Lines:
        """The lines of all texts that are not blank."""
        return lines_of(self.characters)

    @functools.cached_property
    def lengths(self) -> NDArray[np.int64]:
        """(B,) characters of each text."""
        return np.fromiter(map(len, self.texts), np.int64, len(self.texts))

    @functools.cached_property
    def _no_notes(self) -> Sequence[None]:
        return [None] * len(self)  # made once, as records ask for each document

    def note(self, name: str) -> Sequence[str | None]:
        """A column, or B times None where there is none."""
        return self.notes.get(name) or self._no_notes

    def with_texts(self, texts: Sequence[str]) -> CurationBatch:
        return replace(self, texts=texts)

    def with_notes(self, notes: Mapping[str, Sequence[str | None]]) -> CurationBatch:
        """The same documents with further or other notes; the texts' views are kept."""
        changed = replace(self, notes={**self.notes, **notes})
        for view in ("words", "characters", "lines", "lengths"):
            if view in self.__dict__:
                changed.__dict__[view] = self.__dict__[view]
        return changed

    def differing(self, notes: Mapping[str, Sequence[str | None]]) -> dict[str, int]:
        """Of columns with the names of further ones: how many documents have another value."""
        counts = {}
        for name in notes.keys() & self.notes.keys():
            pairs = zip(self.notes[name], notes[name], strict=True)
            if differ := sum(old is not None and old != new for old, new in pairs):
                counts[name] = differ
        return counts

    def take(self, chosen: NDArray[np.bool_]) -> CurationBatch:
        """The documents where `chosen`, (B,), is true; their words need not be found again."""
        if chosen.all():
            return self
        indices = np.flatnonzero(chosen).tolist()
        selection = CurationBatch(
            rows=self.rows[chosen],
            ids=[self.ids[i] for i in indices],
            texts=[self.texts[i] for i in indices],
            notes={name: [column[i] for i in indices] for name, column in self.notes.items()},
            values=[self.values[i] for i in indices] if self.values else (),
        )
        if "words" in self.__dict__:
            selection.__dict__["words"] = self.words.of(chosen)
        return selection

    def to_arrow(self) -> pa.Table:
        import pyarrow as pa

        return pa.table(
            {
                ROW: pa.array(self.rows, pa.int64()),
                ID: pa.array(self.ids, pa.large_string()),
                TEXT: pa.array(self.texts, pa.large_string()),
                VALUES: pa.array(self.values or [None] * len(self), pa.large_string()),
                **{
                    NOTE + name: pa.array(column, pa.large_string())
                    for name, column in sorted(self.notes.items())
                },
            }
        )

    @classmethod
    def from_arrow(cls, table: pa.Table | pa.RecordBatch) -> CurationBatch:
        columns = dict(zip(table.schema.names, table.columns, strict=True))
        rows = columns.pop(ROW).to_numpy()
        ids, texts = columns.pop(ID).to_pylist(), columns.pop(TEXT).to_pylist()
        values = columns.pop(VALUES).to_pylist()
        notes = {name.removeprefix(NOTE): c.to_pylist() for name, c in columns.items()}
        return cls(rows, ids, texts, notes, values)


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
    def apply(self, batch: CurationBatch, opened: Any, gathered: pa.Table | None = None) -> Outcome:
        """Judge the documents of a batch. A pure function.

        Args:
            opened: what `open` gave.
            gathered: of a `CorpusStep`: what `gather` found about this batch.
        """


Pass = Callable[[CurationBatch, Any], "pa.Table"]


class CorpusHandle(Protocol):
    """The whole corpus, as a `CorpusStep` may ask it. An implementation runs the passes over the
    shards, here or on a cluster, and keeps what they gave on disk, so that a stopped curation goes
    on behind the last pass."""

    def map(self, name: str, function: Pass, side_input: pa.Table | None = None) -> Tables:
        """Send `function(batch, known about this batch)` over all documents.

        Args:
            name: of the pass; unique in the step.
            function: a module-level function or a method of the step: it travels to processes. Its
                table has a column `row`, the documents' numbers in the shard, which arrives as
                `document`, their numbers in the corpus. It may have any number of rows.
            side_input: a table with the column `document`; each batch gets the rows that are about it,
                with `row` instead, and only shards that it mentions are read. A table without that
                column goes to every batch whole.
        """
        ...

    def say(self, finding: Finding) -> None:
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
    def gather(self, corpus: CorpusHandle, opened: Any) -> pa.Table:
        """What `apply` is to know: a table with the column `document` (each batch then gets the
        rows about its documents, with `row` instead), or one without it, which every batch gets
        whole."""


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


def in_languages(batch: CurationBatch, languages: Sequence[str]) -> NDArray[np.bool_]:
    """(B,) whether a rule for `languages` applies: a document's note `language` is one of them, is
    undecided (`und`), or is not there. Without any languages the rule is for all."""
    if not languages:
        return np.ones(len(batch), np.bool_)
    accepted = {*languages, None, UNDECIDED}
    notes = batch.note(LANGUAGE)
    return np.fromiter((n in accepted for n in notes), np.bool_, len(batch))


def where_applies(values: NDArray[np.generic], applies: NDArray[np.bool_]) -> NDArray[np.float64]:
    """`values` with NaN, which passes every limit, where the rule does not apply."""
    return np.where(applies, values.astype(np.float64), np.nan)


def shares(
    numerators: NDArray[np.generic], denominators: NDArray[np.generic]
) -> NDArray[np.float64]:
    """`numerators` / `denominators`, and 0 where there is nothing."""
    below = denominators.astype(np.float64)
    return np.divide(
        numerators.astype(np.float64), below, out=np.zeros(len(below)), where=below > 0
    )


def require_kept_language(languages: Sequence[str], steps: Mapping[str, Step]) -> None:
    """Refuse rules for languages of which the recipe keeps no document.

    Raises:
        ConfigError: none of `languages` is kept.
    """
    by = next((name for name, step in steps.items() if LANGUAGE in step.NOTES), "")
    kept_languages = getattr(steps.get(by), "keep", ())
    if languages and kept_languages and not set(languages) & set(kept_languages):
        raise ConfigError(
            "the rules are for languages of which no document is kept",
            where="languages",
            found=", ".join(languages),
            wanted=f"one of those in {by}.keep: {', '.join(kept_languages)}",
            do="set languages to them (and their stop words, where the step has such), to [] for "
            "all, or leave the step out",
        )
