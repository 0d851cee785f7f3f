"""The whole corpus of a step in one process and in memory: what steps are tested with.

    corpus = InProcess(batches)    # `CurationBatch`es, each with its rows numbered in its shard
    found = step.gather(corpus, step.open())
    outcomes = [step.apply(b, opened, corpus.about(found, n)) for n, b in enumerate(batches)]

or all of that as `run(step, batches)`, and `survivors(step, batches)` for the ids that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from maskwright.base.errors import Finding
from maskwright.text.curate.engine.corpus import repeated_rows, summed_rows
from maskwright.text.curate.step import DOCUMENT, CorpusStep, CurationBatch, Outcome, Pass, Step


def batch_of(texts: Sequence[str], **notes: Sequence[str | None]) -> CurationBatch:
    """A batch of `texts` with the ids `d0`, `d1`, ..."""
    names = [f"d{n}" for n in range(len(texts))]
    return CurationBatch(np.arange(len(texts)), names, list(texts), notes)


class InProcess:
    """A `CorpusHandle` of some batches, one for each shard."""

    def __init__(self, batches: Sequence[CurationBatch], opened: Any = None) -> None:
        self.batches, self.opened = batches, opened
        self.findings: list[Finding] = []

    def map(self, name: str, function: Pass, side_input: pa.Table | None = None) -> InMemory:
        tables = []
        for shard, batch in enumerate(self.batches):
            about = None if side_input is None else self.about(side_input, shard)
            if not (len(batch) if about is None else about.num_rows):
                continue
            table = function(batch, about)
            numbers = table.column("row").to_numpy() + (shard << 32)
            tables.append(table.drop_columns(["row"]).append_column(DOCUMENT, pa.array(numbers)))
        return InMemory(
            pa.concat_tables(tables) if tables else pa.table({DOCUMENT: pa.array([], pa.int64())})
        )

    def say(self, finding: Finding) -> None:
        self.findings.append(finding)

    def about(self, side_input: pa.Table, shard: int) -> pa.Table:
        """The rows of `side_input` about the documents of a shard, in their order."""
        if DOCUMENT not in side_input.schema.names:
            return side_input
        numbers = side_input.column(DOCUMENT).to_numpy()
        here = side_input.filter(pa.array(numbers >> 32 == shard))
        here = here.take(pa.array(np.argsort(here.column(DOCUMENT).to_numpy(), kind="stable")))
        rows = here.column(DOCUMENT).to_numpy() & 0xFFFFFFFF
        return here.drop_columns([DOCUMENT]).append_column("row", pa.array(rows))


class InMemory:
    """The `Tables` of a pass."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        ordered = self.table.sort_by([(DOCUMENT, "ascending")])
        return ordered if columns is None else ordered.select(list(columns))

    def arrays(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        return {name: self.table.column(name).to_numpy() for name in names}

    def repeated(self, keys: Sequence[str], columns: Sequence[str]) -> pa.Table:
        return repeated_rows(self.arrays([*keys, *columns]), keys)

    def among(self, key: str, values: NDArray[np.int64]) -> pa.Table:
        wanted = self.table.filter(pa.array(np.isin(self.table.column(key).to_numpy(), values)))
        return wanted.select([DOCUMENT, key])

    def totals(self, keys: Sequence[str], sums: Sequence[str], least: int = 0) -> pa.Table:
        return summed_rows(self.arrays([*keys, *sums]), keys, least)


def run(step: Step, batches: Sequence[CurationBatch]) -> list[Outcome]:
    """What the step answers for each batch, one a shard."""
    step.check()
    opened = step.open()
    corpus = InProcess(batches, opened)
    side_input = step.gather(corpus, opened) if isinstance(step, CorpusStep) else None
    return [
        step.apply(batch, opened, None if side_input is None else corpus.about(side_input, shard))
        for shard, batch in enumerate(batches)
    ]


def removed(step: Step, batches: Sequence[CurationBatch]) -> dict[str, str]:
    """The rule by which each removed document went, by its id."""
    found: dict[str, str] = {}
    for batch, outcome in zip(batches, run(step, batches), strict=True):
        for measure in outcome.measures:
            for place in np.flatnonzero(measure.outside):
                found.setdefault(batch.ids[place], measure.rule)
        for removal in outcome.removals:
            found.setdefault(batch.ids[removal.index], removal.rule)
    return found


def survivors(step: Step, batches: Sequence[CurationBatch]) -> list[str]:
    """The ids of the documents that are left, in their order."""
    gone = removed(step, batches)
    return [name for batch in batches for name in batch.ids if name not in gone]
