"""The interface of a step: a frozen dataclass of settings with one pure function over batches.

A module of `text/curate/steps/` has

    SUMMARY   one line for lists and the card
    Settings  the step: a subclass of `Step` or `CorpusStep`; its fields, all with defaults and
              documented by a string under each, are the table of the step in a recipe

A `Step` judges each document by itself. A `CorpusStep` needs the whole corpus first: its `gather`
runs functions (passes) over all documents and returns the table that is passed to `apply`. Results
depend neither on the division of the corpus into shards and batches nor on the order of documents;
which copy is kept is decided by `arrays/selection.py`.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base.config import fingerprint, out_of_range, require, to_plain
from maskwright.base.errors import ConfigError, Finding
from maskwright.base.storage.files import file_state
from maskwright.text.curate.arrays.segmentation import (
    Characters,
    Lines,
    Words,
    characters_of,
    lines_of,
    words_of,
)
from maskwright.text.store import BoolArray, FloatArray, IntArray

ArrowTable = Any  # pyarrow.Table; pyarrow is imported only where a step runs


@dataclass(frozen=True)
class RuleMeasure:
    """A number per document and its allowed range; documents outside of it are removed.

    Attributes:
        rule: the name of the rule, as the literature has it (`gopher_short_doc`).
        values: (B,) numbers; NaN where the rule does not apply, which passes.
        low, high: the allowed range, both ends included; None for no limit.
    """

    rule: str
    values: NDArray[np.floating | np.integer]
    low: float | None = None
    high: float | None = None

    @property
    def outside(self) -> BoolArray:
        """(B,) whether each document is removed."""
        is_outside = np.zeros(len(self.values), np.bool_)
        if self.low is not None:
            is_outside |= self.values < self.low
        if self.high is not None:
            is_outside |= self.values > self.high
        return is_outside


@dataclass(frozen=True)
class Change:
    """A recorded change of a document's text: a line cut, a number masked.

    Attributes:
        index: the index of the document in the batch.
        rule: the name of the rule.
        value: what was changed, or how often; of a removal the cause, such as a word of a list.
        where: the place in the text before the step (`line 3`, `characters 120 to 150`); None: not
            recorded, of a removal the whole text.
    """

    index: int
    rule: str
    value: str | float
    where: str | None = None


@dataclass(frozen=True)
class Removal(Change):
    """A document that is removed for another reason than a `RuleMeasure`.

    Attributes:
        allowed: what the rule allows, in words.
        survivor: for a copy, the id of the document that is kept instead.
    """

    allowed: str | None = None
    survivor: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What a step returns for B documents. All fields are optional; the order of the batch is kept.

    Attributes:
        texts: B new texts; None: unchanged. Documents with a blank new text are removed.
        measures: rules with ranges; a document is removed by the first that it breaks.
        removals: removals for other reasons; not needed for documents that a measure removes.
        changes: the changes of texts.
        notes: new or replaced columns by name, each of B strings or None.
    """

    texts: Sequence[str] | None = None
    measures: Sequence[RuleMeasure] = ()
    removals: Sequence[Removal] = ()
    changes: Sequence[Change] = ()
    notes: Mapping[str, Sequence[str | None]] = field(default_factory=dict)


ROW, ID, TEXT, NOTE, VALUES = "row", "id", "text", "note.", "values"
LANGUAGE, UNDECIDED = "language", "und"  # a note, and its value where no language is said


