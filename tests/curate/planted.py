"""Texts of real words with planted copies of known similarity, and the truth about all of them.

The words are those of the embedded corpus. A copy is its original after edits: words substituted,
left out, put in, sentences put in another order, a header before the text, other case. Truth is
computed from strings, with none of the code under test: the Jaccard similarity of the sets of
5-word shingles of every two texts that share one.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from maskwright.text.corpus import embedded
from maskwright.text.curate.step import CurationBatch

SHINGLE = 5


@functools.cache
def real_words(size: int) -> tuple[str, ...]:
    """Words of about `size` bytes of documentation."""
    found = embedded.documents(limit_bytes=size)
    return tuple(re.findall(r"[a-z]+", " ".join(document.text.lower() for document in found)))


@dataclass(frozen=True)
class Planted:
    texts: tuple[str, ...]
    pairs: NDArray[np.int64]  # (P, 2) that share a shingle
    similarities: NDArray[np.float64]  # (P,)

    def batches(self, shards: int = 1, order: Sequence[int] | None = None) -> list[CurationBatch]:
        """All texts, cut into shards; a text's id does not depend on where it is."""
        order = list(range(len(self.texts))) if order is None else list(order)
        return [
            CurationBatch(
                np.arange(len(rows)), [f"t{n}" for n in rows], [self.texts[n] for n in rows]
            )
            for rows in np.array_split(np.array(order), shards)
        ]


@functools.cache
def planted(originals: int, copies: int, seed: int = 5) -> Planted:
    """`originals` texts of 40 to 120 words, and copies of some, similarities spread over 0.3..1."""
    random = np.random.default_rng(seed)
    words = real_words(originals * 620)
    ends = np.cumsum(random.integers(40, 121, originals)).tolist()
    assert ends[-1] < len(words), "too few words for so many texts"
    texts = [list(words[begin:end]) for begin, end in itertools.pairwise([0, *ends])]
    for original in random.permutation(originals)[:copies]:
        texts.append(_edited(texts[original], words, random))
    joined = tuple(" ".join(text) for text in texts)
    return Planted(joined, *truth(joined))


def _edited(text: list[str], words: Sequence[str], random: np.random.Generator) -> list[str]:
    # Of n shingles a share q is left when a word in each 5 is hit with probability 1 - q**(1/5).
    wanted = random.uniform(0.3, 1.0)
    rate = 1 - (2 * wanted / (1 + wanted)) ** (1 / SHINGLE)
    sort = random.choice(["substitute", "delete", "insert", "all", "reorder", "header", "case"])
    if sort == "reorder":
        cuts = np.sort(random.integers(1, len(text), max(1, round(rate * len(text)))))
        parts = [part.tolist() for part in np.split(np.array(text), cuts)]
        return [word for n in random.permutation(len(parts)) for word in parts[n]]
    if sort == "header":
        added = max(1, round(len(text) * (1 / wanted - 1)))
        start = int(random.integers(0, len(words) - added))
        return [*words[start : start + added], *text]
    if sort == "case":
        return [word.upper() if random.random() < 0.3 else word for word in text]
    edited = []
    for word in text:
        if random.random() >= rate:
            edited.append(word)
            continue
        other = words[int(random.integers(len(words)))]
        how = random.choice(["substitute", "delete", "insert"]) if sort == "all" else sort
        edited += {"substitute": [other], "delete": [], "insert": [word, other]}[how]
    return edited or text[:1]


def truth(texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Every pair of texts that share a shingle, and its Jaccard similarity."""
    numbers: dict[tuple[str, ...], int] = {}
    rows, columns = [], []
    for row, text in enumerate(texts):
        words = text.lower().split()
        shingles = {tuple(words[n : n + SHINGLE]) for n in range(max(1, len(words) - SHINGLE + 1))}
        columns += [numbers.setdefault(shingle, len(numbers)) for shingle in shingles]
        rows += [row] * len(shingles)
    shape = (len(texts), len(numbers))
    table = csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=shape)
    sizes = table.sum(axis=1)
    common = (table @ table.T).tocoo()
    upper = common.row < common.col
    first, second, shared = common.row[upper], common.col[upper], common.data[upper]
    pairs = np.stack([first, second], axis=1).astype(np.int64)
    return pairs, shared / (sizes[first] + sizes[second] - shared)


def within_band(found: int, probabilities: NDArray[np.float64], level: float = 0.999) -> bool:
    """Whether a count is in the middle `level` of the distribution of the sum of independent
    trials, which is added up trial by trial."""
    masses, tail = np.ones(1), (1 - level) / 2
    for p in probabilities.tolist():
        masses = np.convolve(masses, [1 - p, p])
    return bool(masses[: found + 1].sum() > tail and masses[found:].sum() > tail)
