"""Vectors of words from their characters (Kim et al. 2016, arXiv:1508.06615; Peters et al. 2018),
and what they share with vectors from n-grams (`subwords.py`).

A word has a vector whether it is in the vocabulary or not: the tokenizer spells a word that is not
by tokens that continue each other, and `spelling` says which bytes each token has. All tokens of a
word have its vector, and only the first one is read (`begins`). The bytes belong to the weights of
a model, so that its folder needs no other file for them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from maskwright.model.nn.config import CharacterTokens, SubwordTokens
from maskwright.model.nn.kernels.linear import Linear
from maskwright.model.nn.stack import EmbeddingTable

# Symbols: nothing, bytes from 1 on, the beginning of a word and its end.
BEGIN, END, SYMBOLS = 257, 258, 259


class SpelledVectors(nn.Module):
    """Base class of modules that compute the vector of a word from its bytes.

    Attributes:
        spelling: of each token whether it continues a word, then its bytes + 1 and zeros. Nothing
            trains it: it has no gradient, and one axis, as weights with two decay. Whole numbers up
            to 256 are exact in bfloat16, too.
    """

    config: CharacterTokens | SubwordTokens
    spelling: nn.Parameter
    weight: Tensor

    def add_spelling(self, config: CharacterTokens | SubwordTokens) -> None:
        """Add the parameter `spelling`."""
        self.config = config
        self.spelling = nn.Parameter(torch.zeros(config.vocabulary * (1 + config.longest)))

    @property
    def _table(self) -> Float[Tensor, "V L"]:
        return self.spelling.view(self.config.vocabulary, -1)

    @torch.no_grad()
    def spell(self, tokens: Sequence[str], continues: Sequence[bool]) -> None:
        """Set the bytes of all tokens; what exceeds the longest word is not read."""
        self.spelling.zero_()
        for number, (token, is_inside) in enumerate(zip(tokens, continues, strict=True)):
            symbols = [int(is_inside), *(byte + 1 for byte in token.encode())]
            row = self._table[number, : len(symbols)]
            row.copy_(torch.tensor(symbols[: len(row)]))

    def begins(self, ids: Int[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
        """Where words begin; what is cut off in a word begins one."""
        begins = self._table[:, 0][ids] == 0
        begins[:, 0] = True
        return begins

    def words(
        self, ids: Int[Tensor, "B T"]
    ) -> tuple[Int[Tensor, "U L"], Int[Tensor, " W"], Int[Tensor, " N"], Bool[Tensor, " N"]]:
        """Return the symbols of the distinct words of `ids`, zeros behind each; which of them each
        word is; the number of the word of each token; and where words begin. Tokens are numbered
        across rows."""
        begins = self.begins(ids).flatten()
        word = begins.cumsum(0) - 1
        symbols = self._table[:, 1:][ids.flatten()].long()  # N, L
        sizes = (symbols != 0).sum(1)
        ends = sizes.cumsum(0)
        offset = ends - sizes - (ends - sizes)[begins][word]
        longest = symbols.shape[1]
        column = offset[:, None] + torch.arange(longest, device=ids.device)
        fits = (symbols != 0) & (column < longest)
        words = symbols.new_zeros(int(begins.sum()), longest)
        words[word[:, None].expand_as(column)[fits], column[fits]] = symbols[fits]
        return *words.unique(dim=0, return_inverse=True), word, begins


class CharacterVectors(Linear, SpelledVectors):
    """Filters over the vectors of bytes, the largest value of each, highway layers (Srivastava et
    al. 2015, arXiv:1505.00387), and a projection, whose weight is this module's."""

    config: CharacterTokens

    def __init__(self, config: CharacterTokens) -> None:
        super().__init__(sum(config.filters), config.width)
        self.add_spelling(config)
        size, channels = config.character_width, sum(config.filters)
        self.characters = EmbeddingTable(SYMBOLS, size)
        self.filters = nn.ModuleList(
            Linear(width * size, count) for width, count in enumerate(config.filters, 1)
        )
        self.highways = nn.ModuleList(
            Linear(channels, 2 * channels) for _ in range(config.highways)
        )

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T E"]:
        distinct, number, word, _ = self.words(ids)
        return self._vectors(distinct)[number[word]].view(*ids.shape, -1)

    def _vectors(self, words: Int[Tensor, "W L"]) -> Float[Tensor, "W E"]:
        count, sizes = len(words), (words != 0).sum(1)
        # Behind the longest word, too, all filters see nothing once: words do not change others.
        room = int(sizes.max()) + len(self.filters)
        framed = words.new_zeros(count, 2 + room)
        framed[:, 0] = BEGIN
        framed[:, 1 : 1 + min(room, words.shape[1])] = words[:, :room]
        framed[torch.arange(count, device=words.device), 1 + sizes] = END
        vectors = self.characters(framed) * (framed != 0)[..., None]
        largest = []
        for width, convolution in enumerate(self.filters, 1):
            windows = vectors.unfold(1, width, 1).transpose(2, 3).flatten(2)
            largest.append(convolution(windows).amax(1))
        x = torch.cat(largest, 1).relu()
        for highway in self.highways:
            carry, change = highway(x).chunk(2, 1)
            x = torch.lerp(change.relu(), x, carry.sigmoid())
        return super().forward(x)
