"""Encoding of the rows of a request, on tokenizer threads, and their computation, on the device
thread.

The rows of a request are divided into parts of limited size, each of which is a queue item. A row
may also be answered with the log-probabilities of its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from maskwright.ask.predict.engine import Engine
from maskwright.ask.predict.predictor import Predictor, TaskPredictor
from maskwright.base.errors import DataError
from maskwright.learn.tasks.base.choices import LongText
from maskwright.learn.tasks.base.late_interaction import Role, TokenRow
from maskwright.learn.tasks.base.task_type import Encoded, Outputs
from maskwright.model.inference import fill_mask
from maskwright.model.inference.beam import Steps
from maskwright.model.inference.encoded import EncodedExamples
from maskwright.model.inference.fill_mask import Hole, HolePrediction, MaskedText, masked_text
from maskwright.model.inference.likelihood import TokenScore, prompt_scores
from maskwright.model.inference.prepared import finite
from maskwright.model.inference.scores import hidden
from maskwright.model.inference.text_generation import PromptTokens, prompt_tokens
from maskwright.model.objectives.base.corruption import first_places
from maskwright.ship.serve.errors import Refusal, of_error, texts_of
from maskwright.text.tokenizer.tokenizer import Tokenizer

# Maximum rows and characters of one item.
PART_ROWS, PART_CHARACTERS = 32, 8_192
# Estimated bytes of a response: per vector element, per candidate.
BYTES_A_FIGURE, BYTES_AROUND = 20, 80
Truncation = bool | Literal["left", "right"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a request.

    Attributes:
        truncate: truncate texts that exceed the maximum length, which the response reports: True
            or "right" at their end, "left" at their beginning; otherwise they are split into
            windows, or refused if the task has no windows.
        long: the `long` option of `LanguageModel.predict`; None: determined by `truncate`.
        deadline: seconds until the request is cancelled; None: the limit of the server.
        adapter: the name of the head or adapter to use; None: the model itself.
        top: the number of best predictions per row; None: the default of the method.
        raw: return the scores of the head instead of probabilities.
        task_options: options of the task that replace those of the model, such as its prompt.
        targets: for masks, the tokens or words to choose from; empty: the whole vocabulary.
        pooling: the pooling of embeddings, for a model that was not trained to embed.
        field: the name of the rows in the request body, for error messages.
    """

    truncate: Truncation = False
    long: LongText | None = None
    deadline: float | None = None
    adapter: str | None = None
    top: int | None = None
    raw: bool = False
    pooling: str | None = None
    task_options: Mapping[str, Any] = field(default_factory=dict)
    targets: Sequence[str] = ()
    field: str = "inputs"


@dataclass(frozen=True)
class EncodedRows:
    """Some rows of a request, encoded.

    Attributes:
        payload: the input of their computation.
        lengths: the number of tokens of each row.
        windows: the number of windows of each row.
        truncated: whether each row was truncated.
        answer_bytes: the estimated size of their answers, if it may be large.
    """

    payload: Any
    lengths: list[int]
    windows: list[int]
    truncated: list[bool]
    answer_bytes: int = 0


def split_rows(rows: Sequence[Any], most_rows: int, most_characters: int) -> Iterator[range]:
    """Yield the range of row numbers of each part, of limited size unless it is a single row."""
    begin, characters = 0, 0
    for number, row in enumerate(rows):
        row_characters = sum(map(len, texts_of(row)))
        if number > begin and (
            characters + row_characters > most_characters or number - begin == most_rows
        ):
            yield range(begin, number)
            begin, characters = number, 0
        characters += row_characters
    if begin < len(rows):
        yield range(begin, len(rows))


def answering_as(predictor: TaskPredictor, options: Options) -> TaskPredictor:
    """Return a predictor that encodes and answers with the options of a request: other options of
    its task, and the end of a text that is too long where training kept its beginning."""
    if options.task_options:
        predictor = predictor.with_task(predictor.task_type.with_options(options.task_options))
    if options.truncate == "left" and isinstance(predictor, Predictor):
        keeps_end = predictor.frame.keeps_end or predictor.frame.long == "head"
        return replace(predictor, frame=replace(predictor.frame, keeps_end=keeps_end))
    return predictor


def single_texts(predictor: TaskPredictor, texts: Sequence[Any]) -> list[Any]:
    """Return texts as rows of an embedding task."""
    return [{predictor.task_type.alone: text} for text in texts]


def _each(
    function: Callable[[Any, str], Any], rows: Sequence[Any], first_number: int, options: Options
) -> list[Any]:
    """Return `function(row, its field in the request)` for each row; a refusal names the field."""
    values = []
    for number, row in enumerate(rows, start=first_number):
        where = f"{options.field}[{number}]"
        try:
            values.append(function(row, where))
        except Exception as error:
            raise of_error(error, where) from error
    return values


