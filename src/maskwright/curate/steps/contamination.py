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
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

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
        if self.overlap < 2:
            raise ConfigError(
                "too few words",
                where="overlap",
                found=self.overlap,
                wanted="2 or more",
                do="use the default, 13",
            )
        if self.shortest < 1:
            raise ConfigError(
                "too few words",
                where="shortest",
                found=self.shortest,
                wanted="1 or more",
                do="use the default, 6",
            )
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
        """The pass: the numbers of the evaluation texts that a document shares words with."""
        import pyarrow as pa

        found = opened_index(self).matches(batch)
        owners, texts = opened_index(self).owners(found)
        both = np.unique(np.stack([owners, texts], axis=1), axis=0)
        return pa.table(
            {
                "row": pa.array(batch.rows[both[:, 0]], pa.int64()),
                "text": pa.array(both[:, 1], pa.int64()),
            }
        )

    def gather(self, corpus: Corpus, opened: Any) -> pa.Table:
        """The first evaluation text of each document that holds one."""
        import pyarrow as pa

        found = corpus.map("hits", self.hits).read([DOCUMENT, "text"])
        documents, texts = (found.column(name).to_numpy() for name in (DOCUMENT, "text"))
        for finding in findings(opened, documents, texts):
            corpus.say(finding)
        order = np.lexsort((texts, documents))
        documents, texts = documents[order], texts[order]
        first = np.flatnonzero(np.append(True, np.diff(documents) != 0)[: len(documents)])
        numbers = np.diff(np.append(first, len(documents)))
        return pa.table(
            {
                DOCUMENT: pa.array(documents[first], pa.int64()),
                "text": pa.array(texts[first], pa.int64()),
                "texts": pa.array(numbers, pa.int64()),
            }
        )

    def apply(self, batch: Batch, opened: Index, known: pa.Table | None = None) -> Outcome:
        if known is None or not known.num_rows:
            return Outcome()
        places = np.searchsorted(batch.rows, known.column("row").to_numpy())
        chosen = np.zeros(len(batch), np.bool_)
        chosen[places] = True
        hit = batch.take(chosen)
        spans = merged(opened.matches(hit).spans)
        reasons = dict(
            zip(
                places.tolist(),
                zip(
                    known.column("text").to_pylist(), known.column("texts").to_pylist(), strict=True
                ),
                strict=True,
            )
        )
        values = {}
        for place, (text, others) in reasons.items():
            more = f" and {counted(others - 1, 'further text')}" if others > 1 else ""
            values[place] = opened.texts[text].place + more
        if self.action == "remove":
            wanted = f"no {self.overlap} words in a row, or whole short text, of an evaluation file"
            found = []
            for number, place in enumerate(np.flatnonzero(chosen).tolist()):
                where = next(hit_places(spans, hit.words, number), None)
                found.append(Removal(place, RULE, values[place], where, wanted))
            return Outcome(removals=found)
        texts, cuts = list(batch.texts), cut(hit, spans)
        changes = []
        for number, place in enumerate(np.flatnonzero(chosen).tolist()):
            texts[place] = cuts.texts[number]
            for where in hit_places(spans, hit.words, number):
                changes.append(Change(place, RULE, values[place], where))
        return Outcome(texts=texts, changes=changes)


def hit_places(spans: Spans, words: Words, text: int) -> Iterator[str]:
    """The characters of each span of a text."""
    for row in np.flatnonzero(spans.texts == text).tolist():
        first = words.starts[text] + spans.begins[row]
        last = words.starts[text] + spans.ends[row] - 1
        yield f"characters {words.begins[first]} to {words.ends[last]}"


def opened_index(step: Settings) -> Index:
    """The index of a step, made once in a process for each state of its files: passes need it,
    too."""
    return _opened_index(step, tuple(map(state_of, step.files())))


@functools.lru_cache(maxsize=2)
def _opened_index(step: Settings, state: tuple[object, ...]) -> Index:
    return index_of(step.evaluation, step.overlap, step.shortest)


def findings(
    index: Index, documents: NDArray[np.int64], texts: NDArray[np.int64]
) -> Iterator[Finding]:
    """For each evaluation file how many of its rows are in the corpus."""
    hit: dict[str, set[int]] = {}
    holders: dict[str, set[int]] = {}
    for document, number in zip(documents.tolist(), texts.tolist(), strict=True):
        text = index.texts[number]
        hit.setdefault(text.file, set()).add(text.row)
        holders.setdefault(text.file, set()).add(document)
    for file, (rows, sought) in index.rows.items():
        found = hit.get(file, set())
        short = rows - sought
        evidence = f"in {counted(len(holders[file]), 'document')}" if found else ""
        if short:
            left = f"{counted(short, 'row')} with too short a text not looked for"
            evidence = f"{evidence}; {left}" if evidence else left
        yield Finding(
            "contamination",
            f"{len(found)} of {counted(rows, 'row')} of {file} found in the corpus",
            evidence,
            severity="warning" if not sought else "note",
        )
