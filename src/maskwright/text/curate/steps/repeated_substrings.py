"""Cut spans of at least `length` words that occur earlier in the corpus out of the texts.

The result is that of a suffix array of the whole corpus (Lee et al. 2107.06499), with less memory:
equal windows of `length` words have the same fingerprint (`winnow.py`), so that only the
surroundings of fingerprints that occur twice are compared.

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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.config import require
from maskwright.text.curate.arrays.phrases import Spans, cut_spans, merge_spans
from maskwright.text.curate.arrays.winnow import ORDER, OrderedStep, Stretches, in_order, runs_of
from maskwright.text.curate.step import DOCUMENT, Change, CorpusHandle, CurationBatch, Outcome

if TYPE_CHECKING:
    import pyarrow as pa

SUMMARY = "cut out what at least 50 words in a row repeat of earlier text"
RULE = "repeated-substring"
SHORTEST = 5
# Most runs, and most windows, in memory at a time.
AT_ONCE = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Settings(OrderedStep):
    CHANGES_TEXT = True

    length: int = 50
    """Words in a row that no two places may have in common; in scripts without spaces, letters."""

    def check(self) -> None:
        super().check()
        require("length", self.length, SHORTEST)

    # -------------------------------------------------------------------------- passes
    def prints(self, batch: CurationBatch, side_input: pa.Table | None) -> pa.Table:
        """Pass: return the distinct fingerprints of a batch and the count of each."""
        import pyarrow as pa

        runs = runs_of(batch.words, Stretches(batch.words), self.length)
        prints, counts = np.unique(runs.prints, return_counts=True)
        rows = np.full(len(prints), batch.rows[0])
        return pa.table(
            {
                "row": pa.array(rows, pa.int64()),
                "print": pa.array(prints),
                "count": pa.array(counts.astype(np.int64)),
            }
        )

    def runs(self, batch: CurationBatch, side_input: pa.Table | None) -> pa.Table:
        """Pass: return the runs whose fingerprints are in `side_input`."""
        import pyarrow as pa

        assert side_input is not None
        words = batch.words
        stretches = Stretches(words)
        runs = runs_of(words, stretches, self.length)
        repeated = side_input.column("print").to_numpy()
        entries = np.minimum(np.searchsorted(repeated, runs.prints), len(repeated) - 1)
        runs = runs.take(repeated[entries] == runs.prints)
        texts = np.searchsorted(words.starts, runs.firsts, "right") - 1
        hashes = stretches.hashes(runs.firsts, runs.counts + self.length - 1)
        return pa.table(
            {
                "row": pa.array(batch.rows[texts], pa.int64()),
                "print": pa.array(runs.prints),
                "run": pa.array(hashes),
                "place": pa.array((runs.firsts - words.starts[texts]).astype(np.int32)),
                "count": pa.array(runs.counts.astype(np.int32)),
            }
        )

    def windows(self, batch: CurationBatch, side_input: pa.Table | None) -> pa.Table:
        """Pass: return every window of the runs in `side_input`."""
        import pyarrow as pa

        assert side_input is not None
        texts = np.searchsorted(batch.rows, side_input.column("row").to_numpy())
        positions = side_input.column("place").to_numpy().astype(np.int64)
        counts = side_input.column("count").to_numpy().astype(np.int64)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        texts, positions = np.repeat(texts, counts), np.repeat(positions, counts) + within
        hashes = Stretches(batch.words).hashes(batch.words.starts[texts] + positions, self.length)
        return pa.table(
            {
                "row": pa.array(batch.rows[texts], pa.int64()),
                "window": pa.array(hashes),
                "place": pa.array(positions.astype(np.int32)),
            }
        )

    def ordered(self, batch: CurationBatch, side_input: pa.Table | None) -> pa.Table:
        """Pass: return the columns of the order for the documents in `side_input`."""
        import pyarrow as pa

        assert side_input is not None
        chosen = batch.take(np.isin(batch.rows, side_input.column("row").to_numpy()))
        return pa.table({"row": pa.array(chosen.rows, pa.int64()), **self.order(chosen)})

    # -------------------------------------------------------------------------- gather
    def gather(self, corpus: CorpusHandle, opened: Any) -> pa.Table:
        """Return the spans to cut: document, first word (`begin`), word after the last (`end`)."""
        import pyarrow as pa

        repeated = corpus.map("prints", self.prints).totals(["print"], ["count"], least=2)
        span_blocks = [Spans(*np.zeros((3, 0), np.int64))]
        for number, portion in enumerate(portions(repeated.column("count").to_numpy(), AT_ONCE)):
            side_input = pa.table({"print": pa.array(repeated.column("print").to_numpy()[portion])})
            span_blocks += self._of_prints(corpus, number, side_input)
            span_blocks = [_merge_all(span_blocks)]
        spans = span_blocks[0]
        return pa.table(
            {
                DOCUMENT: pa.array(spans.texts, pa.int64()),
                "begin": pa.array(spans.begins, pa.int64()),
                "end": pa.array(spans.ends, pa.int64()),
            }
        )

    def _of_prints(
        self, corpus: CorpusHandle, number: int, side_input: pa.Table
    ) -> Iterator[Spans]:
        """Yield the spans to cut around the fingerprints in `side_input`, the portion `number`."""
        import pyarrow as pa

        tables = corpus.map(f"runs-{number}", self.runs, side_input)
        table = tables.repeated(["print"], ["run", DOCUMENT, "place", "count"])
        prints, runs, documents = (
            table.column(name).to_numpy() for name in ("print", "run", DOCUMENT)
        )
        positions = table.column("place").to_numpy().astype(np.int64)
        counts = table.column("count").to_numpy().astype(np.int64)
        if not len(prints):
            return
        involved, texts = np.unique(documents, return_inverse=True)
        ranks = self._ranks(corpus, number, involved)
        order = np.lexsort((positions, ranks[texts], runs, prints))
        new_print = np.concatenate([[True], prints[order][1:] != prints[order][:-1]])
        new_run = new_print | np.concatenate([[True], runs[order][1:] != runs[order][:-1]])
        repeats = order[~new_run]
        ends = positions + counts + self.length - 1
        yield Spans(documents[repeats], positions[repeats], ends[repeats])
        # Runs of fingerprints that have more than one distinct run.
        variants = np.bincount(np.cumsum(new_print)[new_run])[np.cumsum(new_print)]
        differing = order[new_run & (variants > 1)]
        # Portions hold all runs of a fingerprint, as equal windows have equal fingerprints.
        for portion_number, portion in enumerate(
            portions(counts[differing], AT_ONCE, prints[differing])
        ):
            chosen = differing[portion]
            part_input = pa.table(
                {
                    DOCUMENT: pa.array(documents[chosen], pa.int64()),
                    "place": pa.array(positions[chosen], pa.int32()),
                    "count": pa.array(counts[chosen], pa.int32()),
                }
            )
            yield self._of_windows(
                corpus, f"windows-{number}-{portion_number}", part_input, involved, ranks
            )

    def _of_windows(
        self,
        corpus: CorpusHandle,
        name: str,
        side_input: pa.Table,
        involved: NDArray[np.int64],
        ranks: NDArray[np.int64],
    ) -> Spans:
        """Return the spans of repeated windows, but for the first of each by document rank."""
        table = corpus.map(name, self.windows, side_input).repeated(["window"], [DOCUMENT, "place"])
        windows = table.column("window").to_numpy()
        documents = table.column(DOCUMENT).to_numpy()
        positions = table.column("place").to_numpy().astype(np.int64)
        order = np.lexsort((positions, ranks[np.searchsorted(involved, documents)], windows))
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = windows[order][1:] != windows[order][:-1]
        repeats = order[~is_new]
        return Spans(documents[repeats], positions[repeats], positions[repeats] + self.length)

    def _ranks(
        self, corpus: CorpusHandle, number: int, documents: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return (D,) the rank of each document in the order of these documents."""
        import pyarrow as pa

        side_input = pa.table({DOCUMENT: pa.array(documents, pa.int64())})
        table = corpus.map(f"order-{number}", self.ordered, side_input).read([DOCUMENT, *ORDER])
        ranks = np.empty(len(documents), np.int64)
        ranks[in_order(table)] = np.arange(len(documents))
        return ranks

    def apply(self, batch: CurationBatch, opened: Any, gathered: pa.Table | None = None) -> Outcome:
        if gathered is None or not gathered.num_rows:
            return Outcome()
        columns = [gathered.column(name).to_numpy() for name in ("row", "begin", "end")]
        spans = merge_spans(Spans(np.searchsorted(batch.rows, columns[0]), columns[1], columns[2]))
        cut = cut_spans(batch, spans)
        changes = [
            Change(text, RULE, f"{end - begin} words", f"characters {low} to {high}")
            for text, begin, end, (low, high) in zip(
                spans.texts.tolist(),
                spans.begins.tolist(),
                spans.ends.tolist(),
                cut.characters.tolist(),
                strict=True,
            )
        ]
        return Outcome(texts=cut.texts, changes=changes)


def portions(
    counts: NDArray[np.int64], limit: int, groups: NDArray[np.uint64] | None = None
) -> list[slice]:
    """Return slices of rows whose counts add up to about `limit`, without splitting a group."""
    if not len(counts):
        return []
    blocks = (np.cumsum(counts) - counts) // limit
    if groups is not None:
        is_first = np.concatenate([[True], groups[1:] != groups[:-1]])
        blocks = blocks[is_first][np.cumsum(is_first) - 1]
    cuts = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(counts)]
    return [slice(a, b) for a, b in itertools.pairwise(cuts)]


def _merge_all(spans: list[Spans]) -> Spans:
    """Concatenate and merge spans."""
    columns = [
        np.concatenate([getattr(block, name) for block in spans])
        for name in ("texts", "begins", "ends")
    ]
    return merge_spans(Spans(*columns))
