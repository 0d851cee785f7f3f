"""The module of `bidirectional-lm`; for the method see `../bidirectional_lm.py`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.nn.config import Recurrent
from maskwright.model.nn.kernels.vocabulary_loss import vocabulary_loss
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import (
    NetworkWork,
    Part,
    TokenPrediction,
    Vocabulary,
    encode,
    facts,
)
from maskwright.model.objectives.bidirectional_lm import Options
from maskwright.text.store.rows import Rows


class Bidirectional(TokenPrediction):
    """Next and previous words. `labels` of a batch say which half of a state predicts: 0 the one
    from the left, 1 the one from the right.

    Attributes:
        output, bias: (V, D / 2) and (V,), the softmax of both directions.
    """

    name = "bidirectional-lm"

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__()
        blocks = () if model.config.encoder is None else model.config.encoder.blocks
        if not blocks or not all(isinstance(b, Recurrent) and b.directions == 2 for b in blocks):
            raise IncompatibleError(
                "`bidirectional-lm` needs an encoder whose halves read in two directions, apart",
                where="model",
                found="another network",
                wanted="recurrent layers of two directions",
                do="choose the family elmo, or an objective such as masked",
            )
        self.product, self.vocabulary = model, vocabulary
        shape, device = (model.config.tokens.vocabulary, model.config.width // 2), model.device
        self.output = nn.Parameter(torch.zeros(*shape, device=device))
        self.bias = nn.Parameter(torch.zeros(shape[0], device=device))
        self.framing = tuple(t for t in (vocabulary.begin, vocabulary.end) if t is not None)

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        is_text = rows.documents != 0
        begins = (rows.starts_word | rows.special) & is_text
        spelled = np.zeros_like(begins)  # by this token and the next ones
        spelled[:, :-1] = begins[:, :-1] & (is_text & ~begins)[:, 1:]
        unknown = rows.tokens if self.vocabulary.unknown is None else self.vocabulary.unknown
        words = np.where(spelled, unknown, rows.tokens).reshape(-1)
        flat = np.flatnonzero(begins)
        text = flat // begins.shape[1] * (int(rows.documents.max()) + 1)
        text += rows.documents.reshape(-1)[flat]
        follows = text[1:] == text[:-1]
        pairs = np.stack([flat[:-1], flat[1:]], 1)[follows]  # each word, and the one behind it
        return Batch(
            tokens=torch.from_numpy(rows.tokens),
            index=torch.from_numpy(pairs.reshape(-1)),
            targets=torch.from_numpy(words[pairs[:, ::-1].reshape(-1)]),
            labels=torch.arange(2).repeat(len(pairs)),
            **facts(rows),
        )

    def target_states(self, batch: Batch) -> Tensor:
        hidden = encode(self.product, batch)
        return hidden.reshape(-1, 2, hidden.shape[-1] // 2)[batch.index, batch.labels]

    def target_scores(self, states: Tensor) -> Tensor:
        return states @ self.output.T.to(states.dtype) + self.bias.to(states.dtype)

    def part(self, states: Tensor, batch: Batch) -> Part:
        return Part(vocabulary_loss(states, self.output, self.bias, self.targets(batch))[0])

    def sorts(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.labels is not None
        return {"next word": batch.labels == 0, "previous word": batch.labels == 1}

    def work(self, batch: Batch) -> list[NetworkWork]:
        products = len(self.targets(batch)) * self.output.numel()
        return [NetworkWork(self.product, extra_flops=2 * products)]


build = Bidirectional
