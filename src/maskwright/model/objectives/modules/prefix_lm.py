"""The module of `prefix-lm`; for the method and its options see `../prefix_lm.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from maskwright.base.errors import IncompatibleError
from maskwright.base.randomness import key, uniforms
from maskwright.model.batch import Batch
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import TokenPrediction, Vocabulary
from maskwright.model.objectives.modules.causal import next_tokens
from maskwright.model.objectives.prefix_lm import SPEC, Options
from maskwright.text.store.rows import Rows


class PrefixLM(TokenPrediction):
    """Next-token prediction after a prefix with bidirectional attention."""

    name = "prefix-lm"
    bidirectional_prefix = SPEC.bidirectional_prefix

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__()
        if model.config.vocabulary_head is None or len(model.config.stacks) != 1:
            raise IncompatibleError(
                "`prefix-lm` needs one stack with a vocabulary head",
                where="model",
                found=" and ".join(model.config.stacks),
                do="choose an encoder or a decoder family, or `span-corruption` for both at once",
            )
        self.product, self.options = model, options

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        real = rows.documents[:, 1:] != 0
        keys = np.asarray(key("prefix", seed, epochs, rows.ids))
        prefix = self.prefixes(real.sum(axis=1), uniforms(keys, 1)[:, 0])
        is_target = real & (np.arange(1, rows.tokens.shape[1]) >= prefix[:, None])
        return replace(next_tokens(rows, is_target), prefix=torch.from_numpy(prefix))

    def prefixes(self, most: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Return (B,) the length of each row's prefix, from 1 to `most` (B,) tokens."""
        shortest = np.maximum(1, np.ceil(self.options.shortest * most))
        longest = np.maximum(shortest, np.floor(self.options.longest * most))
        return (shortest + draws * (longest - shortest + 1)).astype(np.int64)


build = PrefixLM