@dataclass(frozen=True)
class CurationBatch:
    """Documents in the order in which they were read.

    Attributes:
        rows: (B,) int64, the number of each document in its shard; it never changes.
        ids: the location where each was read: `path:line`.
        texts: the texts, never blank, and always encodable in UTF-8.
        notes: further columns by name, each of B strings or None.
        values: for each document a JSON object of its notes that were no strings, or None.
    """

    rows: IntArray
    ids: Sequence[str]
    texts: Sequence[str]
    notes: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    values: Sequence[str | None] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @functools.cached_property
    def words(self) -> Words:
        """The words of all texts, regardless of case."""
        return words_of(self.characters)

    @functools.cached_property
    def characters(self) -> Characters:
        """The characters of all texts, concatenated."""
        return characters_of(self.texts)

    @functools.cached_property
    def lines(self) -> Lines:
        """The lines of all texts that are not blank."""
        return lines_of(self.characters)

    @functools.cached_property
    def lengths(self) -> IntArray:
        """(B,) the number of characters of each text."""
        return np.fromiter(map(len, self.texts), np.int64, len(self.texts))

    @functools.cached_property
    def _no_notes(self) -> Sequence[None]:
        return [None] * len(self)  # cached, as records need it for each document

    def note(self, name: str) -> Sequence[str | None]:
        """Return a column, or B times None if it does not exist."""
        return self.notes.get(name) or self._no_notes

    def in_languages(self, languages: Collection[str]) -> BoolArray:
        """(B,) whether a rule for `languages` applies: the note `language` is one of them,
        undecided or missing; or `languages` is empty."""
        accepted = {*languages, None, UNDECIDED}
        notes = self.note(LANGUAGE)
        return np.array([not languages or note in accepted for note in notes], np.bool_)

    def with_notes(self, notes: Mapping[str, Sequence[str | None]]) -> CurationBatch:
        """Return the documents with added or replaced notes, keeping cached words and lines."""
        changed = replace(self, notes={**self.notes, **notes})
        for view in ("words", "characters", "lines", "lengths"):
            if view in self.__dict__:
                changed.__dict__[view] = self.__dict__[view]
        return changed

    def differing(self, notes: Mapping[str, Sequence[str | None]]) -> dict[str, int]:
        """Return, for each column that `notes` replaces, the number of documents that differ."""
        counts = {}
        for name in notes.keys() & self.notes.keys():
            pairs = zip(self.notes[name], notes[name], strict=True)
            if differ := sum(old is not None and old != new for old, new in pairs):
                counts[name] = differ
        return counts

    def take(self, chosen: BoolArray) -> CurationBatch:
        """Return the documents where `chosen`, (B,), is true, keeping cached words."""
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

    def indices_in(self, table: ArrowTable) -> IntArray:
        """Return, for each row of a table about these documents, the index of its document."""
        return np.searchsorted(self.rows, table.column("row").to_numpy())

    def mentioned_in(self, table: ArrowTable) -> CurationBatch:
        """Return the documents that the table has rows about."""
        return self.take(np.isin(self.rows, table.column("row").to_numpy()))

    def to_arrow(self) -> ArrowTable:
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
    def from_arrow(cls, table: ArrowTable) -> CurationBatch:
        columns = dict(zip(table.schema.names, table.columns, strict=True))
        rows = columns.pop(ROW).to_numpy()
        ids, texts = columns.pop(ID).to_pylist(), columns.pop(TEXT).to_pylist()
        values = columns.pop(VALUES).to_pylist()
        notes = {name.removeprefix(NOTE): c.to_pylist() for name, c in columns.items()}
        return cls(rows, ids, texts, notes, values)


def arrow_table(**columns: Any) -> ArrowTable:
    """Build an Arrow table of arrays; pyarrow is imported only where a step runs."""
    import pyarrow as pa

    return pa.table(columns)


def strings(values: Sequence[str | None]) -> Any:
    """Build an Arrow array of strings, of one type whatever their number."""
    import pyarrow as pa

    return pa.array(values, pa.large_string())


# The column of the number of a document in the corpus: the number of its shard << 32 | its row.
DOCUMENT = "document"
# A property of the corpus after a step (`Step.LEAVES`).
NO_NEAR_COPIES = "no near-duplicates"
_OPENED: dict[str, tuple[list[Any], Any]] = {}  # by a hash of the settings: files, `open()`


