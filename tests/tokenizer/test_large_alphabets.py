"""Scripts of thousands of characters, and texts without spaces: all kinds learn from them."""

from __future__ import annotations

import functools
import random
from collections import Counter

import numpy as np
import pytest

from maskwright.base.errors import DataError, ignore
from maskwright.text.tokenizer.file.pipeline import LONGEST_WORD
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training import train as training
from maskwright.text.tokenizer.training.merging import train_bpe
from maskwright.text.tokenizer.training.sample import WordCounts
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from maskwright.text.tokenizer.words import chunks, words_of
from tokenizer.odd_texts import odd_texts
from tokenizer.toy_tokenizers import prose

CHARACTERS = 1600
VOCABULARY = 6600
FIRST = {"ideographs": 0x4E00, "syllables": 0xAC00}  # BERT sets the former apart, not the latter
every_kind = pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
both_scripts = pytest.mark.parametrize("script", FIRST)


@functools.cache
def lines(script: str, count: int = 1600, seed: int = 0) -> tuple[str, ...]:
    """Lines of 40 characters without a space, their frequencies in the shape of natural text."""
    shares = 1 / np.arange(1, CHARACTERS + 1)
    generator = np.random.default_rng(seed)
    drawn = generator.choice(CHARACTERS, (count, 40), p=shares / shares.sum())
    return tuple("".join(chr(FIRST[script] + c) for c in row) for row in drawn)


def choice(kind: str, vocabulary: int) -> TokenizerChoice:
    return TokenizerChoice(kind=kind, vocabulary=vocabulary)  # type: ignore[arg-type]


def unknown_rate(tokenizer: Tokenizer, script: str) -> float:
    ids = np.concatenate(tokenizer.encode_batch(lines(script, 300, 1)))
    return float((ids == tokenizer.unknown).mean())


# ------------------------------------------------------------------------------ many characters
@both_scripts
@every_kind
def test_thousands_of_characters_are_known(
    kind: str, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = train(lines(script), choice(kind, VOCABULARY))
    assert unknown_rate(tokenizer, script) < 0.01
    size = tokenizer.vocabulary_size
    if script == "syllables" or kind == "unigram":
        assert 3 * CHARACTERS < size <= VOCABULARY  # in the end no frequent pair is left
    else:  # each is a word of its own, so there is nothing more to learn
        forms = {"wordpiece": 1, "bpe": 2}[kind]
        assert 0.95 * forms * CHARACTERS < size < forms * CHARACTERS + 20
    monkeypatch.setattr(training, "COVERED", 0)  # the control: a thousand, as it was before
    assert unknown_rate(train(lines(script), choice(kind, VOCABULARY)), script) > 0.04


def test_ideographs_have_no_piece_within_a_word() -> None:
    pieces = set(train(["漢字 abc가나 漢字, 1"] * 3, choice("wordpiece", 200)).vocabulary)
    assert {"漢", "가", "##가", "a", "##a", ","} <= pieces
    assert not {"##漢", "##字", "##,"} & pieces


@every_kind
def test_half_of_a_vocabulary_is_left_for_longer_pieces(kind: str) -> None:
    texts = [" ".join(line[n : n + 4] for n in range(0, 40, 4)) for line in lines("syllables")]
    tokenizer = train(texts, choice(kind, 2000))
    assert tokenizer.vocabulary_size == 2000
    single = [t for t in tokenizer.vocabulary[5:] if len(t.removeprefix("##")) == 1]
    assert 900 < len(single) <= 1010
    assert {chr(FIRST["syllables"] + c) for c in range(300)} <= set(single)


@every_kind
def test_strange_characters_do_not_crowd_out_the_pieces(kind: str) -> None:
    """Three thousand that are met twice, in a text of which they are a tiny part."""
    strange = [chr(0xAC00 + n) * 2 for n in range(3000)]
    texts = [*prose(300), *strange]
    usual = Counter(dict.fromkeys(strange, 1)) + Counter({"the": 100_000_000})
    mixed = Counter(" ".join(texts).split())
    few, many, known = (
        training._alphabet(words, choice(kind, 8000), ignore).keys()
        for words in (usual, Counter(strange), mixed)
    )
    assert len(few) <= 1000 and len(many) > 1900  # here they are the text
    assert set("".join(prose(300)).replace(" ", "")) - {"\n"} <= known


# ------------------------------------------------------------------------------ strange characters
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_line_with_a_strange_sign_teaches(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred characters are known here, so hardly a line is free of strange ones."""
    texts, small = lines("syllables", 800), choice(kind, 210)
    assert train(texts, small).vocabulary_size == 210
    monkeypatch.setattr(training, "_runs", lambda *_: iter(()))  # negative control
    with pytest.raises(DataError):
        train(texts, small)


def test_runs_of_known_characters() -> None:
    def runs(word: str) -> list[tuple[str, bool]]:
        return list(training._runs(word, set("abc")))

    long, other = "a" * LONGEST_WORD, "b" * LONGEST_WORD
    for word, expected in (
        ("abc", [("abc", True)]),
        ("abXc", [("ab", False), ("c", True)]),
        ("XabXXcX", [("ab", False), ("c", False)]),
        ("XX", []),
        (long * 2 + "a", [(long, False), (long, False), ("a", True)]),
        (f"{long}X{other}", [(long, False), (other, True)]),
    ):
        assert runs(word) == expected
    rng = random.Random(0)
    for _ in range(200):
        word = "".join(rng.choices("aabbccXY", k=rng.randint(0, 300)))
        assert "".join(run for run, _ in runs(word)) == word.replace("X", "").replace("Y", "")
        ends = [ends for _, ends in runs(word)]
        assert not any(ends[:-1]) and any(ends) == word.endswith(("a", "b", "c"))


def test_a_part_of_a_word_is_not_closed() -> None:
    words, parts = {"ab": 3}, {"cd": 9, "ab": 4}
    merges = [(m.token, m.count) for m in train_bpe(words, parts, merges=9)]
    assert merges == [("cd", 9), ("ab", 7), ("ab</w>", 3)]
    assert train_bpe(words, {}, merges=9) == train_bpe(words, merges=9)


# ------------------------------------------------------------------------------ no spaces


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize("single_digits", [False, True])
def test_long_chunks_are_cut_into_the_same_words(spaced: bool, single_digits: bool) -> None:
    texts = [*odd_texts(300), *(text.replace(" ", "") for text in prose(50))]
    shortened = 0
    for text in texts:
        whole = [w for c in chunks(text, spaced) for w in words_of(c, spaced, single_digits)]
        short = list(training._short_chunks(text, spaced, single_digits))
        assert [w for c in short for w in words_of(c, spaced, single_digits)] == whole
        shortened += short != chunks(text, spaced)
    assert shortened > 20


def test_lines_that_never_come_again_are_not_all_forgotten() -> None:
    counts = WordCounts(limit=100)
    counts.add(["often", "often"])
    assert counts.counts == {"often": 2} and counts.forgotten_below == 0
    counts.add(f"line {n}" for n in range(100))
    assert len(counts.counts) == 50 and counts.counts["often"] == 2
    assert counts.forgotten_below == 2
    kept = [int(line.split()[1]) for line in counts.counts if line != "often"]
    assert 30 < sum(kept) / len(kept) < 70  # neither the first nor the last of them
    again = WordCounts(limit=100)
    again.add(["often", *(f"line {n}" for n in reversed(range(100))), "often"])
    assert again.counts == counts.counts
