"""Texts in, texts out: masks are filled, texts continued, and their likelihoods computed.

All take a `Model` that was opened (`model/opening/open.py`) and a list of texts, and answer in
their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.base.findings import Note, ignore
from maskwright.model.checkpoint.conventions import Conventions
from maskwright.model.inference import fill_mask, likelihood
from maskwright.model.inference.beam import beam_steps
from maskwright.model.inference.decode import Sampling, require_writer
from maskwright.model.inference.fill_mask import (
    Hole,
    HolePrediction,
    TextWithMasks,
    TokenCandidate,
    spans,
)
from maskwright.model.inference.gaps import TextWithGaps, gapped, spelled
from maskwright.model.inference.generation import Generation, Prompt
from maskwright.model.inference.growing_rows import trained_length
from maskwright.model.inference.likelihood import require_decoder
from maskwright.model.inference.prepared import Prepared, answering
from maskwright.model.inference.steps import Steps, finished
from maskwright.model.inference.stream import BYTE, Decode, GrowingText, Piece, require_stop, stream
from maskwright.model.nn.transformer import Transformer
from maskwright.model.opening import special_tokens
from maskwright.model.opening.model import Model
from maskwright.model.opening.special_tokens import opening
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.wordpiece import CONTINUATION
from maskwright.text.tokenizer.unknown import OTHER_MODEL


def fill_masks(
    model: Model,
    texts: Sequence[str],
    *,
    top: int = 5,
    note: Note = ignore,
    prepared: Prepared | None = None,
    windows: bool = False,
) -> list[list[Hole]]:
    """The likeliest `top` tokens for every mask of each text, in its order; of a model that was
    trained to fill gaps (T5) the likeliest spans for every sentinel, such as <extra_id_0>, each
    given the best for those before it.

    Args:
        note: gets the finding that much of a text is unknown to the tokenizer.
        prepared: the network, if it was prepared before.
        windows: of a text longer than the model reads each mask is judged in the window around it;
            the gaps of a text are always filled at once.

    Raises:
        UsageError: a text without a mask, or longer than the model reads.
        IncompatibleError: the model fills none.
    """
    masked = [masked_text(model, text, windows=windows) for text in texts]
    likeliest = read_masks(model, masked, top=top, prepared=prepared)
    return [spelled_masks(model, *pair, note=note) for pair in zip(masked, likeliest, strict=True)]


@dataclass(frozen=True)
class MaskedText:
    """A text with masks, or with gaps, as ids.

    Attributes:
        num_windows, num_tokens: in how many windows it is read, and how many tokens they have.
    """

    text: str
    masks: TextWithMasks | None
    gaps: TextWithGaps | None
    num_windows: int
    num_tokens: int

    @property
    def num_masks(self) -> int:
        """How many masks or gaps it has."""
        if self.gaps is not None:
            return len(self.gaps.signs)
        assert self.masks is not None
        return len(self.masks.pieces) - 1


def masked_text(model: Model, text: str, *, windows: bool = False) -> MaskedText:
    """A text as `read_masks` reads it; args and errors as `fill_masks`."""
    if _fills_gaps(model) and (gaps := _gapped(model, text)) is not None:
        source = model.tokenizer.frame(gaps.ids)[0]
        _require_room(model, source, gaps.text, "shorten the text around the gaps")
        return MaskedText(text, None, gaps, 1, len(source))
    masks = fill_mask.encoded(model.config, model.tokenizer, text, windows=windows)
    tokens = sum(len(window.ids) for window in masks.windows)
    return MaskedText(text, masks, None, len(masks.windows), tokens)


def read_masks(
    model: Model, texts: Sequence[MaskedText], *, top: int = 5, prepared: Prepared | None = None
) -> list[list[HolePrediction] | list[Hole]]:
    """The network's predictions for each mask of each text, for `spelled_masks`; nothing is
    tokenized here. Args and errors as `fill_masks`."""
    reader = model.network if prepared is None else prepared
    start = model.decoder_start if model.tokenizer.mask is not None else None
    with_masks = [text.masks for text in texts if text.masks is not None]
    likeliest = iter(
        fill_mask.likeliest(
            reader,
            model.tokenizer,
            with_masks,
            top=top,
            shift=model.conventions.prediction_offset,
            start=start,
            alone=start is None,
        )
        if with_masks
        else ()
    )
    with answering(reader) as network:
        return [
            next(likeliest) if text.gaps is None else _fill_gaps(model, network, text.gaps, top)
            for text in texts
        ]


def spelled_masks(
    model: Model, text: MaskedText, likeliest: Sequence[Any], note: Note = ignore
) -> list[Hole]:
    """The holes of a text with their words; `note` as of `fill_masks`."""
    if text.masks is None:
        return list(likeliest)
    holes = fill_mask.spelled(model.tokenizer, text.masks, likeliest)
    return _with_unknown(model, text.text, holes, note)


def _fills_gaps(model: Model) -> bool:
    """Whether the model was trained to write the spans that sentinels stand for."""
    sentinels = model.tokenizer.sentinels
    return model.num_stacks == 2 and bool(sentinels) and model.conventions.decoder_trained


def _gapped(model: Model, text: str) -> TextWithGaps | None:
    """The text with its gaps; None where it has masks instead.

    Raises:
        UsageError: it has neither.
    """
    tokenizer = model.tokenizer
    gaps = gapped(tokenizer, text)
    if gaps is None and tokenizer.mask is None:
        first_sentinel = tokenizer.vocabulary[tokenizer.sentinels[0]]
        raise UsageError(
            "the text has no gap",
            where=text[:60],
            wanted=f"{first_sentinel} where something is to be found",
            do=f"write {first_sentinel} for the first gap, and so on",
        )
    return gaps


def _with_unknown(model: Model, text: str, holes: list[Hole], note: Note) -> list[Hole]:
    """Unknown characters are not among the ids, so the user's text is put around the candidates."""
    tokenizer = model.tokenizer
    assert tokenizer.mask is not None  # or there were no holes
    sign = tokenizer.tokens([tokenizer.mask])[0]
    pieces = text.split(sign)
    unknown = tokenizer.unknown_in(piece for piece in pieces if piece)
    for finding in unknown.findings(OTHER_MODEL):
        note(finding)
    if not unknown.unknown:
        return holes
    return [
        _in_given_text(model, hole, sign.join(pieces[:n]), sign.join(pieces[n:]))
        for n, hole in enumerate(holes, start=1)
    ]


