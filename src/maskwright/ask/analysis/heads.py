"""What attention heads attend to.

    previous, next, itself    the weight on the neighbours and on the position itself
    first                     the weight on the first token
    special                   the weight on separators and other special tokens
    distance                  the mean distance of attention, in tokens
    entropy                   0 for one position, 1 for uniform weights over visible positions

Each is a mean over positions of ordinary tokens, and compared with the value of uniform weights
over all visible positions (Clark et al. 2019, arXiv:1906.04341).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.ask.analysis.hidden_states import ProbedModel, look
from maskwright.base.errors import DataError
from maskwright.model.batch import Batch
from maskwright.model.inference.batches import by_length
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed

KINDS = ("previous", "next", "itself", "first", "special")
MEASURES = (*KINDS, "distance", "entropy")
LONGEST = 128
REST = "·"
BLANKS = {"\n": "⏎", "\t": "⇥"}


@dataclass(frozen=True)
class Heads:
    """Means by measure, (layers, heads) each, and the values of uniform weights over visible keys
    (`even`), (layers,) each. `cut` texts were truncated to `longest` tokens."""

    texts: int
    tokens: int
    cut: int
    longest: int
    means: dict[str, NDArray[np.float64]]
    even: dict[str, NDArray[np.float64]]

    def best(self, kind: str) -> tuple[int, int]:
        """Return layer and head, numbered from 1, with the largest value of a measure."""
        layer, head = np.unravel_index(self.means[kind].argmax(), self.means[kind].shape)
        return int(layer) + 1, int(head) + 1


def look_at_heads(subject: ProbedModel, texts: Sequence[str]) -> Heads:
    """Measure all heads on the first `LONGEST` tokens of each text; raises a `DataError` if no text
    has two tokens."""
    tokenizer = subject.tokenizer
    length = min(LONGEST, subject.frame.length)
    room = length - sum(tokenizer.frame_margins())
    token_ids = tokenizer.encode_batch(texts)
    framed_ids = [tokenizer.frame(i[:room].tolist())[0] for i in token_ids if len(i) > 1]
    if not framed_ids:
        raise DataError("there is no text of two tokens to look at", found=f"{len(texts)} texts")
    sums, even_sums, num_positions = np.zeros(()), np.zeros(()), 0
    special = torch.tensor(sorted(tokenizer.special_ids))
    for batch, weights in attention(subject, framed_ids):
        counted = ~torch.isin(batch.tokens, special) & (batch.tokens >= 0)
        if batch.documents is not None:
            counted &= batch.documents > 0
        is_special = torch.isin(batch.tokens, special)
        # A weight may underflow to 0 in one head, but only the mask makes it 0 in all heads.
        visible = [(w > 0).any(1, keepdim=True) for w in weights]
        layers = [_sums(w, s, counted, is_special) for w, s in zip(weights, visible, strict=True)]
        even_layers = [_sums(_even(s), s, counted, is_special)[0] for s in visible]
        even_sums = even_sums + np.stack(even_layers)
        sums = sums + np.stack(layers)
        num_positions += int(counted.sum())
    means = sums / max(1, num_positions)  # layers, heads, measures
    return Heads(
        len(framed_ids),
        num_positions,
        sum(len(i) > room for i in token_ids),
        length,
        {name: means[:, :, i] for i, name in enumerate(MEASURES)},
        {name: even_sums[:, i] / max(1, num_positions) for i, name in enumerate(MEASURES)},
    )


def _even(visible: Tensor) -> Tensor:
    """Return uniform attention weights over `visible` keys, (B, 1, T, T)."""
    return visible / visible.sum(-1, keepdim=True).clamp(min=1)


@torch.inference_mode()
def attention(
    subject: ProbedModel, ids: Sequence[list[int]]
) -> Iterator[tuple[Batch, list[Tensor]]]:
    """Yield batches with one text per row, and the attention weights (B, H, T, T) of each layer."""
    lengths = np.array([len(token_ids) for token_ids in ids], np.int64)
    examples = EncodedExamples(framed(list(ids)), np.zeros(len(ids), np.int64))
    collation = Collation(pad=subject.tokenizer.pad or 0, last=False, alone=True)
    for numbers in by_length(lengths, "weights"):
        batch, _ = examples.batch(numbers, collation)
        layer_weights = look(subject.model, batch.to(subject.model.device)).weights
        yield batch, [weights.cpu() for weights in layer_weights]


@dataclass(frozen=True)
class TextAttention:
    """The attention weights of one text: the text as read, whether it was truncated, the string of
    each token, and the weights (layers, heads, T, T)."""

    text: str
    cut: bool
    pieces: list[str]
    weights: NDArray[np.float32]


def one_text(subject: ProbedModel, text: str, most: int) -> TextAttention:
    """Compute attention weights of the first `most` tokens of `text`, special ones included."""
    tokenizer = subject.tokenizer
    before, after = tokenizer.frame_margins()
    room = max(0, min(most, subject.frame.length) - before - after)
    ((token_ids, spans),) = tokenizer.encode_batch([text], offsets=True)
    ids, spans = token_ids[:room].tolist(), spans[:room].tolist()
    framed_ids = tokenizer.frame(ids)[0]
    token_texts = tokenizer.tokens(framed_ids)
    inner = slice(before, len(token_texts) - after)
    is_special = [i in tokenizer.special_ids for i in ids]
    token_texts[inner] = _pieces(text, spans, token_texts[inner], is_special)
    ((_, weights),) = attention(subject, [framed_ids])
    num_tokens = len(token_texts)
    cut = len(token_ids) > room
    shown = text[: max((end for _, end in spans), default=0)] if cut else text
    stacked = np.stack([w[0, :, :num_tokens, :num_tokens].numpy() for w in weights])
    return TextAttention(shown, cut, token_texts, stacked)


def _pieces(
    text: str, spans: Sequence[Sequence[int]], names: Sequence[str], special: Sequence[bool]
) -> list[str]:
    """Return the characters of `text` that each token covers, or the token's name if none. If the
    bytes of a character are several tokens, the first gets it and the others `REST`."""
    pieces, covered = [], 0
    for (start, end), name, is_special in zip(spans, names, special, strict=True):
        piece = text[max(start, covered) : end]
        if is_special or start == end:
            pieces.append(name)
        else:
            pieces.append(
                (piece.strip() or "".join(BLANKS.get(c, "␣") for c in piece)) if piece else REST
            )
        covered = max(covered, end)
    return pieces


def _sums(
    weights: Tensor, visible: Tensor, counted: Tensor, special: Tensor
) -> NDArray[np.float64]:
    """Return sums of all measures, (H, measures), over the `counted` positions (B, T). `weights`
    are (B, H, T, T), `visible` (B, 1, T, T): whether a query sees a key; `special` is (B, T)."""
    size = weights.shape[-1]
    positions = torch.arange(size)
    distances = (positions[None] - positions[:, None]).abs().to(weights.dtype)  # query, key
    first_key = torch.zeros(size, dtype=weights.dtype)
    first_key[0] = 1.0
    max_entropy = visible.sum(-1).clamp(min=2).to(weights.dtype).log()
    logs = torch.where(weights > 0, weights, 1.0).log()
    measures = torch.stack(
        [
            torch.nn.functional.pad(weights.diagonal(-1, -2, -1), (1, 0)),
            torch.nn.functional.pad(weights.diagonal(1, -2, -1), (0, 1)),
            weights.diagonal(0, -2, -1),
            weights @ first_key,
            (weights * special[:, None, None].to(weights.dtype)).sum(-1),
            (weights * distances).sum(-1),
            -(weights * logs).sum(-1) / max_entropy,
        ],
        dim=-1,
    )  # B, H, T, measures
    weighted = measures * counted[:, None, :, None].to(weights.dtype)
    return np.asarray(weighted.double().sum((0, 2)).numpy())
