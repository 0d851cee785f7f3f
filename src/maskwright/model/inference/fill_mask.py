"""Mask filling: the most likely tokens for each mask string in a text, or the most likely spans for
each sentinel of a T5.

    masked_text(model, text)                tokenize
    read_masks(model, network, [masked])    compute
    spelled_masks(model, masked, holes)     decode

`fill` does all three with a network and a tokenizer that are not of an opened model. Only this
module treats the mask string of a tokenizer as the mask token; elsewhere it is ordinary text. Each
mask is predicted while the others stay masked, so probabilities of two masks are not joint ones.

    encoder            scores at the position of the mask
    encoder-decoder    the decoder gets the same text after its start token, as in transformers;
                       scores at the decoder position that predicts the token at the mask
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from maskwright.base.errors import IncompatibleError, Note, UsageError, ignore, shorten
from maskwright.model.inference.likelihood import require_length
from maskwright.model.inference.prepared import Prepared, answering, finite
from maskwright.model.inference.scores import states
from maskwright.model.inference.text_generation import (
    TextWithGaps,
    gapped,
    non_text_ids,
    require_room,
    spans,
)
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.model.opening import special_tokens
from maskwright.model.opening.folders import Model
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.merging import CONTINUATION
from maskwright.text.tokenizer.unknown import OTHER_MODEL


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
    words: Tokenizer,
    texts: Sequence[str],
    *,
    top: int = 5,
    shift: int = 0,
    start: int | None = None,
) -> list[list[Hole]]:
    """Predict the masks of each text, in order.

    Args:
        model: a network, which is best prepared for many texts.
        words: the tokenizer.
        texts: texts that contain the tokenizer's mask string at least once.
        top: number of candidates for each mask.
        shift: how many positions before a mask its scores are read (1 for the hybrid objective).
        start: id of the decoder start token of an encoder-decoder model; None: use only its
            encoder, as trained by `masked`.

    Raises:
        IncompatibleError: the model is not an encoder with a vocabulary head, or the tokenizer has
            no mask token.
        UsageError: a text without a mask or too long for the model, or `top` below 1.
    """
    inputs = [encoded(model.config, words, text) for text in texts]
    predictions = likeliest(model, words, inputs, top=top, shift=shift, start=start)
    return [spelled(words, text, holes) for text, holes in zip(inputs, predictions, strict=True)]


@dataclass(frozen=True)
class TextWithMasks:
    """A tokenized text with masks.

    Attributes:
        pieces: the ids between the masks.
        windows: the model inputs.
        targets: the ids that may fill a mask; empty: all.
    """

    text: str
    pieces: list[list[int]]
    windows: list[Window]
    targets: tuple[int, ...] = ()

    @property
    def num_masks(self) -> int:
        return len(self.pieces) - 1

    @property
    def num_windows(self) -> int:
        return len(self.windows)

    @property
    def num_tokens(self) -> int:
        return sum(len(window.ids) for window in self.windows)


MaskedText = TextWithMasks | TextWithGaps


@dataclass(frozen=True)
class HolePrediction:
    """The most likely tokens for the mask at `position` among the ids with special tokens, the best
    first."""

    position: int
    ids: list[int]
    probabilities: list[float]


MASK_SPELLINGS = ("[MASK]", "<mask>")


def with_mask_tokens(text: str, *tokens: str) -> str:
    """Return the text with `[MASK]` or `<mask>` spelled as the model's own mask token, or as the
    sentinels of a T5 in turn.

    Raises:
        UsageError: it has two kinds of mask token, or more masks than there are sentinels.
    """
    kinds = [spelling for spelling in dict.fromkeys((*MASK_SPELLINGS, *tokens)) if spelling in text]
    if not kinds or kinds[0] not in MASK_SPELLINGS:
        return text
    pieces = text.split(kinds[0])
    if len(kinds) > 1 or 1 < len(tokens) < len(pieces) - 1:
        raise UsageError(
            "two kinds of mask token" if len(kinds) > 1 else "more masks than the model has names",
            where=shorten(text, 60),
            found=" and ".join(kinds) if len(kinds) > 1 else len(pieces) - 1,
            wanted="one kind" if len(kinds) > 1 else f"at most {len(tokens)}",
            do=f"write {tokens[0]} for a word to be found",
        )
    return "".join(itertools.chain(*zip(pieces, itertools.cycle(tokens)))).removesuffix(
        tokens[(len(pieces) - 1) % len(tokens)]
    )


def encoded(
    config: TransformerConfig, words: Tokenizer, text: str, *, windows: bool = False
) -> TextWithMasks:
    """Tokenize a text for `likeliest`; errors as for `fill`. With `windows`, each mask of a text
    that is too long is predicted from the window around it."""
    _require_filler(config, words)
    assert words.mask is not None
    mask_token = words.tokens([words.mask])[0]
    text = with_mask_tokens(text, mask_token)
    pieces = _pieces(words, mask_token, text)
    ids = _joined(pieces, words.mask)
    if not windows:
        count, remedy = len(words.frame(ids)[0]), "shorten the text around the hole"
        require_length(text, count, config.longest, remedy)
    return TextWithMasks(text, pieces, list(_windows(words, ids, config.longest)))


def likeliest(
    model: Transformer | Prepared,
    words: Tokenizer,
    texts: Sequence[TextWithMasks],
    *,
    top: int = 5,
    shift: int = 0,
    start: int | None = None,
) -> list[list[HolePrediction]]:
    """Return the most likely token ids of each mask; arguments and errors as for `fill`."""
    _require_candidates(top)
    _require_filler(model.config, words)
    if model.config.decoder is None:
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
            shares = scores[used].softmax(-1)
            best = shares.topk(min(top, scores.shape[1]))
            for i, row, probabilities, ids in zip(
                used, shares, best.values.tolist(), best.indices.tolist(), strict=True
            ):
                number, window, hole = owners[i]
                if targets := texts[number].targets:
                    best_targets = row[list(targets)].topk(min(top, len(targets)))
                    probabilities = best_targets.values.tolist()
                    ids = [targets[n] for n in best_targets.indices.tolist()]
                predictions[number][hole] = HolePrediction(
                    positions[i] + window.begin, ids, probabilities
                )
    return [[by_hole[hole] for hole in sorted(by_hole)] for by_hole in predictions]


def spelled(words: Tokenizer, text: TextWithMasks, holes: Sequence[HolePrediction]) -> list[Hole]:
    """Convert the predictions of a text to tokens, each with the text that it completes."""
    filled = []
    for number, hole in enumerate(holes):
        texts = [_filled(words, text.pieces, number, token) for token in hole.ids]
        candidates = zip(hole.ids, words.tokens(hole.ids), hole.probabilities, texts, strict=True)
        filled.append(
            Hole(hole.position, tuple(TokenCandidate(*candidate) for candidate in candidates))
        )
    return filled


def _require_candidates(top: int) -> None:
    if top < 1:
        raise UsageError("no candidate to show", where="top", found=top, wanted="1 or more")


def _require_filler(config: TransformerConfig, words: Tokenizer) -> None:
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


def _windows(words: Tokenizer, ids: Sequence[int], longest: int | None) -> Iterator[Window]:
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


def _pieces(words: Tokenizer, sign: str, text: str) -> list[list[int]]:
    """Return the ids between the mask strings `sign` of `text`."""
    pieces = text.split(sign)
    if len(pieces) == 1:
        raise UsageError(
            "the text contains no mask token",
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


def _scores(
    model: Prepared,
    words: Tokenizer,
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


def _filled(words: Tokenizer, pieces: Sequence[list[int]], number: int, token: int) -> str:
    """Return the text with mask `number` filled and the other mask strings kept."""
    assert words.mask is not None
    sign = words.tokens([words.mask])[0]
    filled = [*pieces[number], token, *pieces[number + 1]]
    id_pieces = [*pieces[:number], filled, *pieces[number + 2 :]]
    space = "" if words.kind == "character" else " "
    return f"{space}{sign}{space}".join(words.decode(ids) for ids in id_pieces).strip()


# --------------------------------------------------------------------------- of an opened model
def masked_text(
    model: Model, text: str, *, windows: bool = False, targets: Sequence[str] = ()
) -> MaskedText:
    """Encode a text for `read_masks`.

    Args:
        targets: the tokens to choose from; of a text that is no token, its first token is meant, as
            in transformers. Empty: the whole vocabulary.
        windows: predict each mask of a text that exceeds the model's context in a window around
            that mask. Sentinels of a text are always filled in one pass.

    Raises:
        UsageError: the text has no mask, or exceeds the model's context; a target without a token,
            or targets for sentinels.
        IncompatibleError: the model cannot fill masks.
    """
    tokenizer = model.tokenizer
    sentinels = tokenizer.sentinels
    if model.num_stacks == 2 and sentinels and model.conventions.decoder_trained:
        if tokenizer.mask is None:
            text = with_mask_tokens(text, *(tokenizer.vocabulary[n] for n in sentinels))
        if (gaps := gapped(tokenizer, text)) is not None:
            require_room(model, gaps.source, gaps.text, "shorten the text around the gaps")
            if targets:
                raise UsageError("a gap is filled by spans, not by targets", where="targets")
            return gaps
        if tokenizer.mask is None:
            first_sentinel = tokenizer.vocabulary[sentinels[0]]
            raise UsageError(
                "the text has no gap",
                where=text[:60],
                wanted=f"{first_sentinel} where something is to be found",
                do=f"write {first_sentinel} for the first gap, and so on",
            )
    masked = encoded(model.config, tokenizer, text, windows=windows)
    return replace(masked, targets=tuple(_target_ids(tokenizer, targets)))


def _target_ids(tokenizer: Tokenizer, targets: Sequence[str]) -> dict[int, None]:
    """Return the different ids of the targets, in order."""
    ids: dict[int, None] = {}
    for target in targets:
        number = tokenizer.id(target)
        target_ids = [*tokenizer.encode(target)[:1]] if number is None else [number]
        if not target_ids:
            raise UsageError("a target without a token", where="targets", found=repr(target)[:60])
        ids[int(target_ids[0])] = None
    return ids


def read_masks(
    model: Model, network: Transformer | Prepared, texts: Sequence[MaskedText], top: int
) -> list[list[HolePrediction] | list[Hole]]:
    """Return the predictions of `network`, that of `model`, for each mask of each text. The gaps of
    a T5 are filled from left to right, each conditioned on the best spans before it. Nothing is
    tokenized here. Raises a `UsageError` if `top` is below 1."""
    with_masks = [text for text in texts if isinstance(text, TextWithMasks)]
    start = model.decoder_start if model.tokenizer.mask is not None else None
    shift = model.conventions.prediction_offset
    predictions = iter(
        likeliest(network, model.tokenizer, with_masks, top=top, shift=shift, start=start)
        if with_masks
        else ()
    )
    return [
        next(predictions)
        if isinstance(text, TextWithMasks)
        else _filled_gaps(model, network, text, top)
        for text in texts
    ]


def _filled_gaps(
    model: Model, network: Transformer | Prepared, gaps: TextWithGaps, top: int
) -> list[Hole]:
    """Predict the `top` most probable spans for each gap, left to right; a candidate's `id` is the
    first token id of its span."""
    _require_candidates(top)
    tokenizer, start = model.tokenizer, model.decoder_start
    assert start is not None  # the decoder was trained
    end = special_tokens.vocabulary(tokenizer).end
    stops = {*tokenizer.sentinels, *(() if end is None else (end,))}
    forbidden = non_text_ids(model) - stops
    decoder_ids, holes = [start], []
    with answering(network) as prepared_network:
        for sentinel in gaps.sentinels:
            sentinel_id = tokenizer.id(sentinel)
            assert sentinel_id is not None
            decoder_ids.append(sentinel_id)
            candidates = spans(prepared_network, gaps.source, decoder_ids, stops, forbidden, top)
            filled = []
            for span in candidates:
                text = tokenizer.decode(list(span.ids)).strip()
                whole_text = gaps.text.replace(sentinel, text)
                filled.append(TokenCandidate(span.ids[0], text, span.probability, whole_text))
            holes.append(Hole(gaps.source.index(sentinel_id), tuple(filled)))
            decoder_ids += candidates[0].ids if candidates else ()
    return holes


def spelled_masks(
    model: Model, text: MaskedText, predictions: Sequence[Any], note: Note = ignore
) -> list[Hole]:
    """Decode the predictions of `read_masks` for one text. If the text has characters that the
    tokenizer does not know, the original text is kept around the candidates, and `note` is called
    with findings about them."""
    if isinstance(text, TextWithGaps):
        return list(predictions)
    tokenizer = model.tokenizer
    holes = spelled(tokenizer, text, predictions)
    assert tokenizer.mask is not None
    mask_token = tokenizer.tokens([tokenizer.mask])[0]
    pieces = text.text.split(mask_token)
    unknown = tokenizer.unknown_in(piece for piece in pieces if piece)
    for finding in unknown.findings(OTHER_MODEL):
        note(finding)
    if not unknown.unknown:
        return holes
    return [
        _in_original_text(tokenizer, hole, mask_token.join(pieces[:n]), mask_token.join(pieces[n:]))
        for n, hole in enumerate(holes, start=1)
    ]


def _in_original_text(tokenizer: Tokenizer, hole: Hole, before: str, after: str) -> Hole:
    """Return `hole` with the original text before and after it in each candidate's `text`."""

    def full_text(candidate: TokenCandidate) -> str:
        word = tokenizer.decode([candidate.id]).strip() or candidate.token
        if tokenizer.kind == "wordpiece" and word.startswith(CONTINUATION):
            return before.rstrip() + word.removeprefix(CONTINUATION) + after
        return before + word + after

    return replace(hole, candidates=tuple(replace(c, text=full_text(c)) for c in hole.candidates))
