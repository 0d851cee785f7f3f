"""Fill the holes of a text: the likeliest tokens for each mask string in it.

Only here is the mask string of a tokenizer read as the mask token; everywhere else it is ordinary
text. Every hole is judged with the others still open, so the probabilities of two holes are not
those of a pair. The tokenizer is used through `FillTokenizer`; no tokenizer is known by name here.

    one stack     the encoder reads the text                      read off at the hole
    two stacks    it does, and the decoder the same text behind   read off where the decoder would
                  its start token, as transformers does  write what stands at the hole
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
) -> list[SpanCandidate]:
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
        reader = ContextReader(ready, trained_length(ready.config), cached)
        reader.encode([source])
        return _search(reader, written, sorted(stops), sorted(forbidden), top)


def _search(
    reader: ContextReader,
    written: Sequence[int],
    stops: list[int],
    forbidden: list[int],
    top: int,
) -> list[SpanCandidate]:
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
        continuations = [
            (total, *divmod(flat_index, logs.shape[1]))
            for total, flat_index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            if total > -torch.inf
        ]
        going = [(total, (*going[row][1], token)) for total, row, token in continuations]
        if not going or (len(ended) == top and ended[-1][0] >= going[0][0]):
            break
        reader.keep([row for _, row, _ in continuations])
    return [SpanCandidate(ids, float(torch.tensor(total).exp())) for total, ids in ended]


class FillTokenizer(Protocol):
    """What filling asks of a tokenizer."""

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
    """One way to fill a hole; `text` is the whole text with this hole filled."""

    id: int
    token: str
    probability: float
    text: str


@dataclass(frozen=True)
class Hole:
    """One hole, at `position` among the framed ids, with its candidates, likeliest first."""

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
    """The holes of each text, in order.

    Args:
        model: prepared, where much is asked of it; else its weights are read as they lie.
        texts: each with the tokenizer's mask string at least once.
        top: how many candidates each hole gets.
        shift: how many places before a hole it is read off (1 for a model of the hybrid objective).
        start: what the decoder of a model of two stacks begins with.
        alone: the encoder of such a model fills the holes, since it alone was trained (`masked`).
        windows: of a text longer than the model's positions each hole is judged in the window
            around it; else such a text is refused.

    Raises:
        IncompatibleError: the model is no encoder with a vocabulary head, or the tokenizer has no
            mask token.
        UsageError: a text without a hole, or longer than the model's positions, or no candidate; or
            an unknown decoder start token, of two stacks.
    """
    read = [encoded(model.config, words, text, windows=windows) for text in texts]
    predictions = likeliest(model, words, read, top=top, shift=shift, start=start, alone=alone)
    return [spelled(words, one, holes) for one, holes in zip(read, predictions, strict=True)]


@dataclass(frozen=True)
class TextWithMasks:
    """A text with holes, as ids.

    Attributes:
        pieces: those between its holes.
        windows: what is read of it.
    """

    pieces: list[list[int]]
    windows: list[Window]


@dataclass(frozen=True)
class HolePrediction:
    """The likeliest tokens for a hole at `position` among the framed ids, the best first."""

    position: int
    ids: list[int]
    probabilities: list[float]


def encoded(
    config: TransformerConfig, words: FillTokenizer, text: str, *, windows: bool = False
) -> TextWithMasks:
    """A text as `likeliest` reads it; args and errors as `fill`."""
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
    """The likeliest tokens of each hole, as ids. Args and errors as `fill`."""
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
    with answering(model, live=True) as ready:
        for portion in states(ready, rows, segments, start=start):
            positions, scores = _scores(
                ready, words, portion.tokens, portion.states, shift, portion.lengths
            )
            owners = [
                (*windows[n], windows[n][1].first + nth)
                for n in portion.numbers
                for nth in range(rows[n].count(words.mask))
            ]
            chosen = [i for i, (_, window, hole) in enumerate(owners) if hole in window.holes]
            best = scores[chosen].softmax(-1).topk(min(top, scores.shape[1]))
            for i, chances, ids in zip(
                chosen, best.values.tolist(), best.indices.tolist(), strict=True
            ):
                number, window, hole = owners[i]
                predictions[number][hole] = HolePrediction(
                    positions[i] + window.begin, ids, chances
                )
    return [[holes[nth] for nth in sorted(holes)] for holes in predictions]


def spelled(
    words: FillTokenizer, text: TextWithMasks, holes: Sequence[HolePrediction]
) -> list[Hole]:
    """The holes of a text with the tokens as words, and the text that each makes of it."""
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
    """A part of a text, from id `begin` on, framed; the holes in it are numbered from `first` on,
    and those of `holes` are filled by it."""

    ids: list[int]
    segments: list[int]
    begin: int
    first: int
    holes: range


def _windows(words: FillTokenizer, ids: Sequence[int], longest: int | None) -> Iterator[Window]:
    """The whole text, or of one that is too long a window around each hole."""
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
        frame = words.frame(list(ids[begin : begin + room]))
        yield Window(*frame, begin, first_hole, range(number, number + 1))


def _pieces(words: FillTokenizer, sign: str, text: str) -> list[list[int]]:
    """The ids between the holes of `text`."""
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
    """The position of every hole in its row, and its scores, of concatenated rows."""
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
    """The text with hole `number` filled, the other holes still shown."""
    assert words.mask is not None
    sign = words.tokens([words.mask])[0]
    run = [*pieces[number], token, *pieces[number + 1]]
    runs = [*pieces[:number], run, *pieces[number + 2 :]]
    space = "" if words.kind == "character" else " "
    return f"{space}{sign}{space}".join(words.decode(ids) for ids in runs).strip()
