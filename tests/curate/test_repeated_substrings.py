"""Repeated substrings: exactly what a suffix array of the whole corpus finds."""

from __future__ import annotations

from collections.abc import Sequence

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
    if broken == "a fingerprint lost":
        right = repeated_substrings.runs_of

        def runs_of(words, length):  # type: ignore[no-untyped-def]
            return [column[np.arange(len(column)) % 7 != 3] for column in right(words, length)]

        monkeypatch.setattr(repeated_substrings, "runs_of", runs_of)
    else:
        right_hashes = SpanHashes.of

        def of(self, begins, ends):  # type: ignore[no-untyped-def]
            is_window = len(begins) and (ends - begins == 50).all()
            return begins.astype(np.uint64) if is_window else right_hashes(self, begins, ends)

        monkeypatch.setattr(SpanHashes, "of", of)
    with pytest.raises(AssertionError):
        check(planted_texts(150, 100, 1), Settings())


@pytest.mark.parametrize("words, cut", [(49, 0), (50, 1), (51, 1), (200, 1)])
def test_stretches_from_the_length_on_are_cut(words: int, cut: int) -> None:
    piece = [f"w{n}" for n in range(words)]
    texts = [" ".join(["own", *piece, "end", "of", "the", "first"]), " ".join(["x", *piece, "y"])]
    found = stretches(Settings(), [batch_of(texts)])
    assert found == ({(1, 1, 1 + words)} if cut else set())


def test_shards_order_and_portions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = planted_texts(150, 100, 4)
    whole = stretches(Settings(), [batch_of(texts)])
    assert whole
    random = np.random.default_rng(0)
    for shards, order in ((2, range(len(texts))), (7, random.permutation(len(texts)))):
        parts = np.array_split(np.array(order), shards)
        fields = ((np.arange(len(p)), [f"d{n}" for n in p], [texts[n] for n in p]) for p in parts)
        batches = [CurationBatch(*columns) for columns in fields]
        # Ids are part of the order, and are the same here.
        assert stretches(Settings(), batches) == whole
    monkeypatch.setattr(repeated_substrings, "AT_ONCE", 40)
    assert stretches(Settings(), [batch_of(texts)]) == whole


def test_the_text_is_cut_and_the_change_told() -> None:
    piece = " ".join(f"word{n}" for n in range(60)) + "."
    texts = [f"A first and longer text.\n\n{piece} It goes on here.", f"Before. {piece}\n\nBehind."]
    (outcome,) = run(Settings(), [batch_of(texts)])
    assert outcome.texts == [texts[0], "Before.\n\nBehind."]
    (change,) = outcome.changes
    at = texts[1].index("word0")
    assert (change.index, change.value) == (1, "60 words")
    assert change.where == f"characters {at} to {at + len(piece) - 1}"


def test_a_copy_has_nothing_left() -> None:
    text = " ".join(f"word{n}" for n in range(60))
    (outcome,) = run(Settings(), [batch_of([text, text + " and more", text])])
    assert outcome.texts is not None
    assert [t.strip() for t in outcome.texts] == ["", text + " and more", ""]


def test_boilerplate_everywhere_is_no_square(monkeypatch: pytest.MonkeyPatch) -> None:
    piece = " ".join(f"word{n}" for n in range(80))
    texts = [f"a{n} b{n} {piece} c{n} d{n}" for n in range(3000)]
    compared = []
    right = Settings.windows
    monkeypatch.setattr(
        Settings, "windows", lambda self, b, k: compared.append(right(self, b, k)) or compared[-1]
    )
    assert len(stretches(Settings(), [batch_of(texts)])) == 2999
    assert sum(table.num_rows for table in compared) < 3000 * 4 * 50


def test_texts_without_words_or_too_short() -> None:
    assert stretches(Settings(), [batch_of(["...", "a b c"]), batch_of(["a b c"])]) == set()
