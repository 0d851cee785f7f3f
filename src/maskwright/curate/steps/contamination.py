"""Documents that hold texts of evaluation files are removed, or those texts cut out of them.

A text of an evaluation file is found by any `overlap` consecutive words that it shares with a
document (13 in GPT-3, Brown et al. 2020, appendix C). A shorter one, of at least `shortest` words,
is found where the whole of it stands as a line or sentence of its own; still shorter ones, such as
"yes", say nothing and are not looked for. Case and punctuation do not count. In scripts without
spaces letters count in place of words: two for a word of Chinese and Japanese, four of Thai.

The evaluation files are read only. How many of their rows are in the corpus is told for each.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.config import require
from maskwright.counted import counted
from maskwright.curate.parts.batch import Batch
from maskwright.curate.parts.evaluation_texts import sources_of
from maskwright.curate.parts.outcome import Change, Outcome, Removal
from maskwright.curate.parts.overlaps import Index, index_of
from maskwright.curate.parts.step import DOCUMENT, Corpus, CorpusStep
from maskwright.curate.parts.word_spans import Spans, cut, merged
from maskwright.curate.parts.words import Words
from maskwright.errors import ConfigError, MaskwrightError
from maskwright.findings import Finding
from maskwright.storage.files import state_of

if TYPE_CHECKING:
    import pyarrow as pa

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
        if not self.evaluation:
            raise ConfigError(
                "no evaluation files are named",
                where="evaluation",
                found="an empty list",
                wanted="the files whose texts the corpus must not hold",
                do='name them: --set contamination.evaluation=["test.jsonl"]',
            )
        require("overlap", self.overlap, 2)
        require("shortest", self.shortest, 1)
        try:
            sources_of(self.evaluation)
        except MaskwrightError as error:
            found = f"{error.what}: {error.where or error.found}"
            raise ConfigError(
                "the evaluation files cannot be read",
                where="evaluation",
                found=found,
                wanted=error.wanted,
                do=error.do,
            ) from error

    def files(self) -> Sequence[Path]:
        return [path for source in sources_of(self.evaluation) for path in source.paths]

    def open(self) -> Index:
        """The words of the evaluation texts.

        Raises:
            DataError, StorageError, UsageError: a file cannot be read.
        """
        return opened_index(self)

    # -------------------------------------------------------------------------- passes
    def hits(self, batch: Batch, known: pa.Table | None) -> pa.Table:
        """The pass: the sets of evaluation texts that a document shares words with."""
        import pyarrow as pa

        matches = opened_index(self).matches(batch)
        pairs = np.unique(np.stack([matches.spans.texts, matches.sets], axis=1), axis=0)
        return pa.table(
            {
                "row": pa.array(batch.rows[pairs[:, 0]], pa.int64()),
                "set": pa.array(pairs[:, 1], pa.int64()),
            }
        )

    def gather(self, corpus: Corpus, opened: Index) -> pa.Table:
        """Of each document that holds evaluation texts the first of them, and how many."""
        import pyarrow as pa

        pairs = corpus.map("hits", self.hits).read([DOCUMENT, "set"])
        documents, sets = (pairs.column(name).to_numpy() for name in (DOCUMENT, "set"))
        for finding in findings(opened, documents, sets):
            corpus.say(finding)
        order = np.lexsort((sets, documents))
        documents, sets = documents[order], sets[order]
        begins = np.flatnonzero(np.append(True, np.diff(documents) != 0)[: len(documents)])
        combinations = [tuple(part.tolist()) for part in np.split(sets, begins[1:])]
        first_texts = opened.sets.texts[opened.sets.starts[sets]]
        least = np.minimum.reduceat(first_texts, begins) if len(begins) else first_texts
        sizes = opened.sets.union_sizes(combinations)[: len(begins)]
        return pa.table(
            {
                DOCUMENT: pa.array(documents[begins], pa.int64()),
                "text": pa.array(least, pa.int64()),
                "texts": pa.array(sizes, pa.int64()),
            }
        )

    def apply(self, batch: Batch, opened: Index, known: pa.Table | None = None) -> Outcome:
        if known is None or not known.num_rows:
            return Outcome()
        places = np.searchsorted(batch.rows, known.column("row").to_numpy())
        order = np.argsort(places)
        places = places[order]
        chosen = np.zeros(len(batch), np.bool_)
        chosen[places] = True
        hit = batch.take(chosen)
        spans = merged(opened.matches(hit).spans)
        texts, counts = (known.column(name).to_numpy()[order] for name in ("text", "texts"))
        values = []
        for text, count in zip(texts.tolist(), counts.tolist(), strict=True):
            more = f" and {counted(count - 1, 'further text')}" if count > 1 else ""
            values.append(opened.texts[text].place + more)
        where = span_places(spans, hit.words)
        of_text = np.searchsorted(spans.texts, np.arange(len(hit) + 1)).tolist()
        if self.action == "remove":
            wanted = f"no {self.overlap} words in a row, or whole short text, of an evaluation file"
            return Outcome(
                removals=[
                    Removal(place, RULE, value, next(iter(where[begin:end]), None), wanted)
                    for place, value, begin, end in zip(
                        places.tolist(), values, of_text, of_text[1:], strict=False
                    )
                ]
            )
        rewritten, cuts = list(batch.texts), cut(hit, spans)
        for place, text in zip(places.tolist(), cuts.texts, strict=True):
            rewritten[place] = text
        changes = [
            Change(int(places[number]), RULE, values[number], span)
            for number, span in zip(spans.texts.tolist(), where, strict=True)
        ]
        return Outcome(texts=rewritten, changes=changes)


def span_places(spans: Spans, words: Words) -> list[str]:
    """The characters of each span."""
    firsts = words.starts[spans.texts] + spans.begins
    lasts = words.starts[spans.texts] + spans.ends - 1
    characters = zip(words.begins[firsts].tolist(), words.ends[lasts].tolist(), strict=True)
    return [f"characters {begin} to {end}" for begin, end in characters]


def opened_index(step: Settings) -> Index:
    """The index of a step, made once in a process for each state of its files: passes need it,
    too."""
    return _opened_index(step, tuple(map(state_of, step.files())))


@functools.lru_cache(maxsize=2)
def _opened_index(step: Settings, state: tuple[object, ...]) -> Index:
    return index_of(step.evaluation, step.overlap, step.shortest)


def findings(
    index: Index, documents: NDArray[np.int64], sets: NDArray[np.int64]
) -> Iterator[Finding]:
    """For each evaluation file how many of its rows are in the corpus.

    Args:
        documents, sets: pairs of a document and a set of evaluation texts that it has.
    """
    rows_hit: dict[str, set[int]] = {}
    sets_of: dict[str, list[int]] = {}
    for number in np.unique(sets).tolist():
        for place in index.sets.of(number).tolist():
            text = index.texts[place]
            rows_hit.setdefault(text.file, set()).add(text.row)
            numbers = sets_of.setdefault(text.file, [])
            if not numbers or numbers[-1] != number:
                numbers.append(number)
    for file, (rows, sought) in index.rows.items():
        hit = len(rows_hit.get(file, ()))
        short = rows - sought
        holders = len(np.unique(documents[np.isin(sets, sets_of.get(file, []))]))
        evidence = f"in {counted(holders, 'document')}" if hit else ""
        if short:
            left = f"{counted(short, 'row')} with too short a text not looked for"
            evidence = f"{evidence}; {left}" if evidence else left
        yield Finding(
            "contamination",
            f"{hit} of {counted(rows, 'row')} of {file} found in the corpus",
            evidence,
            severity="warning" if not sought else "note",
        )