# In all functions below, `first_number` is the number of the first of the rows in the request.
def encode(
    predictor: TaskPredictor, rows: Sequence[Any], first_number: int, options: Options
) -> EncodedRows:
    """Encode rows for a task, as `Encoded`.

    Raises:
        Refusal: a row has the wrong form, or is too long and may not be truncated.
    """
    parsed_rows = _each(predictor.row, rows, first_number, options)
    long = options.long or ("as_trained" if options.truncate else "windows")
    try:
        encoded = predictor.with_long_texts(long).encode(parsed_rows)
    except DataError as error:
        hint = "truncate" if options.long is None else 'long="as_trained"'
        reason = f"{error.what}, by {error.found}; shorten it, or say {hint}"
        where, limit = error.where or options.field, f"{predictor.longest} tokens"
        raise Refusal("validation", reason, field=where, limit=limit) from error
    assert encoded.extent is not None
    tokens, windows, truncated = (
        column.tolist()
        for column in (encoded.extent.tokens, encoded.extent.windows, encoded.extent.cut > 0)
    )
    return EncodedRows(encoded, tokens, windows, truncated)


def encode_states(
    engine: Engine, texts: Sequence[Any], first_number: int, options: Options
) -> EncodedRows:
    """Encode texts whose states are the answer, as `EncodedExamples`. Raises as `encode`."""
    predictor = answering_as(engine.pooled("mean"), options)
    rows = encode(predictor, single_texts(predictor, texts), first_number, options)
    size = sum(rows.lengths) * engine.model.config.width * BYTES_A_FIGURE
    return replace(rows, payload=rows.payload.examples, answer_bytes=size)


def encode_masked(
    engine: Engine, texts: Sequence[str], first_number: int, options: Options
) -> EncodedRows:
    """Encode texts with masks, each in windows around its masks, as a pair (texts, top).

    Raises:
        Refusal: a text has no mask, or a target no token.
    """
    masked_texts: list[MaskedText] = _each(
        lambda text, _: masked_text(engine.model, text, windows=True, targets=options.targets),
        texts,
        first_number,
        options,
    )
    tokens = [text.num_tokens for text in masked_texts]
    windows = [text.num_windows for text in masked_texts]
    top = options.top or 5
    size = top * sum(text.num_masks * (len(text.text) + BYTES_AROUND) for text in masked_texts)
    return EncodedRows((masked_texts, top), tokens, windows, [False] * len(texts), size)


def encode_tokens(
    engine: Engine, texts: Sequence[str], first_number: int, options: Options, *, role: Role
) -> EncodedRows:
    """Encode texts for a multi-vector encoder, as a pair (rows, role).

    Raises:
        Refusal: a text is too long and may not be truncated.
    """
    late = engine.late
    assert late is not None
    rows = late.encode(texts, role, keeps_end=options.truncate == "left")
    for number, row in enumerate(rows, start=first_number):
        if row.cut and not options.truncate:
            reason, limit = "the text is too long; shorten it, or say truncate", late.lengths[role]
            where = f"{options.field}[{number}]"
            raise Refusal("validation", reason, field=where, limit=limit)
    lengths, cut = [len(row.ids) for row in rows], [row.cut > 0 for row in rows]
    size = sum(lengths) * engine.model.config.width * BYTES_A_FIGURE
    return EncodedRows((rows, role), lengths, [1] * len(rows), cut, size)


def encode_prompts(
    engine: Engine, texts: Sequence[str], first_number: int, options: Options
) -> EncodedRows:
    """Encode prompts for a decoder, as a pair (prompts, top).

    Raises:
        Refusal: a prompt exceeds the maximum length, or the model cannot score prompts.
    """
    prompts: list[PromptTokens] = _each(
        lambda text, _: prompt_tokens(engine.model, text), texts, first_number, options
    )
    lengths = [len(prompt.ids) for prompt in prompts]
    payload = (prompts, options.top or 0)
    return EncodedRows(payload, lengths, [1] * len(texts), [False] * len(texts))


# ------------------------------------------------------------ on the device
@dataclass(frozen=True)
class TaskPayload:
    """Encoded rows of a task."""

    predictor: TaskPredictor
    encoded: Encoded

    def steps(self) -> Steps[Outputs]:
        """Return the steps that generate the outputs of a text-generating task."""
        predictor = self.predictor
        assert isinstance(predictor, Predictor)
        return predictor.task_type.steps(predictor.objective, self.encoded, predictor.collation)


