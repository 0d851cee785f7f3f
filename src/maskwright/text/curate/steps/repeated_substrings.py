"""Cut spans of at least `length` words that occur earlier in the corpus out of the texts.

The result is that of a suffix array of the whole corpus (Lee et al. 2107.06499), with less memory:
equal windows of `length` words have the same fingerprint (winnowing, Schleimer, Wilkerson and Aiken
2003), so that only the surroundings of fingerprints that occur twice are compared. The fingerprint
of a window is the smallest hash of its k-grams, the leftmost of equals. Most neighbouring windows
share theirs: there is one per (length - k) / 2 words.

    prints    the fingerprints of all texts; those that occur once are dropped
    runs      neighbouring windows with the same repeated fingerprint, compared by one hash
    windows   runs that share a fingerprint but differ, at the ends of repeated spans: one of each
              kind is compared window by window

A window is kept at its first position in the first document in order. All others are cut, up to the
next remaining word. Work and memory are linear in the number of repeated words.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from maskwright.base.config import require
from maskwright.text.curate.arrays.hashes import HashTable, is_first, ranges
from maskwright.text.curate.arrays.segmentation import Words
from maskwright.text.curate.arrays.selection import ORDER, OrderedStep, in_order
from maskwright.text.curate.arrays.spans import Spans, character_ranges, cut_spans, merge_spans
from maskwright.text.curate.step import (
    DOCUMENT,
    ArrowTable,
    Change,
    CorpusHandle,
    CurationBatch,
    Outcome,
    arrow_table,
)
from maskwright.text.store import IntArray, UintArray

SUMMARY = "cut out what at least 50 words in a row repeat of earlier text"
RULE = "repeated-substring"
SHORTEST = 5
# Most runs, and most windows, in memory at a time.
AT_ONCE = 1 << 22
PLACE_BITS = 28  # bits of a sort key that hold the index of a word in its batch


@dataclass(frozen=True, kw_only=True)
class Settings(OrderedStep):
    CHANGES_TEXT = True

    length: int = 50
    """Words in a row that no two places may have in common; in scripts without spaces, letters."""

    def check(self) -> None:
        super().check()
        require("length", self.length, SHORTEST)

    # -------------------------------------------------------------------------- passes
    def prints(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the distinct fingerprints of a batch and the count of each."""
        prints, counts = np.unique(runs_of(batch.words, self.length)[0], return_counts=True)
        rows = np.full(len(prints), batch.rows[0])
        return arrow_table(row=rows, print=prints, count=counts.astype(np.int64))

    def runs(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the runs whose fingerprints are in `side_input`."""
        words = batch.words
        prints, firsts, counts = runs_of(words, self.length)
        chosen, _ = HashTable(side_input.column("print").to_numpy()).find(prints)
        prints, firsts, counts = prints[chosen], firsts[chosen], counts[chosen]
        texts = np.searchsorted(words.starts, firsts, "right") - 1
        return arrow_table(
            row=batch.rows[texts],
            print=prints,
            run=words.spans.of(firsts, firsts + counts + self.length - 1),
            place=(firsts - words.starts[texts]).astype(np.int32),
            count=counts.astype(np.int32),
        )

    def windows(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return every window of the runs in `side_input`."""
        counts = side_input.column("count").to_numpy()
        texts = np.repeat(batch.indices_in(side_input), counts)
        positions = ranges(side_input.column("place").to_numpy(), counts)
        firsts = batch.words.starts[texts] + positions
        return arrow_table(
            row=batch.rows[texts],
            window=batch.words.spans.of(firsts, firsts + self.length),
            place=positions.astype(np.int32),
        )

    def ordered(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the columns of the order for the documents in `side_input`."""
        chosen = batch.mentioned_in(side_input)
        return arrow_table(row=chosen.rows, **self.order(chosen))

    # -------------------------------------------------------------------------- gather
    def gather(self, corpus: CorpusHandle, opened: Any) -> ArrowTable:
        """Return the spans to cut: document, first word (`begin`), word after the last (`end`)."""
        repeated = corpus.map("prints", self.prints).totals(["print"], ["count"], least=2)
        spans = Spans(*np.zeros((3, 0), np.int64))
        for number, portion in enumerate(portions(repeated.column("count").to_numpy(), AT_ONCE)):
            side_input = arrow_table(print=repeated.column("print").to_numpy()[portion])
            blocks = [spans, *self._spans_of_prints(corpus, number, side_input)]
            columns = [(block.texts, block.begins, block.ends) for block in blocks]
            spans = merge_spans(Spans(*map(np.concatenate, zip(*columns, strict=True))))
        return arrow_table(document=spans.texts, begin=spans.begins, end=spans.ends)

    def _spans_of_prints(
        self, corpus: CorpusHandle, number: int, side_input: ArrowTable
    ) -> Iterator[Spans]:
        """Yield the spans to cut around the fingerprints in `side_input`, the portion `number`."""
        tables = corpus.map(f"runs-{number}", self.runs, side_input)
        table = tables.repeated(["print"], ["run", DOCUMENT, "place", "count"])
        prints, runs, documents = (
            table.column(name).to_numpy() for name in ("print", "run", DOCUMENT)
        )
        positions = table.column("place").to_numpy().astype(np.int64)
        counts = table.column("count").to_numpy().astype(np.int64)
        involved, texts = np.unique(documents, return_inverse=True)
        ranks = self._ranks(corpus, number, involved)
        order = np.lexsort((positions, ranks[texts], runs, prints))
        new_print = is_first(prints[order])
        new_run = is_first(prints[order], runs[order])
        repeats = order[~new_run]
        ends = positions + counts + self.length - 1
        yield Spans(documents[repeats], positions[repeats], ends[repeats])
        print_numbers = np.cumsum(new_print)
        distinct_runs = np.bincount(print_numbers[new_run])  # of each fingerprint
        differing = order[new_run & (distinct_runs[print_numbers] > 1)]
        # Portions hold all runs of a fingerprint, as equal windows have equal fingerprints.
        for portion_number, portion in enumerate(
            portions(counts[differing], AT_ONCE, prints[differing])
        ):
            rows = differing[portion]
            run_table = arrow_table(
                document=documents[rows],
                place=positions[rows].astype(np.int32),
                count=counts[rows].astype(np.int32),
            )
            name = f"windows-{number}-{portion_number}"
            yield self._spans_of_windows(corpus, name, run_table, involved, ranks)

    def _spans_of_windows(
        self,
        corpus: CorpusHandle,
        name: str,
        side_input: ArrowTable,
        involved: IntArray,
        ranks: IntArray,
    ) -> Spans:
        """Return the spans of repeated windows, but for the first of each by document rank."""
        table = corpus.map(name, self.windows, side_input).repeated(["window"], [DOCUMENT, "place"])
        windows = table.column("window").to_numpy()
        documents = table.column(DOCUMENT).to_numpy()
        positions = table.column("place").to_numpy().astype(np.int64)
        order = np.lexsort((positions, ranks[np.searchsorted(involved, documents)], windows))
        repeats = order[~is_first(windows[order])]
        return Spans(documents[repeats], positions[repeats], positions[repeats] + self.length)

    def _ranks(self, corpus: CorpusHandle, number: int, documents: IntArray) -> IntArray:
        """Return (D,) the rank of each document in the order of these documents."""
        table = corpus.map(f"order-{number}", self.ordered, arrow_table(document=documents)).read(
            [DOCUMENT, *ORDER]
        )
        ranks = np.empty(len(documents), np.int64)
        ranks[in_order(table)] = np.arange(len(documents))
        return ranks

    def apply(self, batch: CurationBatch, opened: Any, gathered: ArrowTable = None) -> Outcome:
        if not gathered.num_rows:
            return Outcome()
        begins, ends = (gathered.column(name).to_numpy() for name in ("begin", "end"))
        spans = merge_spans(Spans(batch.indices_in(gathered), begins, ends))
        lengths = (spans.ends - spans.begins).tolist()
        cuts = zip(spans.texts.tolist(), lengths, character_ranges(batch.words, spans), strict=True)
        changes = [Change(text, RULE, f"{length} words", where) for text, length, where in cuts]
        return Outcome(texts=cut_spans(batch, spans), changes=changes)


def runs_of(words: Words, length: int) -> tuple[UintArray, IntArray, IntArray]:
    """Return all windows of `length` words, as runs of neighbours whose fingerprint is the same
    k-gram: (R,) the fingerprints, the first word of each run and its number of windows."""
    gram = max(1, length // 3)  # few prints for small k, specific ones for large
    width = length - gram + 1
    windows = np.maximum(words.counts - length + 1, 0)
    if not windows.any():
        empty = np.zeros(0, np.int64)
        return np.zeros(0, np.uint64), empty, empty
    if len(words.hashes) >> PLACE_BITS:
        raise ValueError("too many words in a batch")
    # One sort key for hash and position; those of grams across texts are computed but not used.
    grams = np.arange(len(words.hashes) - gram + 1)
    hashes = words.spans.of(grams, grams + gram)
    shift = np.uint64(PLACE_BITS)
    minima = (hashes >> shift << shift) | grams.astype(np.uint64)
    span = 1
    while span < width:
        step = min(span, width - span)
        minima = np.minimum(minima[: len(minima) - step], minima[step:])
        span += step
    firsts = ranges(words.starts[:-1], windows)
    positions = (minima[firsts] & np.uint64((1 << PLACE_BITS) - 1)).astype(np.int64)
    # Positions of different texts differ, so a change of position ends a run in any case.
    begins = np.flatnonzero(is_first(positions))
    return hashes[positions[begins]], firsts[begins], np.diff(np.append(begins, len(firsts)))


def portions(counts: IntArray, limit: int, groups: UintArray | None = None) -> list[slice]:
    """Return slices of rows whose counts add up to about `limit`, without splitting a group."""
    if not len(counts):
        return []
    blocks = (np.cumsum(counts) - counts) // limit
    if groups is not None:
        firsts = is_first(groups)
        blocks = blocks[firsts][np.cumsum(firsts) - 1]
    cuts = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(counts)]
    return [slice(a, b) for a, b in itertools.pairwise(cuts)]
