"""Mask filling, text generation and log-likelihoods of lists of texts.

All functions take an opened `Model` (`model/opening/open.py`) and a list of texts, and return one
result per text, in the same order.
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
    """Predict the `top` most probable tokens for every mask of each text. A model that was trained
    on span corruption (T5) predicts spans for every sentinel, such as <extra_id_0>, each
    conditioned on the best spans for the sentinels before it.

    Args:
        note: called with a finding if much of a text is unknown to the tokenizer.
        prepared: the prepared network; None: `model.network`.
        windows: predict each mask of a text that exceeds the model's context in a window around
            that mask. Sentinels of a text are always filled in one pass.

    Raises:
        UsageError: a text has no mask, or exceeds the model's context.
        IncompatibleError: the model cannot fill masks.
    """
    masked = [masked_text(model, text, windows=windows) for text in texts]
    likeliest = read_masks(model, masked, top=top, prepared=prepared)
    return [spelled_masks(model, *pair, note=note) for pair in zip(masked, likeliest, strict=True)]


@dataclass(frozen=True)
class MaskedText:
    """An encoded text with masks or, for a T5, with gaps (sentinels); the other one is None.

    Attributes:
        num_windows, num_tokens: the number of windows the text is read in, and of their tokens.
    """

    text: str
    masks: TextWithMasks | None
    gaps: TextWithGaps | None
    num_windows: int
    num_tokens: int

    @property
    def num_masks(self) -> int:
        """The number of masks or gaps."""
        if self.gaps is not None:
            return len(self.gaps.signs)
        assert self.masks is not None
        return len(self.masks.pieces) - 1


def masked_text(model: Model, text: str, *, windows: bool = False) -> MaskedText:
    """Encode a text for `read_masks`; args and errors as in `fill_masks`."""
    if _fills_gaps(model) and (gaps := _encode_gaps(model, text)) is not None:
        source = model.tokenizer.frame(gaps.ids)[0]
        _require_room(model, source, gaps.text, "shorten the text around the gaps")
        return MaskedText(text, None, gaps, 1, len(source))
    masks = fill_mask.encoded(model.config, model.tokenizer, text, windows=windows)
    tokens = sum(len(window.ids) for window in masks.windows)
    return MaskedText(text, masks, None, len(masks.windows), tokens)


def read_masks(
    model: Model, texts: Sequence[MaskedText], *, top: int = 5, prepared: Prepared | None = None
) -> list[list[HolePrediction] | list[Hole]]:
    """Return the network's predictions for each mask of each text, to be passed to
    `spelled_masks`. Nothing is tokenized here. Args and errors as in `fill_masks`."""
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
    """Decode the predictions of `read_masks` for one text; `note` as in `fill_masks`."""
    if text.masks is None:
        return list(likeliest)
    holes = fill_mask.spelled(model.tokenizer, text.masks, likeliest)
    return _restore_unknown(model, text.text, holes, note)


def _fills_gaps(model: Model) -> bool:
    """Whether the model was trained to generate the spans that sentinels replace (as T5)."""
    sentinels = model.tokenizer.sentinels
    return model.num_stacks == 2 and bool(sentinels) and model.conventions.decoder_trained


def _encode_gaps(model: Model, text: str) -> TextWithGaps | None:
    """Encode a text with gaps. If it has none, return None if the tokenizer has a mask token, else
    raise a `UsageError`."""
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


def _restore_unknown(model: Model, text: str, holes: list[Hole], note: Note) -> list[Hole]:
    """Restore the original text around the candidates if it has characters that the tokenizer does
    not know and decoding would lose; `note` gets the findings about them."""
    tokenizer = model.tokenizer
    assert tokenizer.mask is not None  # or there were no holes
    mask_token = tokenizer.tokens([tokenizer.mask])[0]
    pieces = text.split(mask_token)
    unknown = tokenizer.unknown_in(piece for piece in pieces if piece)
    for finding in unknown.findings(OTHER_MODEL):
        note(finding)
    if not unknown.unknown:
        return holes
    return [
        _in_original_text(model, hole, mask_token.join(pieces[:n]), mask_token.join(pieces[n:]))
        for n, hole in enumerate(holes, start=1)
    ]


def _in_original_text(model: Model, hole: Hole, before: str, after: str) -> Hole:
    """Return `hole` with the original text before and after it in each candidate's `text`."""
    tokenizer = model.tokenizer

    def full_text(candidate: TokenCandidate) -> str:
        word = tokenizer.decode([candidate.id]).strip() or candidate.token
        if tokenizer.kind == "wordpiece" and word.startswith(CONTINUATION):
            return before.rstrip() + word.removeprefix(CONTINUATION) + after
        return before + word + after

    return replace(hole, candidates=tuple(replace(c, text=full_text(c)) for c in hole.candidates))