def _in_given_text(model: Model, hole: Hole, before: str, after: str) -> Hole:
    """`hole` with the text before and after it, as it was given, around its candidates."""
    tokenizer = model.tokenizer

    def text(candidate: TokenCandidate) -> str:
        word = tokenizer.decode([candidate.id]).strip() or candidate.token
        if tokenizer.kind == "wordpiece" and word.startswith(CONTINUATION):
            return before.rstrip() + word.removeprefix(CONTINUATION) + after
        return before + word + after

    return replace(hole, candidates=tuple(replace(c, text=text(c)) for c in hole.candidates))


def _fill_gaps(model: Model, network: Prepared, gaps: TextWithGaps, top: int) -> list[Hole]:
    """The likeliest spans for each gap; a candidate's `id` is the first of its span's."""
    if top < 1:
        raise UsageError("no candidate to show", where="top", found=top, wanted="1 or more")
    tokenizer, start = model.tokenizer, model.decoder_start
    source = tokenizer.frame(gaps.ids)[0]
    _require_room(model, source, gaps.text, "shorten the text around the gaps")
    assert start is not None  # the decoder was trained
    end = special_tokens.vocabulary(tokenizer).end
    stops = {*tokenizer.sentinels, *(() if end is None else (end,))}
    forbidden = _never(model) - stops
    written, holes = [start], []
    for sign in gaps.signs:
        number = tokenizer.id(sign)
        assert number is not None
        written.append(number)
        candidates = spans(network, source, written, stops, forbidden, top)
        words = [tokenizer.decode(list(candidate.ids)).strip() for candidate in candidates]
        holes.append(
            Hole(
                source.index(number),
                tuple(
                    TokenCandidate(span.ids[0], word, span.probability, gaps.filled(sign, word))
                    for span, word in zip(candidates, words, strict=True)
                ),
            )
        )
        written += candidates[0].ids if candidates else ()
    return holes


