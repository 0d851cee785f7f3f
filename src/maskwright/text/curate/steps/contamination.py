"""Remove documents that contain texts of evaluation files, or cut these texts out.

A text of an evaluation file matches a document by any `overlap` consecutive words that they share
(13 in GPT-3, Brown et al. 2020, appendix C). A shorter text, of at least `shortest` words, matches
where all of it is a line or sentence of the document; still shorter ones, such as "yes", are not
searched for. Case and punctuation are ignored. In scripts without spaces letters count in place of
words: two for a word of Chinese and Japanese, four of Thai.

A finding reports for each evaluation file how many of its rows are in the corpus.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from maskwright.base.config import require
from maskwright.base.errors import ConfigError, Finding, MaskwrightError
from maskwright.base.terminal import counted
from maskwright.text.corpus.files import Source, find_all
from maskwright.text.corpus.read import Reader
from maskwright.text.curate.arrays.hashes import HashTable, is_first, mix, ranges, starts_of
from maskwright.text.curate.arrays.segmentation import characters_of, words_of
from maskwright.text.curate.arrays.spans import Spans, character_ranges, cut_spans, merge_spans
from maskwright.text.curate.step import (
    DOCUMENT,
    ArrowTable,
    Change,
    CorpusHandle,
    CorpusStep,
    CurationBatch,
    Outcome,
    Removal,
    arrow_table,
)
from maskwright.text.store import BoolArray, IntArray, UintArray
from maskwright.text.tables.files import separate_class_names
from maskwright.text.tables.formats import text_files
from maskwright.text.tables.read import read_rows

SUMMARY = "remove documents with texts of evaluation files, or cut these texts out"
RULE = "contaminated"


@dataclass(frozen=True, kw_only=True)
class Settings(CorpusStep):
    UNLESS: ClassVar[str] = (
        "the corpus was not compared with evaluation files: figures on public benchmarks may be "
        "too high"
    )
    CHANGES_TEXT = True

    evaluation: tuple[str, ...] = ()
    """Files or folders with the texts that the corpus must not hold, of any labelled or text
    format; all columns of text count."""
    overlap: int = 13
    """Words in a row that a document and an evaluation text may not share."""
    shortest: int = 6
    """Words of the shortest text that is looked for; below `overlap` it must be a whole line or
    sentence of the document."""
    action: Literal["remove", "cut"] = "remove"
    """Whether the document is removed, or the shared words are cut out of it."""

    def check(self) -> None:
        self.require_one("evaluation", example='evaluation = ["test.jsonl"]')
        require("overlap", self.overlap, 2)
        require("shortest", self.shortest, 1)
        try:
            sources_of(self.evaluation)
        except MaskwrightError as error:
            raise ConfigError(
                "the evaluation files cannot be read",
                where="evaluation",
                found=f"{error.what}: {error.where or error.found}",
                wanted=error.wanted,
                do=error.do,
            ) from error

    def files(self) -> Sequence[Path]:
        return [path for source in sources_of(self.evaluation) for path in source.paths]

    def open(self) -> Index:
        """Return the index of the evaluation texts; errors as those of `index_of`."""
        return index_of(self.evaluation, self.overlap, self.shortest)

    # -------------------------------------------------------------------------- passes
    def hits(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the sets of evaluation texts that each document shares words with."""
        spans, sets = self.opened().matches(batch)
        pairs = np.unique(np.stack([spans.texts, sets], axis=1), axis=0)
        return arrow_table(row=batch.rows[pairs[:, 0]], set=pairs[:, 1].copy())

    def gather(self, corpus: CorpusHandle, opened: Index) -> ArrowTable:
        """Return the contaminated documents, each with its first evaluation text."""
        pairs = corpus.map("hits", self.hits).read([DOCUMENT, "set"])
        documents, sets = (pairs.column(name).to_numpy() for name in (DOCUMENT, "set"))
        for finding in findings(opened, documents, sets):
            corpus.say(finding)
        first_texts = opened.sets.texts[opened.sets.starts[sets]]
        order = np.lexsort((first_texts, documents))
        rows = order[is_first(documents[order])]
        return arrow_table(document=documents[rows], text=first_texts[rows])

    def apply(self, batch: CurationBatch, opened: Index, gathered: ArrowTable = None) -> Outcome:
        if not gathered.num_rows:
            return Outcome()
        indices = batch.indices_in(gathered).tolist()
        hit = batch.mentioned_in(gathered)
        spans = merge_spans(opened.matches(hit)[0])
        values = [str(opened.texts[text]) for text in gathered.column("text").to_pylist()]
        where = character_ranges(hit.words, spans)
        of_text = np.searchsorted(spans.texts, np.arange(len(hit) + 1)).tolist()
        if self.action == "remove":
            limit = f"no {self.overlap} words in a row, or whole short text, of an evaluation file"
            rows = zip(indices, values, of_text, of_text[1:], strict=False)
            return Outcome(
                removals=[
                    Removal(index, RULE, value, next(iter(where[begin:end]), None), limit)
                    for index, value, begin, end in rows
                ]
            )
        rewritten = list(batch.texts)
        for index, text in zip(indices, cut_spans(hit, spans), strict=True):
            rewritten[index] = text
        changes = [
            Change(indices[number], RULE, values[number], span)
            for number, span in zip(spans.texts.tolist(), where, strict=True)
        ]
        return Outcome(texts=rewritten, changes=changes)


