"""The module of `masked`; for the method and its options see `../masked.py`."""

from __future__ import annotations

import numpy as np
import torch

from maskwright.base.errors import IncompatibleError
from maskwright.base.randomness import key
from maskwright.model.batch import Batch
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base import corruption
from maskwright.model.objectives.base.objective import TokenPrediction, Vocabulary, facts
from maskwright.model.objectives.masked import Options
from maskwright.text.store.rows import Rows


class Masked(TokenPrediction):
    """Masked language modelling over one bidirectional encoder."""

    name = "masked"

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__()
        if model.config.vocabulary_head is None or model.config.encoder is None:
            raise IncompatibleError(
                "`masked` needs an encoder with a vocabulary head",
                where="model",
                do="choose an encoder family such as bert, or the objective `causal`",
            )
        if vocabulary.mask is None:
            raise IncompatibleError(
                "the tokenizer has no mask token",
                where="tokenizer",
                do='train the tokenizer with style "bert", or use `causal`',
            )
        self.product = model
        self.options = options
        self.vocabulary = vocabulary
        self.ordinary = vocabulary.ordinary

    def choose(
        self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the chosen positions (B, T) bool, and the number (B, T) of the unit of each
        position; positions of a unit share one 80/10/10 decision."""
        o = self.options
        rate = o.rate if o.final_rate is None else o.rate + progress * (o.final_rate - o.rate)
        keys = np.asarray(key("mask", seed, self._epochs(epochs), rows.ids))
        maskable = ~rows.special
        positions = np.broadcast_to(np.arange(maskable.shape[1]), maskable.shape)
        if o.unit == "token":
            choose = corruption.draw_tokens if o.with_replacement else corruption.choose_tokens
            choose = corruption.choose_each if o.independent else choose
            return choose(maskable, rate, keys), positions
        if o.unit == "word":
            return corruption.choose_words(maskable, rows.starts_word, rate, keys), positions
        starts = rows.starts_word
        if o.unit == "ngram":
            lengths = corruption.inverse(o.ngram_longest)
        else:
            starts = starts if o.span_words else np.ones_like(starts)
            lengths = corruption.geometric(o.span_stop, o.span_longest)
            if o.span_lengths == "uniform":
                lengths = corruption.uniform(o.span_longest)
        chosen, span = corruption.choose_spans(maskable, starts, rate, keys, lengths=lengths)
        # SpanBERT decides span by span, ALBERT token by token.
        return chosen, span if o.unit == "span" else positions

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        chosen, unit = self.choose(rows, epochs, seed, progress)
        o = self.options
        keys = np.asarray(key("replace", seed, self._epochs(epochs), rows.ids))
        assert self.vocabulary.mask is not None
        tokens = corruption.replace_tokens(
            rows.tokens,
            chosen,
            unit,
            keys,
            mask_id=self.vocabulary.mask,
            ordinary=self.ordinary,
            mask_rate=o.mask_rate,
            random_rate=o.random_rate,
        )
        index = np.flatnonzero(chosen)
        return Batch(
            tokens=torch.from_numpy(tokens),
            index=torch.from_numpy(index),
            targets=torch.from_numpy(rows.tokens.reshape(-1)[index]),
            **facts(rows),
        )

    def _epochs(self, epochs: np.ndarray) -> np.ndarray:
        """Return the epochs for the keys of the masks: zeros for static masks."""
        return np.zeros_like(epochs) if self.options.static else epochs


build = Masked