def write(
    model: Model,
    prompts: Sequence[str],
    *,
    tokens: int = 100,
    temperature: float | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Sequence[str] = (),
    num_beams: int = 1,
    writer: Prepared | None = None,
) -> list[str]:
    """Each prompt and what the model writes after it; of two stacks, only what it makes of it. A
    prompt with sentinels, such as <extra_id_0>, is answered with them.

    Args:
        tokens: how many are written at most.
        temperature: of the scores; 0 takes the likeliest token. None: 0.8.
        top_k, top_p: only so many of the likeliest tokens; 0 and 1 for all of them.
        seed: decides with the prompt what is drawn, whatever stands beside it in the list.
        stop: strings that end what is written; it is cut before them.
        num_beams: above 1, the likeliest whole text is searched with so many beams, and nothing is
            drawn.
        writer: the network, if it was prepared before.

    Raises:
        IncompatibleError: the model does not write.
        UsageError: an empty prompt where the model has no token to begin with, one that is longer
            than the model reads, or a setting that is out of range.
    """
    prompt_batch = _prompt_batch(model, prompts)
    if num_beams != 1:
        _require_no_sampling(temperature, top_k, top_p)
        require_stop(stop)
        return finished(_searched(model, prompt_batch, tokens, num_beams, stop, writer))
    sampling = _sampling(temperature, top_k, top_p, seed)
    texts = list(prompt_batch.before)
    for piece in _pieces(model, prompt_batch, tokens, sampling, stop, writer):
        texts[piece.row] += piece.text
    return texts


def search(
    model: Model,
    prompt: str,
    *,
    tokens: int = 100,
    temperature: float | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Sequence[str] = (),
    num_beams: int,
    writer: Prepared | None = None,
) -> Steps[list[str]]:
    """What `write` with `num_beams` gives of one prompt, a token of each beam at every step; what
    is wrong with the arguments is refused at once."""
    _require_no_sampling(temperature, top_k, top_p)
    require_stop(stop)
    return _searched(model, _prompt_batch(model, [prompt]), tokens, num_beams, stop, writer)


def write_stream(
    model: Model,
    prompt: str,
    *,
    tokens: int = 100,
    temperature: float | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Sequence[str] = (),
    writer: Prepared | None = None,
) -> Iterator[Piece]:
    """What `write` adds to the prompt, piece by piece, as soon as it is known; what is shown is
    never taken back. See `write`."""
    sampling = _sampling(temperature, top_k, top_p, seed)
    return _pieces(model, _prompt_batch(model, [prompt]), tokens, sampling, stop, writer)


def prompts_of(
    model: Model,
    texts: Sequence[str],
    *,
    tokens: int = 100,
    temperature: float | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Sequence[str] = (),
    logprobs: bool = False,
    top_logprobs: int = 0,
) -> list[Prompt]:
    """What `write` goes on from, for `Generation`: its rows are what `write` gives of this list.
    What `write` puts in front of a row is `prompt.decode(prompt.prefix)`.

    Args and errors: as `write`; `Prompt` has those of log-probabilities.
    """
    prompt_batch = _prompt_batch(model, texts)
    sampling = _sampling(temperature, top_k, top_p, seed)
    prompts: dict[int, Prompt] = {}
    for numbers, forbidden, decode in _alike(model, prompt_batch):
        copies: Counter[tuple[object, ...]] = Counter()
        for n in numbers:
            ids = prompt_batch.start_ids[n]
            source = None if prompt_batch.sources is None else prompt_batch.sources[n]
            name = (*ids, None, *(source or ()))
            prompts[n] = Prompt(
                ids=ids,
                count=tokens,
                decode=decode,
                sampling=replace(sampling, forbidden=forbidden),
                source=source,
                prefix=prompt_batch.prompt_ids[n],
                stop=stop,
                end=special_tokens.vocabulary(model.tokenizer).end,
                is_byte=partial(_is_byte, model.tokenizer),
                copy=copies[name],
                logprobs=logprobs,
                top_logprobs=top_logprobs,
            )
            copies[name] += 1
    return [prompts[n] for n in range(len(texts))]


@dataclass(frozen=True)
class PromptTokens:
    """A prompt as `write` goes on from it.

    Attributes:
        ids: all that the network reads.
        text_ids: those of the text itself, which stand last.
        offsets: at which character of the text each of `text_ids` begins, the spaces before it
            included.
    """

    ids: list[int]
    text_ids: list[int]
    offsets: list[int]