@dataclass(frozen=True)
class TextPlace:
    """The place of a text in an evaluation file.

    Attributes:
        file: the file, as the user named it.
        row: the number of the line, row or item in the file, from 1.
        unit: what `row` counts.
        column: the column of the text; empty in running text.
    """

    file: str
    row: int
    unit: str
    column: str

    def __str__(self) -> str:
        column = f", {self.column}" if self.column else ""
        return f"{self.file}, {self.unit} {self.row}{column}"


def sources_of(paths: Sequence[str | Path]) -> list[Source]:
    """Find the files of rows and texts in `paths`.

    Raises:
        UsageError: a path does not exist, or cannot be read.
    """
    return separate_class_names(find_all(list(paths), text_files.sources))[0]


def read_texts(source: Source) -> Iterator[tuple[TextPlace, str]]:
    """Yield the texts of a file, each with its place.

    Raises:
        DataError, StorageError, UsageError: bad rows; the file cannot be read.
    """
    if source.format == "text":
        for document in Reader(source.path):
            number = int(document.id.rpartition(":")[2])
            yield TextPlace(source.shown, number, "line", ""), document.text
        return
    for row in read_rows([source]):
        for column, value in row.values.items():
            for text in texts_in(value):
                yield TextPlace(source.shown, row.number, row.unit, str(column)), text


