"""The module of `hybrid`; for the method and its options see `../hybrid.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from maskwright.base.errors import IncompatibleError
from maskwright.base.randomness import key, uniforms
from maskwright.model.batch import Batch
from maskwright.model.nn.config import Block
from maskwright.model.nn.kernels.vocabulary_loss import vocabulary_loss
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Loss, Objective, Part, Vocabulary
from maskwright.model.objectives.hybrid import SPEC, Options
from maskwright.model.objectives.modules.masked import Masked
from maskwright.text.store.rows import Rows


class Hybrid(Objective):
    """Masked and causal modelling with one encoder; `prefix` is 0 in causal, T in masked rows."""

    prediction_offset = SPEC.prediction_offset

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.product = model
        self.masked = Masked(model, options.masking, vocabulary)
        assert model.config.encoder is not None
        for layer, block in enumerate(model.config.encoder.blocks):
            if not isinstance(block, Block) or block.pattern != "bidirectional":
                raise IncompatibleError(
                    "`hybrid` needs a bidirectional encoder",
                    where=f"encoder.blocks.{layer}.attention",
                    found=f"pattern {block.pattern}, {type(block).__name__}",
                    wanted="the pattern bidirectional in every layer",
                    do="choose an encoder family such as bert",
                )
        self.options = options

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        follows = np.zeros(rows.tokens.shape, dtype=bool)  # there is a previous token to predict it
        follows[:, 1:] = rows.documents[:, 1:] == rows.documents[:, :-1]
        follows &= rows.documents != 0
        maskable = replace(rows, special=rows.special | ~follows)
        batch = self.masked.corrupt(maskable, epochs, seed, progress)
        assert batch.index is not None
        masked = np.zeros(rows.tokens.size, dtype=bool)
        masked[batch.index] = True
        causal = uniforms(key("draw", seed, epochs, rows.ids), 1) < self.options.causal_share
        target_positions = np.flatnonzero(np.where(causal, follows, masked.reshape(follows.shape)))
        tokens = np.where(causal, rows.tokens, batch.tokens.numpy())
        return replace(
            batch,
            tokens=torch.from_numpy(tokens),
            index=torch.from_numpy(target_positions - 1),
            targets=torch.from_numpy(rows.tokens.reshape(-1)[target_positions]),
            prefix=torch.from_numpy(np.where(causal[:, 0], 0, tokens.shape[1])),
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        causal = int(_is_causal(batch).sum())
        return {"masked": len(_is_causal(batch)) - causal, "causal": causal}

    def forward(self, batch: Batch) -> Loss:
        targets, states = self.targets(batch), self.product.head_hidden(self.target_states(batch))
        causal, rate = _is_causal(batch), self.options.causal_share
        weight, bias = self.product.head_weight, self.product.head_bias
        parts = {}
        for name, in_part, share in (("masked", ~causal, 1 - rate), ("causal", causal, rate)):
            total, _ = vocabulary_loss(
                states[in_part], weight, bias, targets[in_part], self.options.z_loss
            )
            parts[name] = Part(total, share)
        return Loss(parts)

    def sorts(self, batch: Batch) -> dict[str, Tensor]:
        causal = _is_causal(batch)
        return {"masked": ~causal, "causal": causal}


def _is_causal(batch: Batch) -> Tensor:
    """Return (N,) bool: whether each target is in a causal row."""
    assert batch.index is not None and batch.prefix is not None
    return batch.prefix[batch.index // batch.tokens.shape[1]] == 0


build = Hybrid
