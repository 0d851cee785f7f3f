"""Mask filling: the most likely tokens for each mask string in a text.

Only this module treats the mask string of a tokenizer as the mask token; elsewhere it is ordinary
text. Each mask is predicted while the others stay masked, so probabilities of two masks are not
joint probabilities.

    encoder            scores at the position of the mask
    encoder-decoder    the decoder gets the same text after its start token, as in transformers;
                       scores at the decoder position that predicts the token at the mask
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.model.inference.engine import states
from maskwright.model.inference.growing_rows import ContextReader, trained_length
from maskwright.model.inference.prepared import Prepared, answering, finite
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer

LONGEST = 16  # tokens of a span
BEAMS = 10


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
    *,
    cached: bool = True,
) -> list[SpanCandidate]:
    """Return the `top` most likely spans after the decoder input `written`, the best first.

    Args:
        model: a network, prepared or not.
        source: ids of the encoder input, with sentinels.
        written: ids of the decoder input, from the start token to the sentinel of the gap.
        stops: ids that end a span and are not part of it.
        forbidden: further ids that no span contains.
        cached: keep keys and values between steps; does not change the spans.
    """
    with answering(model, live=not cached) as network:
        reader = ContextReader(network, trained_length(network.config), cached)
        reader.encode([source])
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


class FillTokenizer(Protocol):
    """The interface of a tokenizer that mask filling needs."""

    @property
    def kind(self) -> str: ...
    @property
    def mask(self) -> int | None: ...
    @property
    def vocabulary_size(self) -> int: ...
    def encode(self, text: str) -> list[int]: ...
    def frame(
        self, ids: list[int], second_ids: list[int] | None = None, /
    ) -> tuple[list[int], list[int]]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def tokens(self, ids: Sequence[int]) -> list[str]: ...


@dataclass(frozen=True)
class TokenCandidate:
    """One candidate for a mask; `text` is the whole text with this mask filled."""

    id: int
    token: str
    probability: float
    text: str


@dataclass(frozen=True)
class Hole:
    """One mask, at `position` among the ids with special tokens; most likely candidates first."""

    position: int
    candidates: tuple[TokenCandidate, ...]


def fill(
    model: Transformer | Prepared,
    words: FillTokenizer,
    texts: Sequence[str],
    *,
    top: int = 5,
    shift: int = 0,
    start: int | None = None,
    alone: bool = False,
    windows: bool = False,
) -> list[list[Hole]]:
    """Predict the masks of each text, in order.

    Args:
        model: a network, which is best prepared for many texts.
        words: the tokenizer.
        texts: texts that contain the tokenizer's mask string at least once.
        top: number of candidates for each mask.
        shift: how many positions before a mask its scores are read (1 for the hybrid objective).
        start: id of the decoder start token of an encoder-decoder model.
        alone: use only the encoder of such a model, as trained by `masked`.
        windows: predict each mask of a text that is too long for the model from the window around
            it, instead of raising an error.

    Raises:
        IncompatibleError: the model is not an encoder with a vocabulary head, or the tokenizer has
            no mask token.
        UsageError: a text without a mask or too long for the model, `top` below 1, or no `start`
            for an encoder-decoder model.
    """
    inputs = [encoded(model.config, words, text, windows=windows) for text in texts]
    predictions = likeliest(model, words, inputs, top=top, shift=shift, start=start, alone=alone)
    return [spelled(words, text, holes) for text, holes in zip(inputs, predictions, strict=True)]


@dataclass(frozen=True)
class TextWithMasks:
    """A tokenized text with masks.

    Attributes:
        pieces: the ids between the masks.
        windows: the model inputs.
    """

    pieces: list[list[int]]
    windows: list[Window]


@dataclass(frozen=True)
class HolePrediction:
    """The most likely tokens for the mask at `position` among the ids with special tokens, the best
    first."""

    position: int
    ids: list[int]
    probabilities: list[float]


def encoded(
    config: TransformerConfig, words: FillTokenizer, text: str, *, windows: bool = False
) -> TextWithMasks:
    """Tokenize a text for `likeliest`; arguments and errors as for `fill`."""
    _require_filler(config, words)
    assert words.mask is not None
    pieces = _pieces(words, words.tokens([words.mask])[0], text)
    ids = _joined(pieces, words.mask)
    if not windows:
        _require_room(config, text, len(words.frame(ids)[0]))
    return TextWithMasks(pieces, list(_windows(words, ids, config.longest)))


def likeliest(
    model: Transformer | Prepared,
    words: FillTokenizer,
    texts: Sequence[TextWithMasks],
    *,
    top: int = 5,
    shift: int = 0,
    start: int | None = None,
    alone: bool = False,
) -> list[list[HolePrediction]]:
    """Return the most likely token ids of each mask; arguments and errors as for `fill`."""
    if top < 1:
        raise UsageError("no candidate to show", where="top", found=top, wanted="1 or more")
    _require_filler(model.config, words)
    if model.config.decoder is not None and start is None and not alone:
        raise UsageError(
            "decoder start token unknown",
            where="start",
            wanted="the id of a token",
            do="give the folder's decoder_start_token_id, or alone=True for the encoder's answer",
        )
    if model.config.decoder is None or alone:
        start = None
    windows = [(number, window) for number, text in enumerate(texts) for window in text.windows]
    rows, segments = [text.ids for _, text in windows], [text.segments for _, text in windows]
    predictions: list[dict[int, HolePrediction]] = [{} for _ in texts]
    with answering(model, live=True) as network:
        for portion in states(network, rows, segments, start=start):
            positions, scores = _scores(
                network, words, portion.tokens, portion.states, shift, portion.lengths
            )
            owners = [
                (*windows[n], windows[n][1].first + offset)
                for n in portion.numbers
                for offset in range(rows[n].count(words.mask))
            ]
            used = [i for i, (_, window, hole) in enumerate(owners) if hole in window.holes]
            best = scores[used].softmax(-1).topk(min(top, scores.shape[1]))
            for i, probabilities, ids in zip(
                used, best.values.tolist(), best.indices.tolist(), strict=True
            ):
                number, window, hole = owners[i]
                predictions[number][hole] = HolePrediction(
                    positions[i] + window.begin, ids, probabilities
                )
    return [[by_hole[hole] for hole in sorted(by_hole)] for by_hole in predictions]


def spelled(
    words: FillTokenizer, text: TextWithMasks, holes: Sequence[HolePrediction]
) -> list[Hole]:
    """Convert the predictions of a text to tokens, each with the text that it completes."""
    filled = []
    for number, hole in enumerate(holes):
        texts = [_filled(words, text.pieces, number, token) for token in hole.ids]
        candidates = zip(hole.ids, words.tokens(hole.ids), hole.probabilities, texts, strict=True)
        filled.append(
            Hole(hole.position, tuple(TokenCandidate(*candidate) for candidate in candidates))
        )
    return filled


def _require_filler(config: TransformerConfig, words: FillTokenizer) -> None:
    if config.encoder is None or config.vocabulary_head is None or words.mask is None:
        writes = config.decoder is not None and config.vocabulary_head is not None
        masked = "use a model trained by the masked objective"
        raise IncompatibleError(
            "filling holes needs an encoder with a vocabulary head and a mask token",
            found="no mask token" if words.mask is None else "another kind of model",
            do=f"let this one write, with maskwright generate, or {masked}" if writes else masked,
        )


@dataclass(frozen=True)
class Window:
    """A model input: the part of a text from id `begin` on, with special tokens. Its first mask is
    number `first` of the text; it is used to predict the masks with the numbers `holes`."""

    ids: list[int]
    segments: list[int]
    begin: int
    first: int
    holes: range


def _windows(words: FillTokenizer, ids: Sequence[int], longest: int | None) -> Iterator[Window]:
    """Yield the whole text, or a window around each mask if the text is longer than `longest`."""
    framed_ids, segments = words.frame(list(ids))
    mask_positions = [
        mask_position for mask_position, number in enumerate(ids) if number == words.mask
    ]
    if longest is None or len(framed_ids) <= longest:
        yield Window(framed_ids, segments, 0, 0, range(len(mask_positions)))
        return
    room = max(1, longest - (len(framed_ids) - len(ids)))
    for number, mask_position in enumerate(mask_positions):
        begin = min(max(0, mask_position - room // 2), len(ids) - room)
        first_hole = sum(other < begin for other in mask_positions)
        window_input = words.frame(list(ids[begin : begin + room]))
        yield Window(*window_input, begin, first_hole, range(number, number + 1))


def _pieces(words: FillTokenizer, sign: str, text: str) -> list[list[int]]:
    """Return the ids between the mask strings `sign` of `text`."""
    pieces = text.split(sign)
    if len(pieces) == 1:
        raise UsageError(
            "the text has no hole",
            where=text[:60],
            wanted=f"{sign} where a word is",
            do=f"write {sign} for the word to be found",
        )
    if words.kind in ("byte-bpe", "unigram"):
        # Their tokens carry the space before a word, so the hole stands for it too.
        pieces = [piece.removesuffix(" ") for piece in pieces[:-1]] + pieces[-1:]
    return [words.encode(piece) if piece else [] for piece in pieces]


def _joined(pieces: Sequence[Sequence[int]], sign: int) -> list[int]:
    ids = list(pieces[0])
    for piece in pieces[1:]:
        ids += [sign, *piece]
    return ids


def _require_room(config: TransformerConfig, text: str, count: int) -> None:
    longest = config.longest
    if longest is not None and count > longest:
        raise UsageError(
            "the text is longer than the model reads",
            where=text[:60],
            found=f"{count} tokens",
            wanted=f"at most {longest}",
            do="shorten the text around the hole",
        )


def _scores(
    model: Prepared,
    words: FillTokenizer,
    tokens: Int[Tensor, " N"],
    hidden: Float[Tensor, "N D"],
    shift: int,
    lengths: Sequence[int],
) -> tuple[list[int], Float[Tensor, "H V"]]:
    """Return the position of each mask in its row and its scores, from concatenated rows."""
    assert words.mask is not None  # or there were no holes
    holes = torch.eq(tokens, words.mask).nonzero()[:, 0]
    ends = torch.tensor(lengths).cumsum(0)
    begins = (ends - torch.tensor(lengths))[torch.searchsorted(ends, holes.cpu(), right=True)]
    positions = holes.cpu() - begins
    if shift and int(positions.min()) < shift:
        raise UsageError(
            "nothing stands before the hole, and the model is read off there",
            where="text",
            wanted="a word before the mask",
        )
    scores = finite(model.logits(hidden[holes - shift]).float()[:, : words.vocabulary_size])
    return positions.tolist(), scores


def _filled(words: FillTokenizer, pieces: Sequence[list[int]], number: int, token: int) -> str:
    """Return the text with mask `number` filled and the other mask strings kept."""
    assert words.mask is not None
    sign = words.tokens([words.mask])[0]
    filled = [*pieces[number], token, *pieces[number + 1]]
    id_pieces = [*pieces[:number], filled, *pieces[number + 2 :]]
    space = "" if words.kind == "character" else " "
    return f"{space}{sign}{space}".join(words.decode(ids) for ids in id_pieces).strip()