def prompt_tokens(model: Model, texts: Sequence[str]) -> list[PromptTokens]:
    """The prompts of a decoder that stands alone, for `prompt_scores`.

    Raises:
        IncompatibleError, UsageError: as `write`; or the model is no such decoder.
    """
    require_decoder(model.config)
    prompt_batch = _prompt_batch(model, texts)
    prompts = []
    encoded = model.tokenizer.encode_batch(texts, offsets=True)
    prompt_ids = zip(prompt_batch.start_ids, prompt_batch.prompt_ids, encoded, strict=True)
    for ids, text_ids, (_, ends) in prompt_ids:
        # The token before ends where the spaces begin; bytes of one character share its offsets.
        starts = np.minimum(ends[1:, 0], ends[:-1, 1])
        prompts.append(PromptTokens(ids, text_ids, [0, *starts.tolist()]))
    return prompts


def writing(model: Model, network: Prepared) -> Generation:
    """Where `network`, which is the model's, writes."""
    conventions = model.conventions
    return Generation(
        network, bidirectional_prefix=conventions.bidirectional_prefix, one_way=conventions.writes
    )


def _sampling(temperature: float | None, top_k: int, top_p: float, seed: int) -> Sampling:
    usual = 0.8 if temperature is None else temperature
    return Sampling(temperature=usual, top_k=top_k or None, top_p=top_p, seed=seed)


def _require_no_sampling(temperature: float | None, top_k: int, top_p: float) -> None:
    if temperature or top_k or top_p != 1.0:
        raise UsageError(
            "beam search draws nothing",
            where="num_beams",
            found="a setting of sampling: temperature, top_k or top_p",
            do="leave those out, or search with num_beams=1",
        )


@dataclass(frozen=True)
class _PromptBatch:
    """Prompts as ids.

    Attributes:
        start_ids: what the network goes on from.
        sources: what an encoder reads; None where there is none.
        prompt_ids: of each prompt the ids whose text is not written anew.
        before: of each prompt the text that is.
        with_gaps: whether a prompt has sentinels, and is answered with them.
    """

    start_ids: list[list[int]]
    sources: list[list[int]] | None
    prompt_ids: list[list[int]]
    before: list[str]
    with_gaps: list[bool]


def _prompt_batch(model: Model, prompts: Sequence[str]) -> _PromptBatch:
    tokenizer, conventions = model.tokenizer, model.conventions
    require_writer(model.config, one_way=conventions.writes)
    reads = model.num_stacks == 2
    start_token = model.decoder_start
    if reads and start_token is None:
        raise IncompatibleError(
            "this model's decoder was never taught to write",
            where=model.path,
            found="an objective that trains the encoder alone",
            do="use fill-mask",
        )
    gaps = [gapped(tokenizer, prompt) if reads else None for prompt in prompts]
    openings = [
        tokenizer.encode(prompt) if gap is None else gap.ids
        for prompt, gap in zip(prompts, gaps, strict=True)
    ]
    sources = None
    if reads:
        assert start_token is not None
        sources = [tokenizer.frame(ids)[0] for ids in openings]
        target = [start_token, *(opening(tokenizer) if conventions.framed_target else [])]
        opened, openings = [target for _ in openings], [[] for _ in openings]
    else:
        framed = conventions.framed_prompt
        opened = [[*opening(tokenizer), *ids] if framed else ids for ids in openings]
        for number, ids in enumerate(opened):
            if not ids:
                opened[number] = openings[number] = [_beginning(tokenizer.begin)]
    for prompt, ids in zip(prompts, opened if sources is None else sources, strict=True):
        _require_room(model, ids, prompt, "shorten the prompt: its end is what is continued")
    before = [tokenizer.decode(ids) for ids in openings]
    return _PromptBatch(opened, sources, openings, before, [gap is not None for gap in gaps])


def _pieces(
    model: Model,
    prompt_batch: _PromptBatch,
    tokens: int,
    sampling: Sampling,
    stop: Sequence[str],
    writer: Prepared | None,
) -> Iterator[Piece]:
    tokenizer = model.tokenizer
    end = special_tokens.vocabulary(tokenizer).end
    for numbers, forbidden, decode in _alike(model, prompt_batch):
        for piece in stream(
            model.network if writer is None else writer,
            [prompt_batch.start_ids[n] for n in numbers],
            tokens,
            replace(sampling, forbidden=forbidden),
            decode=decode,
            prefixes=[prompt_batch.prompt_ids[n] for n in numbers],
            stop=stop,
            is_byte=partial(_is_byte, tokenizer),
            sources=None
            if prompt_batch.sources is None
            else [prompt_batch.sources[n] for n in numbers],
            end=end,
            bidirectional_prefix=model.conventions.bidirectional_prefix,
            one_way=model.conventions.writes,
        ):
            yield replace(piece, row=numbers[piece.row])


