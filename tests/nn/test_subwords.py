"""Vectors of words from hashed n-grams against their definition (Bojanowski et al. 2017)."""

from __future__ import annotations

import pytest
import torch

from maskwright.model.nn.config import SubwordTokens
from maskwright.model.nn.subwords import OFFSET, PRIME, WORD32, SubwordVectors

WORDS = ["where", "ö", "łódź", "a", "", "日本語", "cat", "##s"]
CONTINUES = [False] * 7 + [True]
SPELLED = [word.removeprefix("##") for word in WORDS]


def vectors(buckets: int = 1000) -> SubwordVectors:
    torch.manual_seed(0)
    config = SubwordTokens(
        vocabulary=len(WORDS),
        width=4,
        longest=20,
        buckets=buckets,
        shortest_ngram=3,
        longest_ngram=5,
    )
    module = SubwordVectors(config).double()
    module.spell(SPELLED, CONTINUES)
    return module


def hash_of(text: str) -> int:
    number = OFFSET
    for byte in text.encode():
        signed = byte - 256 if byte > 127 else byte
        number = ((number ^ (signed & WORD32)) * PRIME) & WORD32
    return number


def buckets_of(word: str, count: int = 1000) -> list[int]:
    """The n-grams of 3 to 5 characters of `<word>`, hashed one by one."""
    framed, starts = f"<{word}>", range(len(word) + 2)
    spans = [(n, end) for n in starts for end in range(n + 3, min(n + 5, len(framed)) + 1)]
    return [hash_of(framed[start:end]) % count for start, end in spans]


def test_n_grams_are_hashed_as_written_down() -> None:
    module = vectors()
    symbols = module._table[:, 1:].long()
    buckets, counts = module.ngrams(symbols)
    for word, hashed in zip(SPELLED, buckets.split(counts.tolist()), strict=True):
        assert sorted(hashed.tolist()) == (sorted(buckets_of(word)) if word else [])
    # Published values of FNV-1a with 32 bits, for `a` and `foobar`, whose bytes are below 128.
    assert [hash_of(text) for text in ("a", "foobar")] == [0xE40C292C, 0xBF9CF968]


@torch.no_grad()
def test_a_word_is_the_mean_of_its_vectors() -> None:
    module = vectors()
    ids = torch.tensor([[6, 4, 3, 7, 0]])  # cat, a special token, a ##s, where
    (cat, special, start, inside, where) = module(ids)[0]
    for vector, word, number in ((cat, "cat", 6), (where, "where", 0)):
        rows = [module.table.weight[number], *module.subwords.weight[buckets_of(word)]]
        assert torch.allclose(vector, torch.stack(rows).mean(0), atol=1e-14)
    # Outside the vocabulary: the n-grams alone, at all of its tokens.
    outside = module.subwords.weight[buckets_of("as")].mean(0)
    assert torch.allclose(start, outside, atol=1e-14) and torch.equal(start, inside)
    assert torch.equal(special, module.table.weight[4])
    assert module.whole_words(ids).tolist() == [[True, True, False, False, True]]
    # The control: a word of other letters.
    assert not torch.allclose(cat, module(torch.tensor([[0]]))[0, 0])


@pytest.mark.parametrize("buckets", [1, 1000])
def test_gradients_reach_both_tables(buckets: int) -> None:
    module = vectors(buckets)
    module(torch.tensor([[6, 3, 7]])).sum().backward()
    used = module.subwords.weight.grad.abs().sum(1).nonzero()[:, 0].tolist()
    assert set(used) == {*buckets_of("cat", buckets), *buckets_of("as", buckets)}
    assert module.table.weight.grad.abs().sum(1).nonzero()[:, 0].tolist() == [6]
    assert module.spelling.grad is None