def _fill_gaps(model: Model, network: Prepared, gaps: TextWithGaps, top: int) -> list[Hole]:
    """Predict the `top` most probable spans for each gap, left to right; a candidate's `id` is the
    first token id of its span."""
    if top < 1:
        raise UsageError("no candidate to show", where="top", found=top, wanted="1 or more")
    tokenizer, start = model.tokenizer, model.decoder_start
    source = tokenizer.frame(gaps.ids)[0]
    _require_room(model, source, gaps.text, "shorten the text around the gaps")
    assert start is not None  # the decoder was trained
    end = special_tokens.vocabulary(tokenizer).end
    stops = {*tokenizer.sentinels, *(() if end is None else (end,))}
    forbidden = _non_text_ids(model) - stops
    decoder_ids, holes = [start], []
    for sentinel in gaps.signs:
        sentinel_id = tokenizer.id(sentinel)
        assert sentinel_id is not None
        decoder_ids.append(sentinel_id)
        candidates = spans(network, source, decoder_ids, stops, forbidden, top)
        span_texts = [tokenizer.decode(list(candidate.ids)).strip() for candidate in candidates]
        holes.append(
            Hole(
                source.index(sentinel_id),
                tuple(
                    TokenCandidate(span.ids[0], text, span.probability, gaps.filled(sentinel, text))
                    for span, text in zip(candidates, span_texts, strict=True)
                ),
            )
        )
        decoder_ids += candidates[0].ids if candidates else ()
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
    """Generate a continuation of each prompt. A decoder returns prompt and continuation, an
    encoder–decoder only its output, with sentinels if the prompt has some (<extra_id_0>).

    Args:
        tokens: the maximum number of new tokens.
        temperature: divides the logits; 0 is greedy decoding. None: 0.8.
        top_k: sample from this many most probable tokens; 0: from all.
        top_p: sample from the most probable tokens with this total probability; 1: from all.
        seed: of the samples, which do not depend on the other prompts of the list.
        stop: strings that end the output; it is cut before them.
        num_beams: above 1, use beam search with this many beams instead of sampling.
        writer: the prepared network; None: `model.network`.

    Raises:
        IncompatibleError: the model cannot generate text.
        UsageError: a prompt is empty and the model has no start token, a prompt exceeds the
            model's context, or a setting is out of range.
    """
    prompt_batch = _prompt_batch(model, prompts)
    if num_beams != 1:
        _require_no_sampling(temperature, top_k, top_p)
        require_stop(stop)
        return finished(_beam_search(model, prompt_batch, tokens, num_beams, stop, writer))
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
    """Run `write` with `num_beams` for one prompt stepwise, one token of each beam per step.
    Arguments are checked when this is called, not at the first step."""
    _require_no_sampling(temperature, top_k, top_p)
    require_stop(stop)
    return _beam_search(model, _prompt_batch(model, [prompt]), tokens, num_beams, stop, writer)


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
    """Yield the text that `write` adds to the prompt as soon as it is final, in pieces. Args and
    errors as in `write`."""
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
    """Encode texts as prompts for `Generation`, which then generates the same as `write` does for
    this list. `write` puts `prompt.decode(prompt.prefix)` before each output. Args and errors as in
    `write`; for `logprobs` and `top_logprobs` see `Prompt`."""
    prompt_batch = _prompt_batch(model, texts)
    sampling = _sampling(temperature, top_k, top_p, seed)
    prompts: dict[int, Prompt] = {}
    for indices, forbidden, decode in _by_sentinels(model, prompt_batch):
        copies: Counter[tuple[object, ...]] = Counter()
        for n in indices:
            ids = prompt_batch.start_ids[n]
            source = None if prompt_batch.sources is None else prompt_batch.sources[n]
            network_input = (*ids, None, *(source or ()))
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
                copy=copies[network_input],
                logprobs=logprobs,
                top_logprobs=top_logprobs,
            )
            copies[network_input] += 1
    return [prompts[n] for n in range(len(texts))]


