"""Vectors of words from their n-grams (fastText: Bojanowski et al. 2017, arXiv:1607.04606).

The n-grams of `where` with 3 characters are `<wh`, `whe`, `her`, `ere` and `re>` (section 3.2).
They are hashed to a fixed number of vectors by FNV-1a over their UTF-8 bytes, which are read as
signed numbers as in the authors' program. A word has the mean of these vectors and, if it is a
token, of a vector of its own; a word outside the vocabulary has the mean over its n-grams.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from maskwright.model.nn.characters import SpelledVectors
from maskwright.model.nn.config import SubwordTokens
from maskwright.model.nn.stack import EmbeddingTable

BEGIN, END = ord("<"), ord(">")
OFFSET, PRIME, WORD32 = 2_166_136_261, 16_777_619, (1 << 32) - 1  # of FNV-1a with 32 bits
MOST_BYTES = 4  # of a character in UTF-8


class SubwordVectors(SpelledVectors):
    """A vector for each token (`table`) and for each bucket of n-grams (`subwords`)."""

    config: SubwordTokens

    def __init__(self, config: SubwordTokens) -> None:
        super().__init__()
        self.add_spelling(config)
        self.table = EmbeddingTable(config.vocabulary, config.width)
        self.subwords = EmbeddingTable(config.buckets, config.width)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The vectors of tokens without their n-grams (V, E)."""
        return self.table.weight

    def whole_words(self, ids: Int[Tensor, "B T"]) -> Tensor:
        """Return whether each token is a word by itself (B T)."""
        begins = self.begins(ids)
        return begins & functional.pad(begins[:, 1:], (0, 1), value=True)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T E"]:
        distinct, number, word, begins = self.words(ids)
        buckets, counts = self.ngrams(distinct)
        starts = counts.cumsum(0) - counts
        sums = functional.embedding_bag(buckets, self.subwords.weight, starts, mode="sum")
        is_token = self.whole_words(ids).flatten()[begins]
        vectors = sums[number] + is_token[:, None] * self.table(ids.flatten()[begins])
        vectors = vectors / (counts[number] + is_token).clamp(min=1)[:, None]
        return vectors[word].view(*ids.shape, -1)

    def ngrams(self, words: Int[Tensor, "U L"]) -> tuple[Int[Tensor, " N"], Int[Tensor, " U"]]:
        """Return the buckets of the n-grams of all words, word after word, and the number of those
        of each word; `words` are symbols as in `spelling`."""
        config, sizes = self.config, (words != 0).sum(1)
        framed = words.new_full((len(words), words.shape[1] + 2), -1)
        framed[:, 1:-1] = words - 1
        framed[:, 0] = BEGIN
        framed.scatter_(1, 1 + sizes[:, None], END)
        framed[sizes == 0] = -1  # tokens without characters
        padded = functional.pad(framed, (0, MOST_BYTES * config.longest_ngram + 1), value=-1)
        is_first = (padded & 0xC0) != 0x80  # the first byte of a character, or behind the word
        length = framed.shape[1]
        hashes = torch.full_like(framed, OFFSET)
        count = torch.zeros_like(framed)  # characters of each n-gram up to this byte
        inside = is_first[:, :length] & (framed >= 0)
        ids, owners = [], []
        for byte in range(MOST_BYTES * config.longest_ngram):
            symbols = padded[:, byte : byte + length]
            inside = inside & (symbols >= 0)
            if not inside.any():
                break
            signed = torch.where(symbols > 127, symbols - 256, symbols) & WORD32
            hashes = ((hashes ^ signed) * PRIME) & WORD32
            count = count + is_first[:, byte : byte + length]
            fits = (count >= config.shortest_ngram) & (count <= config.longest_ngram)
            ends = inside & fits & is_first[:, byte + 1 : byte + 1 + length]
            ids.append(hashes[ends] % config.buckets)
            owners.append(ends.nonzero()[:, 0])
        owner = torch.cat(owners) if owners else words.new_zeros(0)
        order = owner.argsort(stable=True)
        buckets = torch.cat(ids)[order] if ids else owner
        return buckets, owner.bincount(minlength=len(words))
