"""Small corpora, one trained tokenizer per kind, and slow trainers that say what is right."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections import Counter
from fractions import Fraction
from typing import Any

from maskwright.text.tokenizer.file.check import read_json
from maskwright.text.tokenizer.tokenizer import FILE_NAMES, Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train

KINDS = ("character", "bpe", "byte-bpe", "wordpiece", "unigram")

# Sennrich, Haddow and Birch 2016, figure 1, with the counts of their dictionary.
LOW = {"low": 5, "lower": 2, "newest": 6, "widest": 3}

SYLLABLES = "ka lo mi ne su ta ri po che ban der wes ing ed un re tion est low er"
MARKS = [".", ",", "!", "?", "'", "-", "(", ")", '"', ":"]


def words_as_text(words: dict[str, int]) -> list[str]:
    """A text per word, repeated as often as it is counted."""
    return [" ".join([word] * count) for word, count in words.items()]


@functools.cache
def prose(documents: int = 200, seed: int = 0) -> tuple[str, ...]:
    """Invented prose: a few hundred words with a natural spread of frequencies, digits, marks."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(SYLLABLES.split(), k=rng.randint(1, 3))) for _ in range(400)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    texts = []
    for _ in range(documents):
        parts = []
        for word in rng.choices(words, weights, k=rng.randint(5, 60)):
            if rng.random() < 0.1:
                word = word.capitalize()
            if rng.random() < 0.05:
                word = str(rng.randint(0, 3000))
            parts.append(word + (rng.choice(MARKS) if rng.random() < 0.15 else ""))
        texts.append(" ".join(parts) + ("\n" if rng.random() < 0.3 else " café naïve 漢字"))
    return tuple(texts)


@functools.cache
def trained(kind: str, style: str = "bert", lowercase: bool = False) -> Tokenizer:
    """A tokenizer of `kind` on `prose`, made once per process."""
    choice = TokenizerChoice(kind=kind, vocabulary=700, style=style, lowercase=lowercase)  # type: ignore[arg-type]
    return train(prose(), choice)


@functools.cache
def sound_files() -> dict[str, dict[str, Any]]:
    """A small `tokenizer.json` of every kind, to be copied and spoiled."""
    found = {}
    for kind in KINDS:
        size = 330 if kind == "byte-bpe" else 120
        made = train(prose(30), TokenizerChoice(kind=kind, vocabulary=size))  # type: ignore[arg-type]
        found[kind] = json.loads(made.files()["tokenizer.json"])
    return found


# ------------------------------------------------------------------------------ slow and plain
def pair_counts(words: dict[tuple[str, ...], int]) -> Counter[tuple[str, str]]:
    """Counts of adjacent pairs, by looking at everything."""
    counts: Counter[tuple[str, str]] = Counter()
    for word, count in words.items():
        for pair in itertools.pairwise(word):
            counts[pair] += count
    return counts


def merged(word: tuple[str, ...], pair: tuple[str, str], token: str) -> tuple[str, ...]:
    """`word` with `pair` joined to `token`, from left to right."""
    symbols: list[str] = []
    rest = list(word)
    while rest:
        joins = tuple(rest[:2]) == pair
        symbols.append(token if joins else rest[0])
        del rest[: 2 if joins else 1]
    return tuple(symbols)


def merge_all(
    words: dict[tuple[str, ...], int], pair: tuple[str, str], token: str
) -> dict[tuple[str, ...], int]:
    """All words with `pair` joined."""
    made: Counter[tuple[str, ...]] = Counter()
    for word, count in words.items():
        made[merged(word, pair, token)] += count
    return dict(made)


def slow_bpe(words: dict[str, int], merges: int, least: int = 2) -> list[tuple[str, str, int]]:
    """Byte-pair encoding with `</w>`, counting everything anew for each merge."""
    split = {(*word, "</w>"): count for word, count in words.items()}
    known = {symbol for word in split for symbol in word}
    learned: list[tuple[str, str, int]] = []
    new: set[str] = set()
    while len(new) < merges:
        counts = {pair: n for pair, n in pair_counts(split).items() if n >= least}
        if not counts:
            break
        pair = min(counts, key=lambda p: (-counts[p], p))
        learned.append((*pair, counts[pair]))
        token = "".join(pair)
        new |= {token} - known
        split = merge_all(split, pair, token)
    return learned


def slow_wordpiece(words: dict[str, int], tokens: int, least: int = 2) -> list[tuple[str, str]]:
    """WordPiece by likelihood with exact fractions, counting everything anew for each merge."""
    split = {(w[0], *("##" + c for c in w[1:])): count for w, count in words.items()}
    known = {symbol for word in split for symbol in word}
    learned: list[tuple[str, str]] = []
    new: set[str] = set()
    while len(new) < tokens:
        singles: Counter[str] = Counter()
        for word, count in split.items():
            for symbol in word:
                singles[symbol] += count
        pairs = {pair: n for pair, n in pair_counts(split).items() if n >= least}
        if not pairs:
            break
        scores = {p: Fraction(n, singles[p[0]] * singles[p[1]]) for p, n in pairs.items()}
        pair = min(pairs, key=lambda p: (-scores[p], -pairs[p], p))
        learned.append(pair)
        token = pair[0] + pair[1].removeprefix("##")
        new |= {token} - known
        split = merge_all(split, pair, token)
    return learned


def random_words(rng: random.Random, letters: str = "abcd", most: int = 60) -> dict[str, int]:
    """Words over few letters, so that overlaps and ties are common."""
    return {
        "".join(rng.choices(letters, k=rng.randint(1, 9))): rng.randint(1, 12)
        for _ in range(rng.randint(1, most))
    }


def from_files(files: dict[str, bytes]) -> Tokenizer:
    """A tokenizer of the files that `Tokenizer.files` gives."""
    return Tokenizer(*(read_json(files[name], name) for name in FILE_NAMES if name in files))