def _alike(
    model: Model, prompt_batch: _PromptBatch
) -> Iterator[tuple[list[int], tuple[int, ...], Decode]]:
    """Numbers of prompts, what is never written after them, and how ids are spelled: sentinels are
    written only where the prompt has some."""
    tokenizer = model.tokenizer
    end = special_tokens.vocabulary(tokenizer).end
    for with_gaps in (False, True):
        numbers = [n for n, gaps in enumerate(prompt_batch.with_gaps) if gaps is with_gaps]
        allowed = {end, *(tokenizer.sentinels if with_gaps else ())}
        if numbers:
            decode = partial(spelled, tokenizer) if with_gaps else tokenizer.decode
            yield numbers, tuple(sorted(_never(model) - allowed)), decode


def _searched(
    model: Model,
    prompt_batch: _PromptBatch,
    tokens: int,
    beams: int,
    stop: Sequence[str],
    writer: Prepared | None,
) -> Steps[list[str]]:
    """As `write`, by beam search."""
    tokenizer, texts = model.tokenizer, list(prompt_batch.before)
    for numbers, forbidden, decode in _alike(model, prompt_batch):

        def grown(row: int, ids: Sequence[int]) -> tuple[str, bool]:
            prompt_ids = prompt_batch.prompt_ids[numbers[row]]  # noqa: B023
            text = GrowingText(decode, prompt_ids, stop, partial(_is_byte, tokenizer))  # noqa: B023
            pieces = [text.add(token) for token in ids if not text.stopped]
            return "".join([*pieces, text.end()]), text.stopped

        best_rows = yield from beam_steps(
            model.network if writer is None else writer,
            [prompt_batch.start_ids[n] for n in numbers],
            tokens,
            beams,
            sources=None
            if prompt_batch.sources is None
            else [prompt_batch.sources[n] for n in numbers],
            end=special_tokens.vocabulary(tokenizer).end,
            forbidden=forbidden,
            stopped=(lambda row, ids: grown(row, ids)[1]) if stop else None,
            bidirectional_prefix=model.conventions.bidirectional_prefix,
            one_way=model.conventions.writes,
        )
        for beam_row, ids in enumerate(best_rows):
            texts[numbers[beam_row]] += grown(beam_row, ids)[0]
    return texts


def _is_byte(tokenizer: Tokenizer, token: int) -> bool:
    return BYTE.fullmatch(tokenizer.vocabulary[token]) is not None


def log_likelihoods(
    model: Model,
    texts: Sequence[str],
    how: str | None = None,
    prepared: Prepared | None = None,
) -> NDArray[np.float64]:
    """The log-likelihood in nats of each text (N,), as the model was trained or by the method
    `how` of `likelihood_prompts.METHODS`. Computed in float32, by the network that was `prepared`
    in it, if there is one.

    Raises:
        UsageError: no such method, or a text longer than the model reads.
        IncompatibleError: the model cannot be asked so.
    """
    chosen = scoring_method(model.network, model.conventions) if how is None else how
    network = model.network if prepared is None else prepared
    return likelihood.scores(network, model.tokenizer, texts, chosen)


def scoring_method(network: Transformer, conventions: Conventions) -> str:
    """The method of `pseudo_likelihood` that asks a model what it was trained for.

    Raises:
        IncompatibleError: it predicts no tokens.
    """
    if not conventions.decoder_trained:
        return "masked"  # the encoder alone was trained
    if conventions.prediction_offset:
        return "masked-next"
    if conventions.bidirectional_prefix:
        return "causal"
    return likelihood.native(network)


def _beginning(token: int | None) -> int:
    if token is None:
        raise UsageError(
            "this model's tokenizer has no token to begin with",
            found="no prompt",
            do="give it a text to go on with",
        )
    return token


def _never(model: Model) -> set[int]:
    """Ids that are no text: special tokens, and rows of the table without a token."""
    tokenizer = model.tokenizer
    rows = range(tokenizer.vocabulary_size, model.config.tokens.vocabulary)
    return {*tokenizer.special_ids, *rows}


def _require_room(model: Model, ids: Sequence[int], text: str, do: str) -> None:
    longest = model.config.longest if model.num_stacks == 2 else trained_length(model.config)
    if longest is not None and len(ids) > longest:
        raise UsageError(
            "the text is longer than the model reads",
            where=text[:60],
            found=f"{len(ids)} tokens",
            wanted=f"at most {longest}",
            do=do,
        )
