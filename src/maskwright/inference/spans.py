"""What may stand in a gap of a text, as span corruption taught it (T5, arXiv:1910.10683, 3.1.4).

    encoder   The cat <X> on the <Y> .          decoder   start <X> sat <Y> mat </s>

A gap is filled by several tokens. They are found by a beam search that ends at the next sentinel or
at the end of the text; the probability of a span is that of its tokens and of the end behind them.

Letters: K beams, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from maskwright.inference.incremental import Reader, trained_length
from maskwright.inference.prepared import Prepared, answering
from maskwright.nn.transformer import Transformer

LONGEST = 16  # tokens of a span
BEAMS = 10


@dataclass(frozen=True)
class Span:
    """Ids that may fill a gap, at least one, and how likely they are."""

    ids: tuple[int, ...]
    probability: float


@torch.inference_mode()
def spans(
    model: Transformer | Prepared,
    source: Sequence[int],
    written: Sequence[int],
    stops: Collection[int],
    forbidden: Collection[int],
    top: int,
    *,
    cached: bool = True,
) -> list[Span]:
    """The likeliest `top` spans behind what the decoder has `written`, the best first.

    Args:
        model: a network, or one that was prepared before.
        source: what the encoder reads, with its sentinels.
        written: begins with the decoder's start and ends with the sentinel of the gap.
        stops: ids that end a span; they are in none.
        forbidden: further ids that are in none.
        cached: keep keys and values between steps; the same spans either way.
    """
    with answering(model, live=not cached) as ready:
        reader = Reader(ready, trained_length(ready.config), cached)
        reader.encode([source])
        return _search(reader, written, sorted(stops), sorted(forbidden), top)


def _search(
    reader: Reader,
    written: Sequence[int],
    stops: list[int],
    forbidden: list[int],
    top: int,
) -> list[Span]:
    beams, limit = max(BEAMS, 2 * top), reader.limit
    going: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[tuple[float, tuple[int, ...]]] = []
    room = LONGEST if limit is None else min(LONGEST, limit - len(written))
    for length in range(room + 1):
        texts = [[*written, *ids] for _, ids in going]
        logs = reader.next_scores(texts, room + 1 - length).float().log_softmax(-1)  # K, V
        if length:
            ends = logs[:, stops].logsumexp(-1).tolist()
            ended += [(total + end, ids) for (total, ids), end in zip(going, ends, strict=True)]
            ended = sorted(ended, reverse=True)[:top]
        logs[:, stops + forbidden] = -torch.inf
        totals = torch.tensor([total for total, _ in going])[:, None] + logs
        best = totals.flatten().topk(min(beams, totals.numel()))
        taken = [
            (total, *divmod(place, logs.shape[1]))
            for total, place in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            if total > -torch.inf
        ]
        going = [(total, (*going[row][1], token)) for total, row, token in taken]
        if not going or (len(ended) == top and ended[-1][0] >= going[0][0]):
            break
        reader.keep([row for _, row, _ in taken])
    return [Span(ids, float(torch.tensor(total).exp())) for total, ids in ended]
