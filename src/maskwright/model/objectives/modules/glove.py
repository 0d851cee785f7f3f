"""The module of `glove`; for the method and its options see `../glove.py`.

The product has w + w~, and `difference` w - w~: both are trained, so that what is saved needs no
step of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from maskwright.base.errors import IncompatibleError
from maskwright.base.randomness import key, uniforms
from maskwright.model.batch import Batch
from maskwright.model.nn.subwords import SubwordVectors
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Loss, Part, Vocabulary
from maskwright.model.objectives.base.word_windows import Array, WordWindows, neighbours
from maskwright.model.objectives.glove import Options
from maskwright.text.store.rows import Rows
from maskwright.text.store.store import TokenStore

BLOCK = 1 << 18  # words whose neighbours are counted at once


@dataclass(frozen=True)
class Cells:
    """The cells of a matrix of counts that are not empty: `words` (2, C), and `counts` (C,)."""

    words: Array
    counts: Array

    @classmethod
    def of(cls, stores: Sequence[TokenStore], is_word: Array, window: int) -> Cells:
        """Count the neighbours within `window` words of each other, each as 1 / distance."""
        size, total = len(is_word), cls(np.zeros((2, 0), np.int64), np.zeros(0))
        for store in stores:
            begin = 0
            while begin < store.num_documents:
                goal = int(store.offsets[begin]) + BLOCK
                end = max(begin + 1, int(np.searchsorted(store.offsets, goal, "right")) - 1)
                bounds = store.offsets[begin : end + 1]
                tokens = np.asarray(store.tokens[bounds[0] : bounds[-1]], np.int64)
                groups = np.repeat(np.arange(end - begin), np.diff(bounds))[is_word[tokens]]
                tokens, begin = tokens[is_word[tokens]], end
                neighbour, middle, slot = neighbours(groups, np.full(len(tokens), window))
                flat = tokens[middle] * size + tokens[neighbour]
                total = total.plus(flat, 1.0 / (slot // 2 + 1), size)
        return total

    def plus(self, flat: Array, values: Array, size: int) -> Cells:
        """Return these counts and those of the `flat` cells (row * size + column)."""
        flat = np.concatenate([self.words[0] * size + self.words[1], flat])
        cells, inverse = np.unique(flat, return_inverse=True)
        counts = np.bincount(inverse, np.concatenate([self.counts, values]), len(cells))
        return Cells(np.stack(np.divmod(cells, size)), counts)


class GloVe(WordWindows):
    """Weighted least squares on the log counts. In a batch, `index` and `targets` are pairs of
    neighbours for evaluation, drawn as often as they count; `draws` draw the cells."""

    name = "glove"

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__(model, vocabulary)
        if isinstance(model.tokens, SubwordVectors):
            raise IncompatibleError(
                "`glove` trains no vectors of n-grams",
                where="model.settings.subword_buckets",
                found=model.tokens.config.buckets,
                wanted="0",
                do="leave the setting out, or choose the recipe word2vec",
            )
        self.options, self._stores = options, list[TokenStore]()
        shape = model.tokens.weight.shape
        drawn = torch.empty(shape).uniform_(-0.5 / shape[1], 0.5 / shape[1])
        self.difference = nn.Parameter(drawn.to(model.device))
        self.bias = nn.Parameter(torch.zeros(shape[0], device=model.device))
        self.output_bias = nn.Parameter(torch.zeros(shape[0], device=model.device))

    def use_corpus(self, stores: Sequence[TokenStore], count: Callable[[], Array]) -> None:
        self._stores = list(stores)
        self.__dict__.pop("cells", None)

    @cached_property
    def cells(self) -> Cells:
        """The counts of the training text.

        Raises:
            IncompatibleError: there is no pair of neighbours in it.
        """
        cells = Cells.of(self._stores, self.is_word, self.options.window)
        if not len(cells.counts):
            raise IncompatibleError(
                "there are no neighbours to count",
                where="corpus",
                found=f"{len(self._stores)} texts without two words in a document",
                do="give more text",
            )
        return cells

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        o, length = self.options, rows.tokens.shape[1]
        flat, documents = self.words(rows)
        draws = uniforms(key("span", seed, epochs, rows.ids), length).reshape(-1)[flat]
        reach = np.minimum(o.window, 1 / (1.0 - draws)).astype(np.int64)  # d or more: 1/d
        middle, neighbour, _ = neighbours(documents, reach)
        cells = uniforms(key("sample", seed, epochs, rows.ids), length * o.cells)
        return Batch(
            tokens=torch.from_numpy(rows.tokens),
            index=torch.from_numpy(flat[middle]),
            targets=torch.from_numpy(rows.tokens.reshape(-1)[flat[neighbour]]),
            draws=torch.from_numpy(cells.reshape(-1, 1)),
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.draws is not None
        return {self.name: len(batch.draws)}

    def forward(self, batch: Batch) -> Loss:
        assert batch.draws is not None
        drawn = (batch.draws[:, 0].cpu().numpy() * len(self.cells.counts)).astype(np.int64)
        return Loss({self.name: Part(self.cost(drawn))})

    def cost(self, numbers: Array) -> Tensor:
        """Return the summed cost of the cells of these numbers."""
        device, o = self.bias.device, self.options
        rows, columns = torch.from_numpy(self.cells.words[:, numbers]).to(device)
        counts = torch.from_numpy(self.cells.counts[numbers]).to(device, torch.float32)
        total, difference = self.product.tokens.weight, self.difference
        vectors = functional.embedding(rows, total) + functional.embedding(rows, difference)
        contexts = functional.embedding(columns, total) - functional.embedding(columns, difference)
        products = (vectors[:, None].float() @ contexts[..., None].float()).flatten() / 4
        errors = products + self.bias[rows] + self.output_bias[columns] - counts.log()
        return ((counts / o.x_max).clamp(max=1.0) ** o.alpha * errors**2).sum()

    def target_states(self, batch: Batch) -> Tensor:
        assert batch.index is not None
        rows = batch.tokens.reshape(-1)[batch.index]
        return (super().target_states(batch) + functional.embedding(rows, self.difference)) / 2

    def target_scores(self, states: Tensor) -> Tensor:
        every = torch.arange(len(self.difference), device=states.device)[None]
        columns = (self.product.encode(every)[0] - self.difference) / 2
        words = torch.from_numpy(self.is_word).to(states.device)
        return (states @ columns.T + self.output_bias).masked_fill(~words, -torch.inf)

    def products(self, batch: Batch) -> int:
        assert batch.draws is not None
        return 2 * len(batch.draws) * self.difference.shape[1]


build = GloVe