def texts_in(value: Any) -> Iterator[str]:
    """Yield the strings in a nested value of a row; a list of single words is one text."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts_in(inner)
    elif isinstance(value, list | tuple):
        if value and all(isinstance(item, str) and len(item.split()) == 1 for item in value):
            yield " ".join(value)
        else:
            for inner in value:
                yield from texts_in(inner)


# Characters between two words of one sentence; all others end a line or sentence.
WITHIN = " \t\u00a0,'\u2019-"


@dataclass(frozen=True)
class Grams:
    """N distinct n-grams of `size` words of the evaluation texts.

    `complete`: whether each is a whole text, which must be a line or sentence of a document;
    `sets`: the index in `TextSets` of the texts that contain it, by its hash."""

    size: int
    complete: bool
    sets: HashTable


@dataclass(frozen=True)
class TextSets:
    """Distinct sets of evaluation texts.

    N-grams of the same texts have the same set. A prompt that a thousand texts begin with is then
    one number for each document that has it, not a thousand pairs.

    Attributes:
        starts: (S + 1,) set s has the texts `texts[starts[s]:starts[s + 1]]`, ascending.
        texts: indices of evaluation texts.
    """

    starts: IntArray
    texts: IntArray

    def of(self, number: int) -> IntArray:
        """Return the texts of the set `number`."""
        return self.texts[self.starts[number] : self.starts[number + 1]]


@dataclass(frozen=True)
class Index:
    """The n-grams of all evaluation texts.

    Attributes:
        texts: the places of the texts that are searched for.
        grams: the n-grams by size.
        sets: the sets of texts of the n-grams.
        rows: by file, (the number of its rows, the number of rows that are searched for).
    """

    texts: Sequence[TextPlace]
    grams: Sequence[Grams]
    sets: TextSets
    rows: dict[str, tuple[int, int]]

    def matches(self, batch: CurationBatch) -> tuple[Spans, IntArray]:
        """Return the spans of words that documents share with evaluation texts, and (R,) the set of
        texts of each."""
        words, boundaries = batch.words, boundaries_of(batch)
        at_boundary = np.flatnonzero(boundaries[:-1])
        matched = [(np.zeros(0, np.int64),) * 4]
        for grams in self.grams:
            if grams.complete:
                # A whole line or sentence: it begins and ends at a boundary, in one text.
                firsts = at_boundary[at_boundary + grams.size <= len(words.hashes)]
                firsts = firsts[boundaries[firsts + grams.size]]
            else:
                firsts = np.arange(len(words.hashes) - grams.size + 1)
            indices, sets = grams.sets.find(words.spans.of(firsts, firsts + grams.size))
            firsts = firsts[indices]
            texts = np.searchsorted(words.starts, firsts, "right") - 1
            inside = firsts + grams.size <= words.starts[texts + 1]
            texts, begins = texts[inside], (firsts - words.starts[texts])[inside]
            matched.append((texts, begins, begins + grams.size, sets[inside]))
        texts, begins, ends, sets = map(np.concatenate, zip(*matched, strict=True))
        return Spans(texts, begins, ends), sets


def index_of(paths: Sequence[str], overlap: int, shortest: int) -> Index:
    """Build the index of evaluation files.

    Raises:
        DataError, StorageError, UsageError: a file cannot be read.
    """
    texts: list[TextPlace] = []
    grams: dict[tuple[int, bool], list[tuple[UintArray, IntArray]]] = {}
    row_counts: dict[str, tuple[int, int]] = {}
    for source in sources_of(paths):
        entries = list(read_texts(source))
        characters = characters_of([text for _, text in entries])
        words, letters = words_of(characters), characters.letters_per_word
        num_words = words.counts
        long_enough = num_words >= min(shortest, overlap) * letters
        text_numbers = np.cumsum(long_enough) - 1 + len(texts)
        for letters_each in np.unique(letters).tolist():
            full_size = overlap * letters_each
            for size in range(min(shortest, overlap) * letters_each, full_size + 1):
                # Short texts as a whole, longer ones by all their n-grams.
                fits = num_words == size if size < full_size else num_words >= size
                counts = np.where((letters == letters_each) & fits, num_words - size + 1, 0)
                firsts = ranges(words.starts[:-1], counts)
                hashes = words.spans.of(firsts, firsts + size)
                block = hashes, np.repeat(text_numbers, counts)
                grams.setdefault((size, size < full_size), []).append(block)
        searched = [entries[index][0] for index in np.flatnonzero(long_enough).tolist()]
        texts += searched
        num_rows = len({place.row for place, _ in entries})
        row_counts[source.shown] = num_rows, len({place.row for place in searched})
    keys = [key for key in sorted(grams) if any(len(hashes) for hashes, _ in grams[key])]
    groups = [_by_hash(*map(np.concatenate, zip(*grams[key], strict=True))) for key in keys]
    sets, set_numbers = _distinct_sets([(starts, members) for _, starts, members in groups])
    tables = [
        HashTable(group[0], sets_of) for group, sets_of in zip(groups, set_numbers, strict=True)
    ]
    indexed = [Grams(*key, table) for key, table in zip(keys, tables, strict=True)]
    return Index(texts, indexed, sets, row_counts)


def _by_hash(hashes: UintArray, texts: IntArray) -> tuple[UintArray, IntArray, IntArray]:
    """Group texts by hash. Return (H,) the sorted distinct hashes, (H + 1,) the index of the first
    text of each, and the distinct texts of each hash, ascending."""
    order = np.lexsort((texts, hashes))
    order = order[is_first(hashes[order], texts[order])]
    hashes, texts = hashes[order], texts[order]
    starts = np.append(np.flatnonzero(is_first(hashes)), len(hashes))
    return hashes[starts[:-1]], starts, texts


def _distinct_sets(groups: Sequence[tuple[IntArray, IntArray]]) -> tuple[TextSets, list[IntArray]]:
    """Return the distinct sets of texts, and for each element of `groups`, pairs (starts, texts) as
    from `_by_hash`, the index of the set of each hash. Sets are compared by a 64-bit hash."""
    empty = np.zeros(0, np.int64)
    texts = np.concatenate([empty, *(members for _, members in groups)])
    sizes = np.concatenate([empty, *(np.diff(starts) for starts, _ in groups)])
    begins = np.cumsum(sizes) - sizes
    with np.errstate(over="ignore"):
        text_hashes = mix(texts.astype(np.uint64) + np.uint64(1))
        sums = np.add.reduceat(text_hashes, begins) if len(begins) else text_hashes
    _, firsts, numbers = np.unique(sums, return_index=True, return_inverse=True)
    set_sizes = sizes[firsts]
    members = ranges(begins[firsts], set_sizes)
    cuts = np.cumsum([len(starts) - 1 for starts, _ in groups])
    return TextSets(starts_of(set_sizes), texts[members]), np.split(numbers, cuts)[: len(groups)]


def boundaries_of(batch: CurationBatch) -> BoolArray:
    """Return (W + 1,) whether a line or sentence begins at each word, and True for the end."""
    words, characters = batch.words, batch.characters
    is_boundary = np.ones(len(words.hashes) + 1, np.bool_)
    offsets = characters.offsets[words.texts]
    marks = starts_of(_ends_a_sentence()[characters.points])
    begins, ends = (words.begins + offsets)[1:], (words.ends + offsets)[:-1]
    is_boundary[1:-1] = marks[begins] > marks[ends]
    return is_boundary


@functools.cache
def _ends_a_sentence() -> BoolArray:
    """Return, for every code point, whether it ends a sentence (is not in `WITHIN`)."""
    ends = np.ones(0x110000, np.bool_)
    ends[[ord(sign) for sign in WITHIN]] = False
    return ends


def findings(index: Index, documents: IntArray, sets: IntArray) -> Iterator[Finding]:
    """Yield a finding for each evaluation file: how many of its rows are in the corpus.

    Args:
        documents, sets: (P,) each: pairs of a document and a set of evaluation texts in it.
    """
    rows_hit: dict[str, set[int]] = {}
    sets_of: dict[str, list[int]] = {}
    for number in np.unique(sets).tolist():
        for text_number in index.sets.of(number).tolist():
            text = index.texts[text_number]
            rows_hit.setdefault(text.file, set()).add(text.row)
            numbers = sets_of.setdefault(text.file, [])
            if not numbers or numbers[-1] != number:
                numbers.append(number)
    for file, (rows, sought) in index.rows.items():
        hit = len(rows_hit.get(file, ()))
        short = rows - sought
        containing = len(np.unique(documents[np.isin(sets, sets_of.get(file, []))]))
        evidence = f"in {counted(containing, 'document')}" if hit else ""
        if short:
            skipped = f"{counted(short, 'row')} with too short a text not looked for"
            evidence = f"{evidence}; {skipped}" if evidence else skipped
        yield Finding(
            "contamination",
            f"{hit} of {counted(rows, 'row')} of {file} found in the corpus",
            evidence,
            severity="warning" if not sought else "note",
        )
