"""Generation from texts: prompts and their output as text, and the gaps of a T5.

    The cat <extra_id_0> on the <extra_id_1>.

Only here are sentinels in a text special tokens, for encoder–decoder models that have them; the
output may have them, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.model.inference.beam import Steps, beam_steps, finished
from maskwright.model.inference.generation import Generation, Prompt, require_writer, stream
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.inference.growing_rows import ContextReader, trained_length
from maskwright.model.inference.growing_text import BYTE, GrowingText, Piece, require_stop
from maskwright.model.inference.likelihood import require_decoder, require_length
from maskwright.model.inference.prepared import Prepared, answering
from maskwright.model.nn.transformer import Transformer
from maskwright.model.opening import special_tokens
from maskwright.model.opening.folders import Model
from maskwright.model.opening.special_tokens import opening
from maskwright.text.tokenizer.file.roles import SENTINEL
from maskwright.text.tokenizer.tokenizer import Tokenizer

# ------------------------------------------------------------------------------ gaps
LONGEST_SPAN = 16  # tokens of a span
SPAN_BEAMS = 10
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
    """Beam search for spans of at most `LONGEST_SPAN` ids."""
    beams, limit = max(SPAN_BEAMS, 2 * top), reader.limit
    open_spans: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended_spans: list[tuple[float, tuple[int, ...]]] = []
    max_length = LONGEST_SPAN if limit is None else min(LONGEST_SPAN, limit - len(written))
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


# ------------------------------------------------------------------------------ texts
def generate_texts(
    model: Model, network: Prepared, texts: Sequence[str], settings: GenerationSettings
) -> list[str]:
    """Generate a continuation of each text with the prepared `network` of `model`. A decoder
    returns text and continuation, an encoder–decoder only its output.

    Raises:
        IncompatibleError: the model cannot generate text.
        UsageError: a text is empty and the model has no start token, a text exceeds the model's
            context, or settings of beam search and of sampling together.
    """
    prompts = prompts_of(model, texts, settings)
    outputs = [prompt.decode(prompt.prefix) if prompt.prefix else "" for prompt in prompts]
    if settings.num_beams != 1:
        for number, text in enumerate(finished(search(model, network, prompts))):
            outputs[number] += text
        return outputs
    for piece in stream_texts(model, network, prompts):
        outputs[piece.row] += piece.text
    return outputs


def stream_texts(model: Model, network: Prepared, prompts: Sequence[Prompt]) -> Iterator[Piece]:
    """Yield the output for each prompt in pieces, as soon as they are final."""
    prefix, one_way = model.conventions.bidirectional_prefix, model.conventions.writes
    return stream(network, prompts, bidirectional_prefix=prefix, one_way=one_way)


def generation_of(model: Model, network: Prepared) -> Generation:
    """Return the batch in which `network`, the prepared network of `model`, generates prompts."""
    prefix, one_way = model.conventions.bidirectional_prefix, model.conventions.writes
    return Generation(network, bidirectional_prefix=prefix, one_way=one_way)


def search(model: Model, network: Prepared, prompts: Sequence[Prompt]) -> Steps[list[str]]:
    """Search the most probable output for each prompt with beams, one token of each beam per step.
    All prompts have the same settings."""
    texts = [""] * len(prompts)
    for forbidden in dict.fromkeys(prompt.forbidden for prompt in prompts):
        numbers = [n for n, prompt in enumerate(prompts) if prompt.forbidden == forbidden]
        group = [prompts[n] for n in numbers]
        sources = [prompt.source for prompt in group if prompt.source is not None]
        settings = group[0].settings
        best_rows = yield from beam_steps(
            network,
            [prompt.ids for prompt in group],
            settings.tokens,
            settings.num_beams,
            sources=sources or None,
            end=group[0].end,
            forbidden=forbidden,
            stopped=partial(_is_stopped, group) if settings.stop else None,
            bidirectional_prefix=model.conventions.bidirectional_prefix,
            one_way=model.conventions.writes,
        )
        for number, ids in zip(numbers, best_rows, strict=True):
            texts[number] = _decoded(prompts[number], ids)[0]
    return texts


def _is_stopped(prompts: Sequence[Prompt], row: int, ids: Sequence[int]) -> bool:
    return _decoded(prompts[row], ids)[1]


def _decoded(prompt: Prompt, ids: Sequence[int]) -> tuple[str, bool]:
    """Return the text of new ids, and whether a stop string ends it."""
    text = GrowingText(prompt.decode, prompt.prefix, prompt.settings.stop, prompt.is_byte)
    pieces = [text.add(token) for token in ids if not text.stopped]
    return "".join([*pieces, text.end()]), text.stopped


def prompts_of(
    model: Model,
    texts: Sequence[str | Sequence[int]],
    settings: GenerationSettings,
    logprobs: int | None = None,
) -> list[Prompt]:
    """Encode texts as prompts; token ids are used as they are. Errors as for `generate_texts`."""
    tokenizer = model.tokenizer
    require_writer(model.config, one_way=model.conventions.writes)
    has_encoder = model.num_stacks == 2
    if has_encoder and model.decoder_start is None:
        raise IncompatibleError(
            "this model's decoder was never taught to write",
            where=model.path,
            found="an objective that trains the encoder alone",
            do="use fill-mask",
        )
    if settings.num_beams != 1:
        if settings.samples or settings.penalises:
            raise UsageError(
                "beam search draws nothing",
                where="num_beams",
                found="a setting of sampling: temperature, top_k, top_p, typical_p, or a penalty",
                do="leave those out, or search with num_beams=1",
            )
        require_stop(settings.stop)
    end = special_tokens.vocabulary(tokenizer).end
    forbidden = tuple(sorted(non_text_ids(model) - {end}))
    forbidden_beside_gaps = tuple(i for i in forbidden if i not in tokenizer.sentinels)
    prompts = []
    for text in texts:
        gaps = gapped(tokenizer, text) if has_encoder and isinstance(text, str) else None
        source, prefix, ids = _prompt_ids(model, text, gaps)
        advice = "shorten the prompt: its end is what is continued"
        shown = text if isinstance(text, str) else tokenizer.decode(text)
        require_room(model, ids if source is None else source, shown, advice)
        prompts.append(
            Prompt(
                ids=ids,
                settings=settings,
                decode=tokenizer.decode if gaps is None else partial(spelled, tokenizer),
                source=source,
                prefix=prefix,
                end=end,
                forbidden=forbidden if gaps is None else forbidden_beside_gaps,
                is_byte=partial(_is_byte, tokenizer),
                logprobs=logprobs,
            )
        )
    return prompts


def _prompt_ids(
    model: Model, text: str | Sequence[int], gaps: TextWithGaps | None
) -> tuple[list[int] | None, list[int], list[int]]:
    """Return the encoder's input (None without an encoder), the ids of `text` if the output repeats
    it, and the ids that the decoder reads first."""
    tokenizer, conventions = model.tokenizer, model.conventions
    if gaps is not None:
        ids = gaps.ids
    else:
        ids = list(tokenizer.encode(text) if isinstance(text, str) else text)
    if model.num_stacks == 2 and model.decoder_start is not None:
        first_ids = opening(tokenizer) if conventions.framed_target else []
        return tokenizer.frame(ids)[0], [], [model.decoder_start, *first_ids]
    first_ids = opening(tokenizer) if conventions.framed_prompt else []
    if not ids and not first_ids:
        if tokenizer.begin is None:
            raise UsageError(
                "this model's tokenizer has no token to begin with",
                found="no prompt",
                do="give it a text to go on with",
            )
        ids = [tokenizer.begin]
    return None, ids, ids if ids[: len(first_ids)] == first_ids else [*first_ids, *ids]


@dataclass(frozen=True)
class PromptTokens:
    """The token ids of a prompt as `generate_texts` continues it.

    Attributes:
        ids: all ids that the network reads.
        text_ids: the ids of the text itself, the last of `ids`.
        offsets: the character of the text where each of `text_ids` begins, including the spaces
            before it.
    """

    ids: Sequence[int]
    text_ids: Sequence[int]
    offsets: list[int]


def prompt_tokens(model: Model, text: str | Sequence[int]) -> PromptTokens:
    """Encode a text, or token ids, as prompt of a decoder-only model, for
    `likelihood.prompt_scores`. Errors as for `generate_texts`; `IncompatibleError` for others."""
    require_decoder(model.config)
    (prompt,) = prompts_of(model, [text], GenerationSettings())
    if not isinstance(text, str):
        lengths = [len(model.tokenizer.decode([token_id], False)) for token_id in prompt.prefix]
        return PromptTokens(prompt.ids, prompt.prefix, [0, *np.cumsum(lengths)[:-1].tolist()])
    ((_, ends),) = model.tokenizer.encode_batch([text], offsets=True)
    # The token before ends where the spaces begin; bytes of one character share its offsets.
    starts = np.minimum(ends[1:, 0], ends[:-1, 1])
    return PromptTokens(prompt.ids, prompt.prefix, [0, *starts.tolist()])


def non_text_ids(model: Model) -> set[int]:
    """Return ids that are not text: special tokens, and embedding rows without a token."""
    tokenizer = model.tokenizer
    rows = range(tokenizer.vocabulary_size, model.config.tokens.vocabulary)
    return {*tokenizer.special_ids, *rows}


def require_room(model: Model, ids: Sequence[int], text: str, do: str) -> None:
    """Raise a `UsageError` if the ids exceed the model's context."""
    longest = model.config.longest if model.num_stacks == 2 else trained_length(model.config)
    require_length(text, len(ids), longest, do)


def _is_byte(tokenizer: Tokenizer, token: int) -> bool:
    return BYTE.fullmatch(tokenizer.vocabulary[token]) is not None
