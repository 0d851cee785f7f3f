"""Costs of the steps of a curation: doubling one dimension of the input at most doubles them, and
some."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate.in_process import InProcess, batch_of
from growth import LIMIT, growth
from maskwright.base.config import to_plain
from maskwright.text.corpus.reading import Document, ReadingOptions
from maskwright.text.curate.card import reading_findings
from maskwright.text.curate.engine import shards
from maskwright.text.curate.engine.segment import Flow, Record
from maskwright.text.curate.engine.shards import REJECTED, read_group
from maskwright.text.curate.recipe import settings_of, step_names
from maskwright.text.curate.step import CorpusStep, CurationBatch, Step

DRAW = random.Random(7)
WORDS = ["".join(DRAW.choices("abcdefghijklmnoprstuw", k=DRAW.randint(2, 9))) for _ in range(3000)]
PROMPT = " ".join(WORDS[:28])


def words(count: int, seed: object) -> str:
    """So many words, the same for the same seed."""
    return " ".join(random.Random(str(seed)).choices(WORDS, k=count))


def unlike(count: int) -> CurationBatch:
    return batch_of([words(30, n) + "." for n in range(count)])


def prompted(count: int) -> CurationBatch:
    return batch_of([f"{PROMPT}. {words(20, n)}." for n in range(count)])


def alike(count: int) -> CurationBatch:
    return batch_of([words(30, 0) for _ in range(count)])


def long_document(count: int) -> CurationBatch:
    return batch_of([words(30, 0), words(40 * count, 1)])


def long_word(count: int) -> CurationBatch:
    return batch_of([words(30, 0), "ab1" * 100 * count])


def many_lines(count: int) -> CurationBatch:
    menu = "Home\n"
    return batch_of([menu + "\n".join(words(5, n % 50) for n in range(2 * count))] * 2)


def many_repeats(count: int) -> CurationBatch:
    """Stretches that stand in another document, with other words between them."""
    shared = [words(14, n) for n in range(count)]
    mixed = [
        " ".join(f"{text} {words(3, (n, m))}." for m, text in enumerate(shared)) for n in (0, 1)
    ]
    return batch_of(mixed)


def many_columns(count: int) -> CurationBatch:
    batch = unlike(10)
    columns = {f"c{n}": ["x"] * 10 for n in range(count)}
    return CurationBatch(batch.rows, batch.ids, batch.texts, columns)


def many_domains(count: int) -> CurationBatch:
    batch = unlike(count)
    domains = [f"site{n}" for n in range(count)]
    return batch.with_notes({"source": domains, "language": domains})


MANY, FEW = 200, 30  # many documents for steps that compare them, as the rest would hide a square
INPUTS: dict[str, Callable[[int], CurationBatch]] = {
    "documents with a common prompt": prompted,
    "equal documents": alike,
    "words of a document": long_document,
    "length of a word": long_word,
    "lines of a document": many_lines,
    "shared stretches of a document": many_repeats,
    "columns": many_columns,
    "documents and domains": many_domains,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what steps need besides the corpus."""
    folder = tmp_path_factory.mktemp("growth")
    (folder / "words.txt").write_text("\n".join(WORDS[:40]))
    lines = []
    for n in range(60):
        text, label = words(25, n), "good" if n % 2 else "bad"
        text += " fine" * 9 if label == "good" else ""
        lines.append(json.dumps({"text": text, "label": label}))
    (folder / "judged.jsonl").write_text("\n".join(lines))
    return folder


def settings(name: str, files: Path, batch: CurationBatch) -> Step:
    """The step with all that it can do; evaluation files hold the texts of the corpus."""
    own: dict[str, Any] = {}
    if name == "balance":
        own = {"temperature": 0.5, "keep": 0.7, "unit": "documents"}
    elif name == "classifier":
        own = {"examples": str(files / "judged.jsonl"), "good_label": "good", "least": 0.5}
    elif name == "contamination":
        evaluation = files / f"evaluation-{len(batch)}-{sum(batch.lengths)}.jsonl"
        evaluation.write_text("\n".join(json.dumps({"text": text}) for text in batch.texts))
        own = {"evaluation": (str(evaluation),), "action": "cut"}
    elif name == "limit":
        own = {"words": 1000, "documents": 100}
    elif name == "toxicity":
        own = {"words": (str(files / "words.txt"),)}
    return settings_of(name)(**own)


def run(step: Step, batch: CurationBatch) -> None:
    """The step over a batch, with the record of what it did."""
    opened, known = step.open(), None
    if isinstance(step, CorpusStep):
        corpus = InProcess([batch], opened)
        known = corpus.about(step.gather(corpus, opened), 0)
    outcome = step.apply(batch, opened, known)
    record = Record(["step"])
    flow = record.take("step", Flow.of(batch), outcome)
    if len(flow.batch):
        record.count_remaining(flow)
    record.facts()


