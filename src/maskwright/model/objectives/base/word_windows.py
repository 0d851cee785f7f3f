"""Words and their neighbours: what word2vec and GloVe have in common.

    a  b  -  c  d     b was left out: c is the neighbour of a
       <- c ->        reach 1: (a, c), (d, c)   reach 2: … and so on

Each pair is a neighbour, whose vector is read, and the word in the middle, which is predicted.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.nn.subwords import SubwordVectors
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import (
    NetworkWork,
    TokenPrediction,
    Vocabulary,
    encode,
)
from maskwright.text.store.rows import Rows

Array = np.ndarray


def neighbours(groups: Array, reach: Array) -> tuple[Array, Array, Array]:
    """Return (neighbour, middle, slot) of each pair (N,), in the order of the middle words.

    Args:
        groups: (M,) number of the document of each word; words of a document are adjacent.
        reach: (M,) number of words on each side that are neighbours of each word.

    `slot` numbers the neighbours of a word: 0, 2, … to the left and 1, 3, … to the right, the
    nearest first.
    """
    triples = []
    for distance in range(1, min(int(reach.max(initial=0)), len(groups) - 1) + 1):
        earlier = np.flatnonzero(groups[:-distance] == groups[distance:])
        later = earlier + distance
        for middle, neighbour, side in ((later, earlier, 0), (earlier, later, 1)):
            near = reach[middle] >= distance
            slots = np.full(int(near.sum()), 2 * distance - 2 + side)
            triples.append((neighbour[near], middle[near], slots))
    if not triples:
        return (np.zeros(0, np.int64),) * 3
    neighbour, middle, slot = (np.concatenate(arrays) for arrays in zip(*triples, strict=True))
    order = np.lexsort((slot, middle))
    return neighbour[order], middle[order], slot[order]


class WordWindows(TokenPrediction):
    """Base class of objectives that predict a word from its neighbours by static vectors;
    `is_word` (V,) says which tokens are words."""

    def __init__(self, model: Transformer, vocabulary: Vocabulary) -> None:
        super().__init__()
        if model.config.encoder is None or model.config.encoder.blocks:
            raise IncompatibleError(
                f"`{self.name}` trains static vectors, and this model has layers",
                where="model",
                do="choose the family static-vectors, or an objective such as masked",
            )
        self.product, self.vocabulary = model, vocabulary
        self.has_subwords = isinstance(model.tokens, SubwordVectors)
        self.is_word = np.isin(np.arange(model.config.tokens.vocabulary), vocabulary.ordinary)

    @torch.no_grad()
    def start_run(self) -> None:
        tokens = self.product.tokens
        tokens.weight[torch.from_numpy(~self.is_word)] = 0.0
        if isinstance(tokens, SubwordVectors):  # special tokens have no n-grams
            tokens.spelling.view(len(self.is_word), -1)[torch.from_numpy(~self.is_word)] = 0.0

    def words(self, rows: Rows) -> tuple[Array, Array]:
        """Return flat positions (M,) of the words of `rows`, and the number of the document of
        each; a word that is spelled by several tokens is none."""
        is_word = ~rows.special & ~np.isin(rows.tokens, self.vocabulary.special)
        if self.has_subwords:
            begins = rows.starts_word | rows.special
            is_word &= begins & np.pad(begins[:, 1:], ((0, 0), (0, 1)), constant_values=True)
        flat = np.flatnonzero(is_word)
        row = flat // rows.tokens.shape[1]
        return flat, row * (int(rows.documents.max()) + 1) + rows.documents.reshape(-1)[flat]

    def target_states(self, batch: Batch) -> Tensor:
        return encode(self.product, batch, batch.index)

    def work(self, batch: Batch) -> list[NetworkWork]:
        return [NetworkWork(self.product, extra_flops=self.products(batch))]

    @abstractmethod
    def products(self, batch: Batch) -> int:
        """Return the floating-point operations of the scores of a training step, forward."""
