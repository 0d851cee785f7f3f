"""Base class of objectives for encoder-decoder models.

    encoder   corrupted text            decoder   start  t0  t1  …        targets  t0  t1  t2  …

The decoder input is a start token and the targets shifted right by one; it attends to its past and
to the encoder states of its own document. The loss is computed at every target.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.nn import mask as masks
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.corruption import Origin, Sequences, pack
from maskwright.model.objectives.base.objective import (
    TokenPrediction,
    Vocabulary,
    at_targets,
    encode,
    refuse_leak,
)
from maskwright.model.objectives.base.spec import Start


class EncoderDecoder(TokenPrediction):
    """Prediction of one text by the decoder from another in the encoder.

    Args:
        name: name of the objective, for messages and for its part of the loss.
        start: the token that the decoder starts with.

    Raises:
        IncompatibleError: the model is not an encoder-decoder with a vocabulary head, its decoder
            is not causal, or the tokenizer has no start token.
    """

    def __init__(self, name: str, model: Transformer, vocabulary: Vocabulary, start: Start) -> None:
        super().__init__()
        config = model.config
        if config.encoder is None or config.decoder is None or config.vocabulary_head is None:
            raise IncompatibleError(
                f"`{name}` needs an encoder, a decoder and a vocabulary head",
                where="model",
                found=f"{' and '.join(config.stacks)} alone",
                do="choose an encoder-decoder family, or the objective `masked` or `causal`",
            )
        refuse_leak(name, config.decoder, "decoder", "give the decoder the pattern `causal`")
        token = {"pad": vocabulary.pad, "begin": vocabulary.begin, "end": vocabulary.end}[start]
        if token is None:
            raise IncompatibleError(
                f"the tokenizer has no {start} token for the decoder to start with",
                where="objective.options.start",
                do='train the tokenizer with such a token, or set start to "pad"',
            )
        self.name, self.product, self.vocabulary, self.start = name, model, vocabulary, token

    def batch(
        self,
        inputs: Sequences,
        targets: Sequences,
        origin: Origin,
        shape: tuple[int, int],
        width: int | None = None,
    ) -> Batch:
        """Return a batch with `inputs` for the encoder and `targets` for the decoder.

        Args:
            shape: (rows, positions) of the encoder.
            width: positions of the decoder; None for the minimum.
        """
        rows = shape[0]
        if width is None:
            width = int(np.bincount(origin.rows, targets.lengths, rows).max(initial=0))
        decoder = pack(targets.shifted(self.start), origin, (rows, width), self.vocabulary.pad)
        documents = decoder["documents"]
        return Batch(
            **pack(inputs, origin, shape, self.vocabulary.pad),  # type: ignore[arg-type]
            decoder_tokens=decoder["tokens"],
            decoder_positions=decoder["positions"],
            decoder_documents=documents,
            index=None if documents is None else documents.reshape(-1).nonzero()[:, 0],
            targets=torch.from_numpy(targets.tokens),
        )

    def target_states(self, batch: Batch) -> Tensor:
        assert batch.decoder_tokens is not None
        hidden = self.product.decode(
            batch.decoder_tokens,
            positions=batch.decoder_positions,
            visible=masks.visible_of(batch.decoder_documents),
            memory=encode(self.product, batch),
            memory_visible=memory_visible(batch),
        )
        return at_targets(hidden, batch)


def memory_visible(batch: Batch) -> masks.AttentionMask | None:
    """Return the mask of cross-attention to the own document; None if rows are one document."""
    if batch.documents is None:
        return None
    decoder_documents = batch.decoder_documents
    if decoder_documents is None:
        assert batch.decoder_tokens is not None
        decoder_documents = torch.ones_like(batch.decoder_tokens, dtype=batch.documents.dtype)
    return masks.same_document(decoder_documents, batch.documents)