@dataclass(frozen=True, kw_only=True)
class Step(ABC):
    """A step that judges each document by itself."""

    CHANGES_TEXT: ClassVar[bool] = False
    """Whether documents may leave with another text."""
    NOTES: ClassVar[tuple[str, ...]] = ()
    """The notes that it writes."""
    UNLESS: ClassVar[str] = ""
    """What the card says of a corpus that the step did not process."""
    REMOVES_COPIES: ClassVar[bool] = False
    """Whether documents are removed because of others that are kept."""
    LEAVES: ClassVar[tuple[str, ...]] = ()
    """What holds of the corpus after the step, for steps that need it (`needs_before`)."""
    PRIVATE: ClassVar[bool] = False
    """Whether records and examples of the step must not show the original texts."""

    def check(self) -> None:
        """Check the settings, before anything is read.

        Raises:
            ConfigError: naming the field, without the step's name before it.
        """
        return None

    def check_beside(self, name: str, steps: Mapping[str, Step]) -> None:
        """Check the settings against the other steps of the recipe; `name` is this step's.

        Raises:
            ConfigError: two of them contradict each other.
        """
        return None

    def needs_before(self) -> Mapping[str, str]:
        """Return the properties (`LEAVES`) that earlier steps should establish, each with the
        reason. A recipe without such a step runs with a warning."""
        return {}

    def proposed(self, counts: Mapping[str, int]) -> tuple[Self, Finding | None]:
        """Return the step with settings suggested by a first look, and a finding about them.

        Args:
            counts: the number of documents by value of the first of `NOTES`.
        """
        return self, None

    def wordless(self) -> Collection[str]:
        """Return the rules that change no words; their records omit the text before."""
        return ()

    def files(self) -> Sequence[Path]:
        """Return the files besides the corpus on whose content the result depends."""
        return ()

    def require(self) -> None:
        """Check `files()` before the corpus is read, after `open`.

        Raises:
            MaskwrightError: naming the file.
        """
        return None

    def open(self) -> Any:
        """Load what `apply` needs (word lists, a model)."""
        return None

    def opened(self) -> Any:
        """Return `open()`, cached per process until the settings or the files change."""
        key = fingerprint([type(self).__module__, to_plain(self)])
        state = [file_state(path) for path in self.files()]
        if key not in _OPENED or _OPENED[key][0] != state:
            _OPENED[key] = state, self.open()
        return _OPENED[key][1]

    @abstractmethod
    def apply(self, batch: CurationBatch, opened: Any, gathered: ArrowTable = None) -> Outcome:
        """Judge the documents of a batch. A pure function.

        Args:
            opened: the result of `open`.
            gathered: the rows for this batch of the result of `gather`; None for a plain `Step`.
        """

    # -------------------------------------------------------------------------- checks of settings
    def check_shares(self, *names: str, positive: bool = False) -> None:
        """Raise a ConfigError for values outside of 0 to 1, with `positive` also for 0; a setting
        may be None."""
        for name in names:
            if (value := getattr(self, name)) is not None:
                require(name, value, 0, 1)
                if positive and not value:
                    raise out_of_range(name, value, "more than 0, at most 1")

    def check_counts(self, *names: str) -> None:
        """Raise a ConfigError for values below 0."""
        for name in names:
            require(name, getattr(self, name), 0)

    def check_range(self, low: str, high: str) -> None:
        """Raise a ConfigError for an empty range."""
        least, most = getattr(self, low), getattr(self, high)
        if least > most:
            raise out_of_range(low, least, f"at most {high}, {most}")

    def is_set(self, name: str) -> bool:
        return getattr(self, name) not in (None, "", (), {})

    def require_one(self, *names: str, example: str) -> None:
        """Raise a ConfigError if none of the settings is set."""
        if not any(map(self.is_set, names)):
            raise ConfigError(
                f"the setting {' or '.join(names)} is missing",
                where=names[0],
                found="not set",
                wanted=example,
                do=f"set {example}, or leave the step out",
            )

    def refuse_both(self, name: str, alternative: str) -> None:
        """Raise a ConfigError if two settings for one purpose are set."""
        if self.is_set(name) and self.is_set(alternative):
            values = [f"{setting} = {getattr(self, setting)!r}" for setting in (name, alternative)]
            raise ConfigError(
                f"`{name}` and `{alternative}` exclude each other",
                where=alternative,
                found=" and ".join(values),
                wanted="one of them",
                do="leave one out",
            )

    def without_effect(self, name: str, reason: str) -> ConfigError:
        """Return the error that a setting has no effect for a reason."""
        return ConfigError(
            f"`{name}` has no effect {reason}",
            where=name,
            found=getattr(self, name),
            do=f"leave `{name}` out",
        )

    def require_kept(self, languages: Collection[str], steps: Mapping[str, Step]) -> None:
        """Raise a ConfigError for rules for languages none of which the recipe keeps."""
        by = next((name for name, step in steps.items() if LANGUAGE in step.NOTES), "")
        kept_languages = getattr(steps.get(by), "keep", ())
        if languages and kept_languages and not set(languages) & set(kept_languages):
            raise ConfigError(
                "the rules are for languages of which no document is kept",
                where="languages",
                found=", ".join(languages),
                wanted=f"one of those in {by}.keep: {', '.join(kept_languages)}",
                do="set languages to them (and their stop words, where the step has such), to [] "
                "for all, or leave the step out",
            )