def read_scores(payloads: Sequence[TaskPayload]) -> list[Any]:
    """Return the scores of each payload; heads and adapters may differ, but not the backbone."""
    requests = [(payload.predictor, payload.encoded) for payload in payloads]
    return payloads[0].predictor.outputs_of_all(requests)


def read_states(engine: Engine, payloads: Sequence[EncodedExamples]) -> list[list[Any]]:
    """Return the last hidden states, (T, D) float32, of each row of each payload."""
    token_ids: list[Any] = []
    segments: list[Any] | None = None if payloads[0].segments is None else []
    for examples in payloads:
        boundaries = first_places(examples.texts.lengths)[1:]
        token_ids += np.split(examples.texts.tokens, boundaries)
        if segments is not None:
            assert examples.segments is not None
            segments += np.split(examples.segments, boundaries)
    states = iter(hidden(engine.network(), token_ids, segments))
    return [
        [finite(next(states)).float().cpu().numpy() for _ in examples.texts.lengths]
        for examples in payloads
    ]


def read_token_vectors(
    engine: Engine, payloads: Sequence[tuple[list[TokenRow], Role]]
) -> list[list[Any]]:
    """Return the vectors of the tokens, (T, D) float32, of each row of each payload."""
    assert engine.late is not None
    return [engine.late.vectors(engine.network(), rows, role) for rows, role in payloads]


def read_masks(
    engine: Engine, payloads: Sequence[tuple[list[MaskedText], int]]
) -> list[list[tuple[MaskedText, list[Any]]]]:
    """Return each text of each payload (texts, top) with the `top` predictions for its masks."""
    texts = [text for payload_texts, _ in payloads for text in payload_texts]
    max_top = max(top for _, top in payloads)
    by_text = iter(fill_mask.read_masks(engine.model, engine.network(), texts, max_top))
    return [
        [(text, _best(next(by_text), top)) for text in payload_texts]
        for payload_texts, top in payloads
    ]


def read_prompts(
    engine: Engine, payloads: Sequence[tuple[list[PromptTokens], int]]
) -> list[list[tuple[PromptTokens, list[TokenScore]]]]:
    """Return each prompt of each payload (prompts, top) with the log-probabilities of its tokens
    and of the `top` likeliest tokens at each position."""
    prompt_ids = [prompt.ids for payload_prompts, _ in payloads for prompt in payload_prompts]
    max_top = max(top for _, top in payloads)
    by_prompt = iter(prompt_scores(engine.network(), prompt_ids, max_top))
    return [
        [(prompt, [(p, best[:top]) for p, best in next(by_prompt)]) for prompt in payload_prompts]
        for payload_prompts, top in payloads
    ]


def _best(holes: Sequence[HolePrediction | Hole], top: int) -> list[Any]:
    """Return the predictions of masks with their `top` best candidates only."""
    return [
        replace(hole, candidates=hole.candidates[:top])
        if isinstance(hole, Hole)
        else replace(hole, ids=hole.ids[:top], probabilities=hole.probabilities[:top])
        for hole in holes
    ]


# ------------------------------------------------------------------------------ log-probabilities
class TokenLogprob(NamedTuple):
    """The log-probability of a token.

    Attributes:
        token: the text of the token.
        logprob: in nats; None for the first token of a prompt.
        best: the likeliest tokens in its place: log-probabilities by token text, or None.
        offset: the index of its first character.
    """

    token: str
    logprob: float | None
    best: dict[str, float] | None
    offset: int


def logprobs_of_prompt(
    tokenizer: Tokenizer, prompt: PromptTokens, scores: Sequence[TokenScore]
) -> list[TokenLogprob]:
    """Return the log-probabilities of a prompt; `scores` has those of all its ids but the first."""
    text_scores = scores[len(scores) + 1 - len(prompt.text_ids) :]
    logprobs = []
    for nth, (token, offset) in enumerate(zip(prompt.text_ids, prompt.offsets, strict=True)):
        logprob, best = (None, None) if nth == 0 else text_scores[nth - 1]
        named = None if best is None else likeliest(tokenizer, best)
        logprobs.append(TokenLogprob(tokenizer.decode([token], False), logprob, named, offset))
    return logprobs


def likeliest(tokenizer: Tokenizer, tokens: Sequence[tuple[int, float]]) -> dict[str, float]:
    """Return log-probabilities by token text, of equal texts the first; `tokens` are pairs (token
    id, log-probability) in descending order."""
    logprobs: dict[str, float] = {}
    for token, logprob in tokens:
        logprobs.setdefault(tokenizer.decode([token], False), logprob)
    return logprobs
