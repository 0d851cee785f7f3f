"""Gaps in a text, written as T5 sentinels, and the spans that fill them.

    The cat <extra_id_0> on the <extra_id_1>.

Only this module treats sentinels in a text as special tokens; elsewhere they are ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from maskwright.base.errors import UsageError
from maskwright.model.inference.growing_rows import ContextReader, trained_length
from maskwright.model.inference.prepared import Prepared, answering
from maskwright.model.nn.transformer import Transformer
from maskwright.text.tokenizer.file.roles import SENTINEL
from maskwright.text.tokenizer.tokenizer import Tokenizer

LONGEST = 16  # tokens of a span
BEAMS = 10
WRITTEN = re.compile(f"({SENTINEL.pattern.replace('(', '(?:', 1)})")


@dataclass(frozen=True)
class TextWithGaps:
    """A text with gaps.

    Attributes:
        sentinels: the sentinels in order, as strings.
        ids: token ids of the text with sentinels.
        source: these ids with special tokens, the input of the encoder.
    """

    text: str
    sentinels: tuple[str, ...]
    ids: list[int]
    source: list[int]

    num_windows = 1  # a text with gaps is read as a whole

    @property
    def num_masks(self) -> int:
        return len(self.sentinels)

    @property
    def num_tokens(self) -> int:
        return len(self.source)


def gapped(tokenizer: Tokenizer, text: str) -> TextWithGaps | None:
    """Find the gaps in a text; None if it has none, or the tokenizer has no sentinels.

    Raises:
        UsageError: a sentinel that the tokenizer does not have, or one twice.
    """
    pieces = WRITTEN.split(text) if tokenizer.sentinels else [text]
    signs = tuple(pieces[1::2])
    if not signs:
        return None
    sentinel_ids = {tokenizer.vocabulary[i]: i for i in tokenizer.sentinels}
    for number, sign in enumerate(signs):
        if sign not in sentinel_ids or sign in signs[:number]:
            raise UsageError(
                "no such gap" if sign not in sentinel_ids else "one gap twice",
                where=text[:60],
                found=sign,
                wanted=f"each of {tokenizer.vocabulary[tokenizer.sentinels[0]]} … "
                f"{tokenizer.vocabulary[tokenizer.sentinels[-1]]} at most once",
            )
    ids: list[int] = []
    for number, piece in enumerate(pieces):
        if number % 2:
            ids.append(sentinel_ids[piece])
            continue
        # Tokens include the space before a word, so the gap stands for that space, too.
        piece = piece.removesuffix(" ") if number < len(pieces) - 1 else piece
        ids += tokenizer.encode(piece) if piece else []
    return TextWithGaps(text, signs, ids, tokenizer.frame(ids)[0])


def spelled(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Decode ids to text with visible sentinels."""
    pieces: list[str] = []
    run: list[int] = []
    for token_id in [*ids, -1]:
        if token_id >= 0 and token_id not in tokenizer.sentinels:
            run.append(token_id)
            continue
        pieces.append(tokenizer.decode(run).strip() if run else "")
        pieces.append(tokenizer.vocabulary[token_id] if token_id >= 0 else "")
        run = []
    return " ".join(filter(None, pieces))


@dataclass(frozen=True)
class SpanCandidate:
    """Ids of a span that may fill a gap, and their joint probability."""

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
) -> list[SpanCandidate]:
    """Return the `top` most likely spans after the decoder input `written`, the best first.

    Args:
        model: a network, prepared or not.
        source: ids of the encoder input, with sentinels.
        written: ids of the decoder input, from the start token to the sentinel of the gap.
        stops: ids that end a span and are not part of it.
        forbidden: further ids that no span contains.
    """
    with answering(model) as network:
        reader = ContextReader(network, trained_length(network.config), sources=[source])
        return _search(reader, written, sorted(stops), sorted(forbidden), top)


def _search(
    reader: ContextReader,
    written: Sequence[int],
    stops: list[int],
    forbidden: list[int],
    top: int,
) -> list[SpanCandidate]:
    """Beam search for spans of at most `LONGEST` ids."""
    beams, limit = max(BEAMS, 2 * top), reader.limit
    open_spans: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended_spans: list[tuple[float, tuple[int, ...]]] = []
    max_length = LONGEST if limit is None else min(LONGEST, limit - len(written))
    for length in range(max_length + 1):
        texts = [[*written, *ids] for _, ids in open_spans]
        logs = reader.next_scores(texts, max_length + 1 - length).float().log_softmax(-1)  # K, V
        if length:
            end_logs = logs[:, stops].logsumexp(-1).tolist()
            pairs = zip(open_spans, end_logs, strict=True)
            ended_spans += [(total + end, ids) for (total, ids), end in pairs]
            ended_spans = sorted(ended_spans, reverse=True)[:top]
        logs[:, stops + forbidden] = -torch.inf
        totals = torch.tensor([total for total, _ in open_spans])[:, None] + logs
        best = totals.flatten().topk(min(beams, totals.numel()))
        continuations = [
            (total, *divmod(flat_index, logs.shape[1]))
            for total, flat_index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            if total > -torch.inf
        ]
        open_spans = [(total, (*open_spans[row][1], token)) for total, row, token in continuations]
        if not open_spans or (len(ended_spans) == top and ended_spans[-1][0] >= open_spans[0][0]):
            break
        reader.keep([row for _, row, _ in continuations])
    return [SpanCandidate(ids, float(torch.tensor(total).exp())) for total, ids in ended_spans]