@pytest.mark.parametrize("dimension", INPUTS)
@pytest.mark.parametrize("name", step_names())
def test_of_a_step(name: str, dimension: str, files: Path) -> None:
    def make(count: int) -> Callable[[], None]:
        batch = INPUTS[dimension](count)
        batch = batch.with_notes({"source": batch.notes.get("source") or ["a"] * len(batch)})
        step = settings(name, files, batch)
        return lambda: run(step, batch)

    compares = issubclass(settings_of(name), CorpusStep) and dimension.startswith("documents")
    assert growth(make, MANY if compares else FEW) <= LIMIT


def test_of_domains_that_are_balanced() -> None:
    step = settings_of("balance")(temperature=0.5, keep=0.7)

    def make(count: int) -> Callable[[], None]:
        totals = np.arange(1.0, count + 1)
        domains = [f"site{n}" for n in range(count)]
        return lambda: step.targets(domains, totals)  # type: ignore[attr-defined]

    assert growth(make, 500) <= LIMIT


def phrases_of_a_list(setting: str, files: Path) -> Callable[[int], Callable[[], None]]:
    """A list of many phrases that begin alike, over a text of their first words."""

    def make(count: int) -> Callable[[], None]:
        phrases = files / f"{setting}-{count}.txt"
        phrases.write_text("\n".join(f"alpha beta {words(2, n)}" for n in range(count)))
        lists = {"words": (str(files / "words.txt"),), setting: str(phrases)}
        if setting == "words":
            lists["words"] = (str(phrases),)
        step = settings_of("toxicity")(**lists)
        batch = batch_of(["alpha beta gamma " * 400])
        return lambda: run(step, batch)

    return make


@pytest.mark.parametrize("setting", ["words", "allow"])
def test_of_phrases_that_begin_alike(setting: str, files: Path) -> None:
    assert growth(phrases_of_a_list(setting, files), 200) <= LIMIT


def test_of_words_times_phrases_that_begin_alike(files: Path) -> None:
    """Both dimensions at once: their product would be four times as much."""

    def make(count: int) -> Callable[[], None]:
        phrases = files / f"both-{count}.txt"
        phrases.write_text("\n".join(f"alpha beta {words(2, n)}" for n in range(count)))
        step = settings_of("toxicity")(words=(str(phrases),))
        batch = batch_of(["alpha beta gamma " * count])
        return lambda: run(step, batch)

    assert growth(make, 200) <= LIMIT


# ------------------------------------------------------------------------------ controls
def pairs_of_documents_and_texts(count: int) -> Callable[[], None]:
    """What `contamination` did once: a pair for each document and each text with its prompt."""
    batch = prompted(count)

    def pairs() -> None:
        hashes = [set(batch.words.hashes[a:b].tolist()) for a, b in bounds(batch)]
        texts = np.repeat(np.arange(len(batch)), [len(own) for own in hashes])
        owners = {one: texts for own in hashes for one in own}
        for own in hashes:
            np.unique(np.concatenate([owners[one] for one in own]))

    return pairs


def bounds(batch: CurationBatch) -> list[tuple[int, int]]:
    starts = batch.words.starts.tolist()
    return list(itertools.pairwise(starts))


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
    assert growth(make, 60) > LIMIT


# ------------------------------------------------------------------------------ reading into shards
@pytest.mark.parametrize("skip", [False, True])
def test_small_files_are_flushed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skip: bool
) -> None:
    """Flushing a file to the disk takes longer than reading a small one."""
    flushed = []
    flush = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (flushed.append(file), flush(file)))
    counts = []
    for count in (5, 50):
        folder = tmp_path / str(count)
        folder.mkdir()
        (folder / "a.txt").write_text("words")
        for number in range(count):
            (folder / f"{number}.txt").write_bytes(b"" if number % 2 else b"a\n\n\xff\n\n" * 2)
        files = sorted(str(path) for path in folder.iterdir())
        reading = to_plain(ReadingOptions(on_bad="skip", max_bad_fraction=1.0))
        out = tmp_path / f"read-{count}"
        flushed.clear()
        read_group(files, reading, skip, str(out))
        counts.append(len(flushed))
        rejected = (out / REJECTED).read_text().splitlines()
        assert len(rejected) == 2 * len(range(0, count, 2))
    assert counts[0] == counts[1] > 0


def test_columns_of_their_own_do_not_make_a_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard has a cell for each of its documents and columns: it ends before they are many."""

    def cells(documents: int) -> int:
        made = (Document("text", "a", f"a:{n}", {f"key{n}": "1"}) for n in range(documents))
        return sum(len(batch) * len(batch.notes) for batch in shards._batched(made))

    monkeypatch.setattr(shards, "SHARD_CELLS", 900)
    assert cells(600) <= LIMIT * cells(300)
    monkeypatch.setattr(shards, "SHARD_CELLS", 1 << 30)
    assert cells(600) > LIMIT * cells(300)


def test_findings_of_many_files(tmp_path: Path) -> None:
    def make(count: int) -> Callable[[], object]:
        found = [{"name": "empty-files", "what": f"empty files: {n}.txt"} for n in range(count)]
        return lambda: reading_findings([{"findings": found}])

    assert growth(make, 100) <= LIMIT
