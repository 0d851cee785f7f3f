"""Batch: the one type that the text side and the model side share."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Rows of tokens, what the model must know about them, and what it is to predict.

    Axes: B rows, T positions, S decoder positions, N targets, R pooled positions.

        tokens      (B, T) int64   what the model reads; the encoder, where there is also a decoder;
                                   of images the values of their patches, (B, T, K) float32;
                                   those of a hidden patch are NaN
        positions   (B, T) int64   counted from 0 in each document; None: 0 … T-1
        segments    (B, T) int64   sentence A or B; None where the model has none
        documents   (B, T) int32   which document of the row a position belongs to; 0 is padding;
                                   None: every row is one document without padding
        index       (N,)   int64   flat positions (b*T + t) that have a target
        targets     (N,)   int64   the token ids to predict there; when texts are classified, the
                                   text that a position, or a piece read at `pooled`, belongs to;
                                   of hidden patches their values, (N, K) float32
        labels      (R,)   int64   one class per pooled position (sentence pair), or None
        pooled      (R,)   int64   flat positions whose hidden state is pooled for `labels`
        prefix      (B,)   int64   how many of a row's first tokens are seen in both directions, the
                                   rest being causal; None: the model's own attention pattern
        uniforms    (N,) float64   a number in [0, 1) per target, to sample a token there
        draws       (M, K) float64 numbers in [0, 1) by which an objective draws what is no token
                                   of the text: words that do not stand there, cells of a matrix

    For an encoder with a decoder, three more say what the decoder reads, and `index` counts in
    them (b*S + s):

        decoder_tokens     (B, S) int64   the targets shifted by one, after a start token
        decoder_positions  (B, S) int64   as `positions`
        decoder_documents  (B, S) int32   as `documents`; in the encoder a decoder position attends
                                          to its own document only

    `index` replaces a (B, T) matrix of labels so that vocabulary scores are computed only at
    positions that have a target.
    """

    tokens: Tensor
    positions: Tensor | None = None
    segments: Tensor | None = None
    documents: Tensor | None = None
    index: Tensor | None = None
    targets: Tensor | None = None
    labels: Tensor | None = None
    pooled: Tensor | None = None
    prefix: Tensor | None = None
    decoder_tokens: Tensor | None = None
    decoder_positions: Tensor | None = None
    decoder_documents: Tensor | None = None
    uniforms: Tensor | None = None
    draws: Tensor | None = None

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on `device`; copies are asynchronous if the memory is pinned."""
        moved = {
            f.name: getattr(self, f.name).to(device, non_blocking=True)
            for f in fields(self)
            if getattr(self, f.name) is not None
        }
        return replace(self, **moved)
