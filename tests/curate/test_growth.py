"""Costs of the steps of a curation: doubling one dimension of the input at most doubles them, and
some."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate import in_process
from curate.each_step import SETTINGS, step_of
from curate.folders import write_rows
from curate.in_process import batch_of
from growth import LIMIT, growth
from maskwright.text.corpus.reading import Document
from maskwright.text.curate.engine import shards
from maskwright.text.curate.engine.segment import Flow, Record
from maskwright.text.curate.recipe import step_class
from maskwright.text.curate.step import CorpusStep, CurationBatch, Step

DRAW = random.Random(7)
WORDS = ["".join(DRAW.choices("abcdefghijklmnoprstuw", k=DRAW.randint(2, 9))) for _ in range(3000)]
PROMPT = " ".join(WORDS[:28])
MANY, FEW = 200, 30  # many documents for steps that compare them, as the rest would hide a square


def words(count: int, seed: object) -> str:
    """So many words, the same for the same seed."""
    return " ".join(random.Random(str(seed)).choices(WORDS, k=count))


def prompted(count: int) -> CurationBatch:
    return batch_of([f"{PROMPT}. {words(20, n)}." for n in range(count)])


def repeating(count: int) -> CurationBatch:
    """Stretches that stand in another document, with other words between them."""
    shared = [words(14, n) for n in range(count)]
    mixed = [[f"{text} {words(3, (n, m))}." for m, text in enumerate(shared)] for n in (0, 1)]
    return batch_of([" ".join(parts) for parts in mixed])


def unlike(count: int, columns: int = 0, domains: int = 0) -> CurationBatch:
    notes: dict[str, list[str | None]] = {f"c{n}": ["x"] * count for n in range(columns)}
    if domains:
        notes["source"] = notes["language"] = [f"site{n}" for n in range(domains)]
    return batch_of([words(30, n) + "." for n in range(count)], **notes)


def lines(count: int) -> str:
    return "\n".join(["Home", *(words(5, n % 50) for n in range(2 * count))])


INPUTS: dict[str, Callable[[int], CurationBatch]] = {
    "documents with a common prompt": prompted,
    "equal documents": lambda count: batch_of([words(30, 0)] * count),
    "words of a document": lambda count: batch_of([words(30, 0), words(40 * count, 1)]),
    "length of a word": lambda count: batch_of([words(30, 0), "ab1" * 100 * count]),
    "lines of a document": lambda count: batch_of([lines(count)] * 2),
    "shared stretches of a document": repeating,
    "columns": lambda count: unlike(10, columns=count),
    "documents and domains": lambda count: unlike(count, domains=count),
}


def settings(name: str, files: Path, batch: CurationBatch) -> Step:
    """The step with all that it can do; evaluation files hold the texts of the corpus."""
    evaluation = files / f"evaluation-{len(batch)}-{sum(batch.lengths)}.jsonl"
    more: dict[str, dict[str, Any]] = {
        "balance": {"keep": 0.7, "unit": "documents"},
        "contamination": {"evaluation": (str(evaluation),), "action": "cut"},
        "limit": {"words": 1000, "documents": 100},
    }
    if name == "contamination":
        write_rows(evaluation, [{"text": text} for text in batch.texts])
    return step_of(name, files, **more.get(name, {}))


def run(step: Step, batch: CurationBatch) -> None:
    """The step over a batch, with the record of what it did."""
    record = Record(["step"])
    record.take("step", Flow.of(batch), in_process.run(step, [batch])[0])
    record.facts()


@pytest.mark.parametrize("dimension", INPUTS)
@pytest.mark.parametrize("name", SETTINGS)
def test_of_a_step(name: str, dimension: str, files: Path) -> None:
    def make(count: int) -> Callable[[], None]:
        batch = INPUTS[dimension](count)
        batch = batch.with_notes({"source": batch.notes.get("source") or ["a"] * len(batch)})
        step = settings(name, files, batch)
        return lambda: run(step, batch)

    compares = issubclass(step_class(name), CorpusStep) and dimension.startswith("documents")
    assert growth(make, MANY if compares else FEW) <= LIMIT


@pytest.mark.parametrize("dimension", ["words", "allow", "words and text"])
def test_of_phrases_that_begin_alike(dimension: str, files: Path, tmp_path: Path) -> None:
    """A list of many phrases over a text of their first words, also one that grows with them:
    the product of both would be four times as much."""

    def make(count: int) -> Callable[[], None]:
        phrases = tmp_path / f"{count}.txt"
        phrases.write_text("\n".join(f"alpha beta {words(2, n)}" for n in range(count)))
        lists = {"allow": str(phrases)} if dimension == "allow" else {"words": (str(phrases),)}
        step = step_of("toxicity", files, **lists)
        batch = batch_of(["alpha beta gamma " * (count if dimension == "words and text" else 400)])
        return lambda: run(step, batch)

    assert growth(make, 200) <= LIMIT


# ------------------------------------------------------------------------------ controls
def pairs_of_documents_and_texts(count: int) -> Callable[[], None]:
    """What `contamination` did once: a pair for each document and each text with its prompt."""
    batch = prompted(count)

    def pairs() -> None:
        bounds = itertools.pairwise(batch.words.starts.tolist())
        hashes = [set(batch.words.hashes[a:b].tolist()) for a, b in bounds]
        texts = np.repeat(np.arange(len(batch)), list(map(len, hashes)))
        owners = {number: texts for numbers in hashes for number in numbers}
        for numbers in hashes:
            np.unique(np.concatenate([owners[number] for number in numbers]))

    return pairs


def copies(count: int) -> Callable[[], None]:
    """A text that is copied whole for each of its words."""
    text = words(40 * count, 0)

    def copy() -> None:
        rest = text
        for _ in range(40 * count):
            rest = rest.partition(" ")[2]

    return copy


def comparisons(count: int) -> Callable[[], None]:
    """Each document beside each other one, in a function without an allocation."""
    keys = list(range(count))

    def compare() -> None:
        for one in keys:
            for other in keys:
                min(one, other)

    return compare


@pytest.mark.parametrize("make", [pairs_of_documents_and_texts, copies, comparisons])
def test_the_measure_sees_a_square(make: Callable[[int], Callable[[], None]]) -> None:
    assert growth(make, 40) > LIMIT


# ------------------------------------------------------------------------------ reading into shards


def test_columns_of_their_own_do_not_make_a_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard has a cell for each of its documents and columns: it ends before they are many."""

    def cells(count: int) -> int:
        documents = (Document("text", "a", f"a:{n}", {f"key{n}": "1"}) for n in range(count))
        return sum(len(batch) * len(batch.notes) for batch in shards._batched(documents))

    monkeypatch.setattr(shards, "SHARD_CELLS", 900)
    assert cells(600) <= LIMIT * cells(300)
    monkeypatch.setattr(shards, "SHARD_CELLS", 1 << 30)
    assert cells(600) > LIMIT * cells(300)
