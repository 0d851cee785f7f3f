"""A tokenizer small enough to read: letters, of which the first of a word has an id of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from maskwright.text.corpus.reading import Document
from maskwright.text.store.rows import Rows
from maskwright.text.store.store import TokenStore
from maskwright.text.store.tokenize import build_store

ROLES = ("pad", "unknown", "classify", "separator", "mask")


class Toy:
    """0-4 special, 5-30 letters that begin a word, 31-56 letters that go on, 57 the full stop."""

    vocabulary_size = 58
    fingerprint = "toy"
    pad, unknown, classify, separator, mask = range(5)
    begin = end = None

    def __init__(self) -> None:
        self.starts_word = np.zeros(self.vocabulary_size, dtype=bool)
        self.starts_word[5:31] = True
        self.ends_word = np.zeros(self.vocabulary_size, dtype=bool)
        self.ends_word[57] = True
        self.encoded = 0

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        self.encoded += len(texts)
        return [np.array(self.encode(text), dtype=np.uint32) for text in texts]

    def encode_marked(
        self, texts: Sequence[str], marks: Sequence[Sequence[int]]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        places = [
            np.array([len(self.encode(text[:mark])) for mark in some], dtype=np.uint32)
            for text, some in zip(texts, marks, strict=True)
        ]
        return list(zip(self.encode_batch(texts), places, strict=True))

    def encode(self, text: str) -> list[int]:
        ids = []
        for word in text.split():
            for place, letter in enumerate(word):
                if letter == ".":
                    ids.append(57)
                elif letter.lower().isascii() and letter.isalpha():
                    ids.append(ord(letter.lower()) - ord("a") + (31 if place else 5))
                else:
                    ids.append(self.unknown)
        return ids


def documents(texts: Iterable[str]) -> list[Document]:
    return [Document(text=t, source="test", id=f"test:{n}") for n, t in enumerate(texts)]


def store_of(folder: Path, texts: Iterable[str], tokenizer: Toy | None = None) -> TokenStore:
    return build_store(documents(texts), tokenizer or Toy(), folder / "store")


def sentence(draw: np.random.Generator, words: int) -> str:
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    parts = ["".join(draw.choice(letters, draw.integers(1, 6))) for _ in range(words)]
    return " ".join(parts).capitalize() + "."


def corpus(seed: int, count: int, sentences: int = 4) -> list[str]:
    """Texts of one to many sentences, of two to eleven words each."""
    draw = np.random.default_rng(seed)
    sizes = np.maximum(1, draw.geometric(1 / sentences, count))
    return [
        " ".join(sentence(draw, int(draw.integers(2, 12))) for _ in range(size)) for size in sizes
    ]


def sentence_ranges(store: TokenStore, index: int) -> np.ndarray:
    """(S, 2) where each sentence of document `index` starts and stops in `tokens`."""
    start, stop = store.offsets[index], store.offsets[index + 1]
    starts = store.sentences[(store.sentences >= start) & (store.sentences < stop)]
    return np.stack([starts, np.append(starts[1:], stop)[: len(starts)]], axis=1)


def rows_of(tokens: np.ndarray, ids: np.ndarray) -> Rows:
    """Rows of one document each, with these tokens."""
    falses = np.zeros(tokens.shape, dtype=bool)
    ones = np.ones(tokens.shape, np.int32)
    return Rows(
        tokens=tokens,
        positions=tokens * 0,
        documents=ones,
        special=falses,
        starts_word=falses,
        ids=ids,
    )
