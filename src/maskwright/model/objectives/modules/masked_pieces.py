"""The module of `masked-pieces`; for the method and its options see `../masked_pieces.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from maskwright.base.errors import IncompatibleError
from maskwright.base.randomness import key
from maskwright.model.batch import Batch
from maskwright.model.nn.stack import StackModule
from maskwright.model.nn.transformer import Transformer, layers_over
from maskwright.model.objectives.base import corruption
from maskwright.model.objectives.base.objective import (
    Loss,
    NetworkWork,
    Objective,
    Part,
    Vocabulary,
    encode,
)
from maskwright.model.objectives.masked_pieces import Options
from maskwright.model.objectives.modules.masked import Masked
from maskwright.text.store.rows import Rows


class MaskedPieces(Objective):
    """Masked modelling in pieces, and layers `over` the vectors of pieces. Letters: B rows of N
    pieces of T tokens, M hidden pieces."""

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__()
        if vocabulary.begin is None or vocabulary.end is None:
            raise IncompatibleError(
                "the tokenizer has no special tokens around a text, which begin and end a piece",
                where="tokenizer",
                found=f"begin {vocabulary.begin}, end {vocabulary.end}",
                do='train the tokenizer with style "bert" or "roberta"',
            )
        self.product, self.options = model, options
        self.frame, self.pad = (vocabulary.begin, vocabulary.end), vocabulary.pad
        self.special = vocabulary.special
        self.masked = Masked(model, options.masking, vocabulary)
        width = model.config.width
        self.over = StackModule(layers_over(model.config), width, width).to(model.device)

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        """Make a batch (B, N T) from rows of N (T - 2) tokens, with `labels` (B N,): 1 for hidden
        pieces. Nothing is hidden in rows of one piece."""
        size, options = self.options.piece, self.options

        def framed(values: np.ndarray, begin: int, end: int, padding: int = 0) -> np.ndarray:
            columns = (0, 0), (0, -values.shape[1] % (size - 2))
            padded = np.pad(values, columns, constant_values=padding)
            pieces = padded.reshape(len(rows), -1, size - 2)
            ends = [np.full_like(pieces[..., :1], value) for value in (begin, end)]
            return np.concatenate([ends[0], pieces, ends[1]], 2).reshape(len(rows), -1)

        documents = framed(rows.documents, 1, 1)
        positions = np.broadcast_to(np.arange(documents.shape[1]), documents.shape)
        pieces = Rows(
            tokens=framed(rows.tokens, *self.frame, self.pad),
            positions=positions % size,
            documents=np.where(documents, positions // size + 1, 0).astype(np.int32),
            special=framed(rows.special, 1, 1, 1),
            starts_word=framed(rows.starts_word, 0, 0),
            ids=rows.ids,
        )
        batch = self.masked.corrupt(pieces, epochs, seed, progress)
        keys = np.asarray(key("span", seed, epochs * (not options.masking.static), rows.ids))
        count = documents.shape[1] // size
        is_hidable = np.full((len(rows), count), count > 1)
        hidden = corruption.choose_tokens(is_hidable, options.hidden_rate, keys)
        labels = torch.from_numpy(hidden.reshape(-1).astype(np.int64))
        return replace(batch, labels=labels, pooled=torch.arange(len(labels)) * size)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {**self.masked.counts(batch), "context": int(self._hidden_tokens(batch)[1].sum())}

    def forward(self, batch: Batch) -> Loss:
        assert batch.index is not None and batch.labels is not None
        states = encode(self.product, *self._each_piece(batch))
        masked_states, vectors = states.tensor_split([len(batch.index)])
        if self.product.pooler is not None:
            vectors = self.product.pool(vectors)
        shown = vectors.masked_fill(batch.labels[:, None] == 1, 0.0)
        contexts = self.over(shown.view(len(batch.tokens), -1, shown.shape[1])).flatten(0, 1)
        contexts = contexts.index_select(0, batch.labels.nonzero()[:, 0])
        tokens, is_target = self._hidden_tokens(batch)
        scores = self.product.logits(contexts).float().log_softmax(-1)
        context = Part(-(scores.gather(1, tokens) * is_target).sum())
        return Loss({"masked": self.masked.part(masked_states, batch), "context": context})

    def _hidden_tokens(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the original tokens (M, T) of hidden pieces, and which are not special."""
        assert batch.index is not None and batch.targets is not None and batch.labels is not None
        tokens = batch.tokens.flatten().index_put((batch.index,), batch.targets)
        tokens = tokens.view(len(batch.labels), -1)[batch.labels.nonzero()[:, 0]]
        return tokens, ~torch.isin(tokens, tokens.new_tensor(self.special))

    def _each_piece(self, batch: Batch) -> tuple[Batch, Tensor]:
        """Return the batch with a row (B N, T) for each piece, as the network reads them, and the
        flat positions of masked tokens and of the first tokens of pieces."""
        assert batch.index is not None and batch.pooled is not None
        names = ("tokens", "positions", "documents")
        rows = {name: getattr(batch, name).view(-1, self.options.piece) for name in names}
        return replace(batch, **rows), torch.cat([batch.index, batch.pooled])

    def work(self, batch: Batch) -> list[NetworkWork]:
        assert batch.labels is not None
        (work,) = super().work(batch)
        scored = work.scored + int(batch.labels.sum())
        matrices = sum(p.numel() for p in self.over.parameters() if p.dim() == 2)
        attentions = [block.attention for block in self.over.config.attention_blocks]
        inner = sum(attention.heads * attention.head_width for attention in attentions)
        count = len(batch.labels)
        over = 2 * count * (matrices + 2 * count // len(batch.tokens) * inner)
        pieces, at = self._each_piece(batch)
        return [replace(work, at=at, scored=scored, extra_flops=over, batch=pieces)]

    def target_states(self, batch: Batch) -> Tensor:
        return self.masked.target_states(self._each_piece(batch)[0])


build = MaskedPieces