@dataclass(frozen=True)
class PromptTokens:
    """The token ids of a prompt as `write` continues it.

    Attributes:
        ids: all ids that the network reads.
        text_ids: the ids of the text itself, the last of `ids`.
        offsets: the character of the text where each of `text_ids` begins, including the spaces
            before it.
    """

    ids: list[int]
    text_ids: list[int]
    offsets: list[int]


def prompt_tokens(model: Model, texts: Sequence[str]) -> list[PromptTokens]:
    """Encode texts as prompts of a decoder-only model, for `prompt_scores`. Errors as in `write`;
    other models raise an `IncompatibleError`."""
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
    """Return a `Generation` with `network`, the prepared network of `model`."""
    conventions = model.conventions
    return Generation(
        network, bidirectional_prefix=conventions.bidirectional_prefix, one_way=conventions.writes
    )


def _sampling(temperature: float | None, top_k: int, top_p: float, seed: int) -> Sampling:
    chosen_temperature = 0.8 if temperature is None else temperature
    return Sampling(temperature=chosen_temperature, top_k=top_k or None, top_p=top_p, seed=seed)


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
    """Encoded prompts; each list has one element per prompt.

    Attributes:
        start_ids: the ids that generation continues.
        sources: the input ids of the encoder; None for a decoder-only model.
        prompt_ids: the ids of the prompt itself; empty for an encoder–decoder.
        before: the decoded `prompt_ids`, which the output begins with.
        with_gaps: whether the prompt has sentinels, so that the output may have them too.
    """

    start_ids: list[list[int]]
    sources: list[list[int]] | None
    prompt_ids: list[list[int]]
    before: list[str]
    with_gaps: list[bool]


def _prompt_batch(model: Model, prompts: Sequence[str]) -> _PromptBatch:
    """Encode prompts with the special tokens that the model expects; errors as in `write`."""
    tokenizer, conventions = model.tokenizer, model.conventions
    require_writer(model.config, one_way=conventions.writes)
    has_encoder = model.num_stacks == 2
    start_token = model.decoder_start
    if has_encoder and start_token is None:
        raise IncompatibleError(
            "this model's decoder was never taught to write",
            where=model.path,
            found="an objective that trains the encoder alone",
            do="use fill-mask",
        )
    gaps = [gapped(tokenizer, prompt) if has_encoder else None for prompt in prompts]
    prompt_ids = [
        tokenizer.encode(prompt) if gap is None else gap.ids
        for prompt, gap in zip(prompts, gaps, strict=True)
    ]
    sources = None
    if has_encoder:
        assert start_token is not None
        sources = [tokenizer.frame(ids)[0] for ids in prompt_ids]
        decoder_prefix = [start_token, *(opening(tokenizer) if conventions.framed_target else [])]
        start_ids, prompt_ids = [decoder_prefix for _ in prompt_ids], [[] for _ in prompt_ids]
    else:
        framed = conventions.framed_prompt
        start_ids = [[*opening(tokenizer), *ids] if framed else ids for ids in prompt_ids]
        for number, ids in enumerate(start_ids):
            if not ids:
                start_ids[number] = prompt_ids[number] = [_require_start_token(tokenizer.begin)]
    for prompt, ids in zip(prompts, start_ids if sources is None else sources, strict=True):
        _require_room(model, ids, prompt, "shorten the prompt: its end is what is continued")
    before = [tokenizer.decode(ids) for ids in prompt_ids]
    return _PromptBatch(start_ids, sources, prompt_ids, before, [gap is not None for gap in gaps])


def _pieces(
    model: Model,
    prompt_batch: _PromptBatch,
    tokens: int,
    sampling: Sampling,
    stop: Sequence[str],
    writer: Prepared | None,
) -> Iterator[Piece]:
    """Yield pieces of generated text, each with the number of its prompt in the batch."""
    tokenizer = model.tokenizer
    end = special_tokens.vocabulary(tokenizer).end
    for indices, forbidden, decode in _by_sentinels(model, prompt_batch):
        for piece in stream(
            model.network if writer is None else writer,
            [prompt_batch.start_ids[n] for n in indices],
            tokens,
            replace(sampling, forbidden=forbidden),
            decode=decode,
            prefixes=[prompt_batch.prompt_ids[n] for n in indices],
            stop=stop,
            is_byte=partial(_is_byte, tokenizer),
            sources=None
            if prompt_batch.sources is None
            else [prompt_batch.sources[n] for n in indices],
            end=end,
            bidirectional_prefix=model.conventions.bidirectional_prefix,
            one_way=model.conventions.writes,
        ):
            yield replace(piece, row=indices[piece.row])


