"""Encoding of the rows of a request, on tokenizer threads, and their computation, on the device
thread.

The rows of a request are divided into parts of limited size, each of which is a queue item. A row
may also be answered with the log-probabilities of its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
from maskwright.model.opening.folders import Model
from maskwright.ship.serve.errors import Refusal, of_error, texts_of
from maskwright.text.tokenizer.tokenizer import Tokenizer

# Maximum rows and characters of one item.
PART_ROWS, PART_CHARACTERS = 32, 8_192


@dataclass(frozen=True)
class EncodedRows:
    """Some rows of a request, encoded.

    Attributes:
        lengths: the number of tokens of each row.
        windows: the number of windows of each row.
        truncated: whether each row was truncated.
    """

    lengths: list[int]
    windows: list[int]
    truncated: list[bool]


def split_rows(rows: Sequence[Any]) -> Iterator[range]:
    """Yield the range of row numbers of each part."""
    begin, characters = 0, 0
    for number, row in enumerate(rows):
        row_characters = sum(map(len, texts_of(row)))
        if number > begin and (
            characters + row_characters > PART_CHARACTERS or number - begin == PART_ROWS
        ):
            yield range(begin, number)
            begin, characters = number, 0
        characters += row_characters
    if begin < len(rows):
        yield range(begin, len(rows))


def answering_as(
    predictor: TaskPredictor, task_options: Mapping[str, Any], truncate: bool | str
) -> TaskPredictor:
    """Return a predictor that encodes and answers with other options of its task; `truncate`:
    "left" keeps the end of a text that is too long, if training kept its beginning."""
    if task_options:
        predictor = predictor.with_task(predictor.task_type.with_options(task_options))
    if truncate == "left" and isinstance(predictor, Predictor) and predictor.frame.long == "head":
        return replace(predictor, frame=replace(predictor.frame, keeps_end=True))
    return predictor


def _each(
    function: Callable[[Any, str], Any], rows: Sequence[Any], first_number: int, field: str
) -> list[Any]:
    """Return `function(row, its field in the request)` for each row; a refusal names the field."""
    values = []
    for number, row in enumerate(rows, start=first_number):
        where = f"{field}[{number}]"
        try:
            values.append(function(row, where))
        except Exception as error:
            raise of_error(error, where) from error
    return values


def encode(
    predictor: TaskPredictor,
    rows: Sequence[Any],
    first_number: int,
    long: LongText,
    field: str = "inputs",
    truncation_hint: str = "truncate",
) -> tuple[Encoded, EncodedRows]:
    """Encode rows for a task.

    Args:
        first_number: the number of the first of these rows in the request.
        long: how to encode texts that exceed the maximum length.
        truncation_hint: the option that would truncate such texts, for error messages.

    Raises:
        Refusal: a row has the wrong form, or is too long and may not be truncated.
    """
    parsed_rows = _each(predictor.row, rows, first_number, field)
    try:
        encoded = predictor.with_long_texts(long).encode(parsed_rows)
    except DataError as error:
        reason = f"{error.what}, by {error.found}; shorten it, or say {truncation_hint}"
        limit = f"{predictor.longest} tokens"
        raise Refusal("validation", reason, field=error.where or field, limit=limit) from error
    assert encoded.extent is not None
    tokens, windows, truncated = (
        column.tolist()
        for column in (encoded.extent.tokens, encoded.extent.windows, encoded.extent.cut > 0)
    )
    return encoded, EncodedRows(tokens, windows, truncated)


def encode_masked(
    model: Model, texts: Sequence[str], first_number: int, field: str, targets: Sequence[str] = ()
) -> tuple[list[MaskedText], EncodedRows]:
    """Encode texts with masks, each in windows around its masks.

    Raises:
        Refusal: a text has no mask, or a target no token.
    """
    masked_texts: list[MaskedText] = _each(
        lambda text, _: masked_text(model, text, windows=True, targets=targets),
        texts,
        first_number,
        field,
    )
    tokens = [text.num_tokens for text in masked_texts]
    windows = [text.num_windows for text in masked_texts]
    return masked_texts, EncodedRows(tokens, windows, [False] * len(texts))


def encode_tokens(
    engine: Engine,
    texts: Sequence[str],
    role: Role,
    first_number: int,
    field: str,
    truncate: bool | str,
) -> tuple[list[TokenRow], EncodedRows]:
    """Encode texts for a multi-vector encoder; `truncate` as in `answering_as`.

    Raises:
        Refusal: a text is too long and may not be truncated.
    """
    late = engine.late
    assert late is not None
    rows = late.encode(texts, role, keeps_end=truncate == "left")
    for number, row in enumerate(rows, start=first_number):
        if row.cut and not truncate:
            reason, limit = "the text is too long; shorten it, or say truncate", late.lengths[role]
            raise Refusal("validation", reason, field=f"{field}[{number}]", limit=limit)
    lengths, cut = [len(row.ids) for row in rows], [row.cut > 0 for row in rows]
    return rows, EncodedRows(lengths, [1] * len(rows), cut)


def encode_prompts(
    model: Model, texts: Sequence[str], first_number: int, field: str
) -> tuple[list[PromptTokens], EncodedRows]:
    """Encode prompts for a decoder.

    Raises:
        Refusal: a prompt exceeds the maximum length, or the model cannot score prompts.
    """
    prompts: list[PromptTokens] = _each(
        lambda text, _: prompt_tokens(model, text), texts, first_number, field
    )
    lengths = [len(prompt.ids) for prompt in prompts]
    return prompts, EncodedRows(lengths, [1] * len(texts), [False] * len(texts))


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
@dataclass
class Logprobs:
    """Log-probabilities of a text, as lists with one element per token.

    Attributes:
        tokens: the texts of the tokens.
        logprobs: the log-probabilities in nats; None for the first token of a prompt.
        best: the likeliest tokens at each position: log-probabilities by token text, or None.
        offsets: the index of the first character of each token.
    """

    tokens: list[str] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    best: list[dict[str, float] | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def add(
        self, token: str, logprob: float | None, best: dict[str, float] | None, offset: int
    ) -> None:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.best.append(best)
        self.offsets.append(offset)

    def extend(self, logprobs: Logprobs) -> None:
        """Append the tokens of another text."""
        self.tokens += logprobs.tokens
        self.logprobs += logprobs.logprobs
        self.best += logprobs.best
        self.offsets += logprobs.offsets


def logprobs_of_prompt(
    tokenizer: Tokenizer, prompt: PromptTokens, scores: Sequence[TokenScore]
) -> Logprobs:
    """Return the log-probabilities of a prompt; `scores` has those of all its ids but the first."""
    logprobs = Logprobs()
    text_scores = scores[len(scores) + 1 - len(prompt.text_ids) :]
    for nth, (token, offset) in enumerate(zip(prompt.text_ids, prompt.offsets, strict=True)):
        logprob, best = (
            (None, None) if nth == 0 else (text_scores[nth - 1][0], text_scores[nth - 1][1])
        )
        text = tokenizer.decode([token], False)
        logprobs.add(text, logprob, None if best is None else likeliest(tokenizer, best), offset)
    return logprobs


def likeliest(tokenizer: Tokenizer, tokens: Sequence[tuple[int, float]]) -> dict[str, float]:
    """Return log-probabilities by token text, of equal texts the first; `tokens` are pairs (token
    id, log-probability) in descending order."""
    logprobs: dict[str, float] = {}
    for token, logprob in tokens:
        logprobs.setdefault(tokenizer.decode([token], False), logprob)
    return logprobs
