"""Repeated substrings: exactly what a suffix array of the whole corpus finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from curate.in_process import InProcess, batch_of, run
from curate.planted import real_words
from maskwright.text.curate.arrays.hashes import SpanHashes
from maskwright.text.curate.arrays.selection import in_order
from maskwright.text.curate.step import CurationBatch, arrow_table
from maskwright.text.curate.steps import repeated_substrings
from maskwright.text.curate.steps.repeated_substrings import Settings

Stretch = tuple[int, int, int]  # text, first word, word behind the last


def naive(texts: Sequence[str], length: int, ranks: Sequence[int]) -> set[Stretch]:
    """The stretches to cut: of every `length` words that occur before, texts being in the order of
    `ranks`, as by a suffix array over all texts in that order."""
    seen: set[tuple[str, ...]] = set()
    found: set[Stretch] = set()
    for text in np.argsort(ranks).tolist():
        words = texts[text].lower().split()
        cut = np.zeros(len(words) + 2, np.bool_)
        for at in range(len(words) - length + 1):
            window = tuple(words[at : at + length])
            cut[at + 1 : at + length + 1] |= window in seen
            seen.add(window)
        begins, ends = np.flatnonzero(np.diff(cut.astype(int))).reshape(-1, 2).T.tolist()
        found |= {(text, begin, end) for begin, end in zip(begins, ends, strict=True)}
    return found


def stretches(step: Settings, batches: Sequence[CurationBatch]) -> set[Stretch]:
    """What the step cuts; a text is named by its id, `d7`."""
    corpus = InProcess(batches)
    table = step.gather(corpus, step.open()).to_pydict()
    found = set()
    for document, begin, end in zip(*table.values(), strict=True):
        name = batches[document >> 32].ids[document & 0xFFFFFFFF]
        found.add((int(name[1:]), begin, end))
    return found


def ranks_of(step: Settings, texts: Sequence[str]) -> list[int]:
    table = step.ordered(batch_of(texts), arrow_table(row=np.arange(len(texts))))
    ranks = np.empty(len(texts), np.int64)
    ranks[in_order(table)] = np.arange(len(texts))
    return ranks.tolist()


def planted_texts(count: int, spans: int, seed: int) -> list[str]:
    """Texts of real words into which stretches of 40 to 60, or to 200, words of others are put."""
    random = np.random.default_rng(seed)
    words = list(real_words(max(200_000, count * 900)))
    # Real words repeat themselves; what is planted is to be seen against that.
    texts = [words[n * 120 : n * 120 + int(random.integers(20, 121))] for n in range(count)]
    for number in range(spans):
        source, target = random.integers(0, len(texts), 2)
        length = int(random.integers(40, 61 if number % 2 else 201))
        begin = int(random.integers(0, max(1, len(texts[source]) - length)))
        piece = texts[source][begin : begin + length]
        at = int(random.integers(0, len(texts[target]) + 1))
        texts[target] = [*texts[target][:at], *piece, *texts[target][at:]]
    texts.append(("a b c " * 60).split())  # repeats itself with a short period
    texts.append(("a b c " * 50).split())
    return [" ".join(text) for text in texts]


def check(texts: Sequence[str], step: Settings) -> set[Stretch]:
    found = stretches(step, [batch_of(texts)])
    assert found == naive(texts, step.length, ranks_of(step, texts))
    return found


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("length", [50, 12])
@pytest.mark.parametrize("size", [(150, 100), pytest.param((3000, 1000), marks=pytest.mark.proof)])
def test_it_cuts_what_a_suffix_array_finds(seed: int, length: int, size: tuple[int, int]) -> None:
    assert len(check(planted_texts(*size, seed), Settings(length=length))) > 40


@pytest.mark.parametrize("broken", ["a fingerprint lost", "windows not compared"])
def test_what_is_lost_is_noticed(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    right_runs, right_hashes = repeated_substrings.runs_of, SpanHashes.of

    def some_runs(words: Any, length: int) -> list[Any]:
        return [column[np.arange(len(column)) % 7 != 3] for column in right_runs(words, length)]

    def hashes(self: SpanHashes, begins: Any, ends: Any) -> Any:
        is_window = len(begins) and (ends - begins == 50).all()
        return begins.astype(np.uint64) if is_window else right_hashes(self, begins, ends)

    if broken == "a fingerprint lost":
        monkeypatch.setattr(repeated_substrings, "runs_of", some_runs)
    else:
        monkeypatch.setattr(SpanHashes, "of", hashes)
    with pytest.raises(AssertionError):
        check(planted_texts(150, 100, 1), Settings())


@pytest.mark.parametrize("words, cut", [(49, 0), (50, 1), (51, 1), (200, 1)])
def test_stretches_from_the_length_on_are_cut(words: int, cut: int) -> None:
    piece = [f"w{n}" for n in range(words)]
    texts = [" ".join(["own", *piece, "end", "of", "the", "first"]), " ".join(["x", *piece, "y"])]
    found = stretches(Settings(), [batch_of(texts)])
    assert found == ({(1, 1, 1 + words)} if cut else set())


def test_portions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of(planted_texts(150, 100, 4))
    whole = stretches(Settings(), [batch])
    assert whole
    monkeypatch.setattr(repeated_substrings, "AT_ONCE", 40)
    assert stretches(Settings(), [batch]) == whole


def test_the_text_is_cut_and_the_change_told() -> None:
    piece = " ".join(f"word{n}" for n in range(60)) + "."
    texts = [f"A first and longer text.\n\n{piece} It goes on here.", f"Before. {piece}\n\nBehind."]
    (outcome,) = run(Settings(), [batch_of(texts)])
    assert outcome.texts == [texts[0], "Before.\n\nBehind."]
    (change,) = outcome.changes
    at = texts[1].index("word0")
    assert (change.index, change.value) == (1, "60 words")
    assert change.where == f"characters {at} to {at + len(piece) - 1}"
    # A copy has nothing left.
    (outcome,) = run(Settings(), [batch_of([piece, piece + " And more.", piece])])
    assert [text.strip() for text in outcome.texts or ()] == ["", piece + " And more.", ""]


def test_boilerplate_everywhere_is_no_square(monkeypatch: pytest.MonkeyPatch) -> None:
    piece = " ".join(f"word{n}" for n in range(80))
    texts = [f"a{n} b{n} {piece} c{n} d{n}" for n in range(1000)]
    right, compared = Settings.windows, []

    def counted(step: Settings, batch: CurationBatch, known: Any) -> Any:
        compared.append(right(step, batch, known))
        return compared[-1]

    monkeypatch.setattr(Settings, "windows", counted)
    assert len(stretches(Settings(), [batch_of(texts)])) == 999
    assert sum(table.num_rows for table in compared) < 1000 * 4 * 50


def test_texts_without_words_or_too_short() -> None:
    assert stretches(Settings(), [batch_of(["...", "a b c"]), batch_of(["a b c"])]) == set()
