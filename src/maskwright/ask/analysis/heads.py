"""What attention heads attend to.

    previous, next, itself    the weight on the neighbours and on the position itself
    first                     the weight on the first token
    special                   the weight on separators and other special tokens
    distance                  how far away the weight is on average, in tokens
    entropy                   0 for one place, 1 for all visible places alike

Each is a mean over positions of ordinary tokens. Beside it stands what even weights over all that
is visible would give: a head is of a kind only as far as it is above that (Clark et al. 2019,
arXiv:1906.04341).
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
    """Means by measure, (layers, heads) each, and the same for even weights over the keys that a
    layer sees, (layers,) each; of `cut` texts only the first `longest` tokens were read."""

    texts: int
    tokens: int
    cut: int
    longest: int
    means: dict[str, NDArray[np.float64]]
    even: dict[str, NDArray[np.float64]]

    def best(self, kind: str) -> tuple[int, int]:
        """Layer and head, from 1, with the most of it."""
        layer, head = np.unravel_index(self.means[kind].argmax(), self.means[kind].shape)
        return int(layer) + 1, int(head) + 1


def look_at_heads(subject: ProbedModel, texts: Sequence[str]) -> Heads:
    """Measure all heads on the first 128 tokens of each text.

    Raises:
        DataError: there is no text of two tokens.
    """
    tokenizer = subject.tokenizer
    length = min(LONGEST, subject.frame.length)
    room = length - sum(tokenizer.frame_margins())
    token_ids = tokenizer.encode_batch(texts)
    framed_ids = [tokenizer.frame(i[:room].tolist())[0] for i in token_ids if len(i) > 1]
    if not framed_ids:
        raise DataError("there is no text of two tokens to look at", found=f"{len(texts)} texts")
    sums, even, count = np.zeros(()), np.zeros(()), 0
    special = torch.tensor(sorted(tokenizer.special_ids))
    for batch, weights in attention(subject, framed_ids):
        counted = ~torch.isin(batch.tokens, special) & (batch.tokens >= 0)
        if batch.documents is not None:
            counted &= batch.documents > 0
        is_special = torch.isin(batch.tokens, special)
        # A weight may fall to 0 in one head, and not what the mask hides from all of them.
        visible = [(w > 0).any(1, keepdim=True) for w in weights]
        layers = [_sums(w, s, counted, is_special) for w, s in zip(weights, visible, strict=True)]
        even = even + np.stack([_sums(_even(s), s, counted, is_special)[0] for s in visible])
        sums = sums + np.stack(layers)
        count += int(counted.sum())
    means = sums / max(1, count)  # layers, heads, measures
    return Heads(
        len(framed_ids),
        count,
        sum(len(i) > room for i in token_ids),
        length,
        {name: means[:, :, i] for i, name in enumerate(MEASURES)},
        {name: even[:, i] / max(1, count) for i, name in enumerate(MEASURES)},
    )


def _even(visible: Tensor) -> Tensor:
    """(B, 1, T, T): the same weight for all that a layer's queries see."""
    return visible / visible.sum(-1, keepdim=True).clamp(min=1)


@torch.inference_mode()
def attention(
    subject: ProbedModel, ids: Sequence[list[int]]
) -> Iterator[tuple[Batch, list[Tensor]]]:
    """Batches of texts, one to a row, and the weights (B, H, T, T) of each layer."""
    lengths = np.array([len(token_ids) for token_ids in ids], np.int64)
    examples = EncodedExamples(framed(list(ids)), np.zeros(len(ids), np.int64))
    collation = Collation(pad=subject.tokenizer.pad or 0, last=False, alone=True)
    for numbers in by_length(lengths, "weights"):
        batch, _ = examples.batch(numbers, collation)
        layer_weights = look(subject.model, batch.to(subject.model.device)).weights
        yield batch, [weights.cpu() for weights in layer_weights]


@dataclass(frozen=True)
class TextAttention:
    """The attention weights of one text: the text that was read, whether it was cut, its tokens as
    pieces of it, and the weights (layers, heads, T, T)."""

    text: str
    cut: bool
    pieces: list[str]
    weights: NDArray[np.float32]


def one_text(subject: ProbedModel, text: str, most: int) -> TextAttention:
    """The first `most` tokens of `text`, special ones among them."""
    tokenizer = subject.tokenizer
    before, after = tokenizer.frame_margins()
    room = max(0, min(most, subject.frame.length) - before - after)
    ((token_ids, spans),) = tokenizer.encode_batch([text], offsets=True)
    ids, spans = token_ids[:room].tolist(), spans[:room].tolist()
    framed_ids = tokenizer.frame(ids)[0]
    names = tokenizer.tokens(framed_ids)
    inner = slice(before, len(names) - after)
    names[inner] = _pieces(text, spans, names[inner], [i in tokenizer.special_ids for i in ids])
    ((_, weights),) = attention(subject, [framed_ids])
    size = len(names)
    cut = len(token_ids) > room
    shown = text[: max((end for _, end in spans), default=0)] if cut else text
    stacked = np.stack([w[0, :, :size, :size].numpy() for w in weights])
    return TextAttention(shown, cut, names, stacked)


def _pieces(
    text: str, spans: Sequence[Sequence[int]], names: Sequence[str], special: Sequence[bool]
) -> list[str]:
    """The characters of `text` that each token stands for; the token's name where there are none. A
    character whose bytes are several tokens stands at the first of them, and `REST` at the
    others."""
    pieces, done = [], 0
    for (start, end), name, is_special in zip(spans, names, special, strict=True):
        piece = text[max(start, done) : end]
        if is_special or start == end:
            pieces.append(name)
        else:
            pieces.append(
                (piece.strip() or "".join(BLANKS.get(c, "␣") for c in piece)) if piece else REST
            )
        done = max(done, end)
    return pieces


def _sums(
    weights: Tensor, visible: Tensor, counted: Tensor, special: Tensor
) -> NDArray[np.float64]:
    """(H, measures): sums over the positions that are `counted` (B, T); `weights` (B, H, T, T), of
    keys that are `visible` (B, 1, T, T)."""
    size = weights.shape[-1]
    positions = torch.arange(size)
    apart = (positions[None] - positions[:, None]).abs().to(weights.dtype)  # query, key
    begins = torch.zeros(size, dtype=weights.dtype)
    begins[0] = 1.0
    most = visible.sum(-1).clamp(min=2).to(weights.dtype).log()
    logs = torch.where(weights > 0, weights, 1.0).log()
    measures = torch.stack(
        [
            torch.nn.functional.pad(weights.diagonal(-1, -2, -1), (1, 0)),
            torch.nn.functional.pad(weights.diagonal(1, -2, -1), (0, 1)),
            weights.diagonal(0, -2, -1),
            weights @ begins,
            (weights * special[:, None, None].to(weights.dtype)).sum(-1),
            (weights * apart).sum(-1),
            -(weights * logs).sum(-1) / most,
        ],
        dim=-1,
    )  # B, H, T, measures
    weighted = measures * counted[:, None, :, None].to(weights.dtype)
    return np.asarray(weighted.double().sum((0, 2)).numpy())
