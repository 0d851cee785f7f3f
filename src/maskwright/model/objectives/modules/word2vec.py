"""The module of `word2vec`; for the method and its options see `../word2vec.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from maskwright.base.randomness import key, uniforms, uniforms_at
from maskwright.model.batch import Batch
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Part, Vocabulary, encode
from maskwright.model.objectives.base.word_windows import Array, WordWindows, neighbours
from maskwright.model.objectives.word2vec import Options
from maskwright.text.store.rows import Rows
from maskwright.text.store.store import TokenStore

NEVER = -100.0  # the log frequency of what is no word


class Word2Vec(WordWindows):
    """Skip-gram and CBOW with negative sampling.

    A batch of skip-gram has the neighbours at `index`. One of CBOW has the targets there, and the
    neighbours at `pooled`, those of each target together; `labels` says how many there are of each.

    Attributes:
        output: (V, D) the vectors that predict.
        log_frequency: (V,) the log relative frequency of each word in the training text, `NEVER`
            for special tokens: a parameter without gradient, so that it is saved.
    """

    name = "word2vec"

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__(model, vocabulary)
        self.options = options
        self.log_frequency = nn.Parameter(self._logs(np.ones(vocabulary.size)).to(model.device))
        self.output = nn.Parameter(torch.zeros(*model.tokens.weight.shape, device=model.device))

    def _logs(self, counts: Array) -> Tensor:
        frequencies = np.zeros(len(self.is_word))
        frequencies[: len(counts)] = np.maximum(counts, 1)
        frequencies *= self.is_word
        logs = np.full(len(frequencies), NEVER)
        np.log(frequencies / frequencies.sum(), where=self.is_word, out=logs)
        return torch.from_numpy(logs).float()

    @torch.no_grad()
    def use_corpus(self, stores: Sequence[TokenStore], count: Callable[[], Array]) -> None:
        self.log_frequency.copy_(self._logs(count()))

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        o, length = self.options, rows.tokens.shape[1]
        flat, documents = self.words(rows)
        tokens = rows.tokens.reshape(-1)
        if o.sample and not self.log_frequency.is_meta:  # without numbers, where masks are drawn
            draws = uniforms(key("mask", seed, epochs, rows.ids), length).reshape(-1)[flat]
            rarity = o.sample * np.exp(-self.log_frequency.detach().double().cpu().numpy())
            stays = draws < np.take(np.sqrt(rarity) + rarity, tokens[flat], mode="clip")
            flat, documents = flat[stays], documents[stays]
        draws = uniforms(key("span", seed, epochs, rows.ids), length).reshape(-1)[flat]
        neighbour, middle, slot = neighbours(documents, 1 + (draws * o.window).astype(np.int64))
        contexts, targets = flat[neighbour], flat[middle]
        pooled = labels = None
        if o.kind == "cbow":
            targets, counts = np.unique(targets, return_counts=True)
            pooled, labels = torch.from_numpy(contexts), torch.from_numpy(counts)
            contexts, slot = targets, np.zeros(len(targets), np.int64)
        keys = np.asarray(key("negative", seed, epochs, rows.ids))[targets // length]
        numbers = (targets % length * 2 * o.window + slot) * o.negative
        draws = uniforms_at(keys[:, None], numbers[:, None] + np.arange(o.negative))
        return Batch(
            tokens=torch.from_numpy(rows.tokens),
            index=torch.from_numpy(contexts),
            targets=torch.from_numpy(tokens[targets]),
            pooled=pooled,
            labels=labels,
            draws=torch.from_numpy(draws),
        )

    def target_states(self, batch: Batch) -> Tensor:
        if batch.pooled is None:
            return super().target_states(batch)
        assert batch.labels is not None and batch.targets is not None
        vectors = encode(self.product, batch, batch.pooled)
        sums = vectors.new_zeros(len(batch.targets), vectors.shape[1])
        numbers = torch.arange(len(sums), device=sums.device).repeat_interleave(batch.labels)
        return sums.index_add(0, numbers, vectors) / batch.labels[:, None]

    def target_scores(self, states: Tensor) -> Tensor:
        return states @ self.output.T.to(states.dtype) + self.options.power * self.log_frequency

    def drawn(self, batch: Batch) -> Tensor:
        """Return the drawn words (N, `negative`)."""
        assert batch.draws is not None
        chances = (self.options.power * self.log_frequency.double()).softmax(0).cumsum(0)
        words = torch.searchsorted(chances, batch.draws, right=True)
        return words.clamp(max=len(chances) - 1)

    def part(self, states: Tensor, batch: Batch) -> Part:
        right = self.targets(batch)[:, None]
        drawn = self.drawn(batch)
        vectors = functional.embedding(torch.cat([right, drawn], 1), self.output)  # (N, 1 + K, D)
        scores = (vectors @ states[:, :, None])[..., 0].float()
        losses = functional.softplus(torch.cat([-scores[:, :1], scores[:, 1:]], 1))
        counted = torch.cat([torch.ones_like(right, dtype=torch.bool), drawn != right], 1)
        return Part((losses * counted).sum())

    def products(self, batch: Batch) -> int:
        assert batch.draws is not None
        return 2 * (batch.draws.numel() + len(batch.draws)) * self.output.shape[1]


build = Word2Vec