def _by_sentinels(
    model: Model, prompt_batch: _PromptBatch
) -> Iterator[tuple[list[int], tuple[int, ...], Decode]]:
    """Group prompts by whether they have sentinels, as only these may generate sentinels. Yields
    (indices of the prompts, forbidden token ids, function that decodes ids)."""
    tokenizer = model.tokenizer
    end = special_tokens.vocabulary(tokenizer).end
    for with_gaps in (False, True):
        indices = [n for n, gaps in enumerate(prompt_batch.with_gaps) if gaps is with_gaps]
        allowed = {end, *(tokenizer.sentinels if with_gaps else ())}
        if indices:
            decode = partial(spelled, tokenizer) if with_gaps else tokenizer.decode
            yield indices, tuple(sorted(_non_text_ids(model) - allowed)), decode


def _beam_search(
    model: Model,
    prompt_batch: _PromptBatch,
    tokens: int,
    beams: int,
    stop: Sequence[str],
    writer: Prepared | None,
) -> Steps[list[str]]:
    """Generate by beam search; the steps end with prompt and continuation of each prompt."""
    tokenizer, texts = model.tokenizer, list(prompt_batch.before)
    for indices, forbidden, decode in _by_sentinels(model, prompt_batch):

        def generated_text(row: int, ids: Sequence[int]) -> tuple[str, bool]:
            prompt_ids = prompt_batch.prompt_ids[indices[row]]  # noqa: B023
            text = GrowingText(decode, prompt_ids, stop, partial(_is_byte, tokenizer))  # noqa: B023
            pieces = [text.add(token) for token in ids if not text.stopped]
            return "".join([*pieces, text.end()]), text.stopped

        best_rows = yield from beam_steps(
            model.network if writer is None else writer,
            [prompt_batch.start_ids[n] for n in indices],
            tokens,
            beams,
            sources=None
            if prompt_batch.sources is None
            else [prompt_batch.sources[n] for n in indices],
            end=special_tokens.vocabulary(tokenizer).end,
            forbidden=forbidden,
            stopped=(lambda row, ids: generated_text(row, ids)[1]) if stop else None,
            bidirectional_prefix=model.conventions.bidirectional_prefix,
            one_way=model.conventions.writes,
        )
        for beam_row, ids in enumerate(best_rows):
            texts[indices[beam_row]] += generated_text(beam_row, ids)[0]
    return texts


def _is_byte(tokenizer: Tokenizer, token: int) -> bool:
    return BYTE.fullmatch(tokenizer.vocabulary[token]) is not None


def log_likelihoods(
    model: Model,
    texts: Sequence[str],
    how: str | None = None,
    prepared: Prepared | None = None,
) -> NDArray[np.float64]:
    """Compute the log-likelihood of each text in nats, (N,), in float32.

    Args:
        how: a method of `likelihood_prompts.METHODS`; None: the one the model was trained for.
        prepared: the network prepared in float32; None: `model.network`.

    Raises:
        UsageError: there is no such method, or a text exceeds the model's context.
        IncompatibleError: the model does not support the method.
    """
    method = scoring_method(model.network, model.conventions) if how is None else how
    network = model.network if prepared is None else prepared
    return likelihood.scores(network, model.tokenizer, texts, method)


def scoring_method(network: Transformer, conventions: Conventions) -> str:
    """Return the method of `likelihood_prompts.METHODS` that fits the model's training; raises an
    `IncompatibleError` if the model predicts no tokens."""
    if not conventions.decoder_trained:
        return "masked"  # the encoder alone was trained
    if conventions.prediction_offset:
        return "masked-next"
    if conventions.bidirectional_prefix:
        return "causal"
    return likelihood.native(network)


def _require_start_token(token: int | None) -> int:
    if token is None:
        raise UsageError(
            "this model's tokenizer has no token to begin with",
            found="no prompt",
            do="give it a text to go on with",
        )
    return token


def _non_text_ids(model: Model) -> set[int]:
    """Return ids that are not text: special tokens, and embedding rows without a token."""
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