Pass = Callable[[CurationBatch, Any], ArrowTable]


class CorpusHandle(Protocol):
    """The whole corpus, as a `CorpusStep` accesses it. Passes run over the shards, locally or on a
    cluster; their tables are kept on disk, so that a stopped curation resumes after the last."""

    def map(self, name: str, function: Pass, side_input: ArrowTable = None) -> Tables:
        """Run `function(batch, rows of side_input about this batch)` over all documents.

        Args:
            name: the name of the pass, unique in the step.
            function: a module-level function or a method of the step, as it is pickled. It returns
                a table of any number of rows with a column `row`, the number of the document in its
                shard, which is replaced by `document`, its number in the corpus.
            side_input: a table with the column `document`; each batch gets the rows about its
                documents in their order, with `row` instead, and only shards that it mentions are
                read. A table without that column is passed to every batch.
        """
        ...

    def say(self, finding: Finding) -> None:
        """Report a finding to the user and on the card."""
        ...


class Tables(Protocol):
    """The tables that a pass returned, on disk."""

    def read(self, columns: Sequence[str] | None = None) -> ArrowTable:
        """Return all rows, in the order of `document`; `columns` None: with all columns."""
        ...

    def repeated(self, keys: Sequence[str], columns: Sequence[str]) -> ArrowTable:
        """Return `keys` and `columns` of the rows whose keys occur at least twice, sorted by both.
        Partitioned if the tables do not fit into memory."""
        ...

    def among(self, key: str, values: IntArray) -> ArrowTable:
        """Return `document` and `key` of the rows whose `key` is one of the values."""
        ...

    def totals(self, keys: Sequence[str], sums: Sequence[str], least: int = 0) -> ArrowTable:
        """Return the sum of each column of `sums` grouped by `keys`, sorted by the keys, for groups
        whose first sum is at least `least`."""
        ...


@dataclass(frozen=True, kw_only=True)
class CorpusStep(Step):
    """A step that needs the whole corpus before it judges a document."""

    def first_pass(self) -> tuple[str, Pass] | None:
        """Return (name, function) of the pass without side input with which `gather` begins, which
        the engine may run while the preceding step has the documents in memory; None: no such."""
        return None

    @abstractmethod
    def gather(self, corpus: CorpusHandle, opened: Any) -> ArrowTable:
        """Return the table for `apply`. With a column `document`, each batch gets the rows of its
        documents, in their order and with `row` instead; without it, the whole table."""


def where_applies(values: NDArray[np.generic], applies: BoolArray) -> FloatArray:
    """Return `values`, replaced by NaN, which passes every limit, where the rule does not apply."""
    return np.where(applies, values.astype(np.float64), np.nan)


def measures_of(
    rules: Sequence[tuple[str, NDArray[np.generic], float | None, float | None]],
    applies: BoolArray,
) -> list[RuleMeasure]:
    """Return the measures of rules (name, values, low, high) for documents where they apply."""
    return [RuleMeasure(rule, where_applies(v, applies), low, high) for rule, v, low, high in rules]


def shares(numerators: NDArray[np.generic], denominators: NDArray[np.generic]) -> FloatArray:
    """Return `numerators` / `denominators`, 0 where the denominator is 0."""
    divisors = denominators.astype(np.float64)
    quotients = np.zeros(len(divisors))
    return np.divide(numerators.astype(np.float64), divisors, out=quotients, where=divisors > 0)
