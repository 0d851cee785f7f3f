"""Rows of a request as what is computed, and back. All of it runs on threads beside the event loop.

A request's rows are divided into parts of limited size, each of which is one item of the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from maskwright.ask.predict import texts as inference_texts
from maskwright.ask.predict.predictor import Predictor
from maskwright.ask.predict.texts import MaskedText, PromptTokens
from maskwright.base.errors import DataError
from maskwright.learn.tasks.base.choices import LongText
from maskwright.learn.tasks.base.encode import asking
from maskwright.learn.tasks.base.task_type import Encoded
from maskwright.model.opening.model import Model
from maskwright.ship.serve.errors import Refusal, of_error
from maskwright.ship.serve.limits import texts_of

# Rows, and characters, that are encoded and computed as one item.
PART_ROWS, PART_CHARACTERS = 32, 8_192


@dataclass(frozen=True)
class Part:
    """Some rows of a request, encoded.

    Attributes:
        encoded: as the task encodes them; None of texts that belong to no task.
        lengths: tokens of each row as they are read.
        windows: in how many windows each is read.
        truncated: whether something of it was cut.
    """

    encoded: Encoded | None
    lengths: list[int]
    windows: list[int]
    truncated: list[bool]


def parts_of(rows: Sequence[Any]) -> Iterator[range]:
    """Numbers of rows that make one item."""
    begin, characters = 0, 0
    for number, row in enumerate(rows):
        own = sum(map(len, texts_of(row)))
        if number > begin and (characters + own > PART_CHARACTERS or number - begin == PART_ROWS):
            yield range(begin, number)
            begin, characters = number, 0
        characters += own
    if begin < len(rows):
        yield range(begin, len(rows))


def encode(
    predictor: Predictor,
    rows: Sequence[Any],
    first: int,
    long: LongText,
    field: str = "inputs",
    cutting: str = "truncate",
) -> Part:
    """Rows as the model reads them; `first` is the number of the first of them in the request, and
    `cutting` what it would say so that they are cut.

    Raises:
        Refusal: a row of another shape, or, unless it may be cut, one that is too long.
    """
    found = []
    for number, row in enumerate(rows, start=first):
        where = f"{field}[{number}]"
        try:
            found.append(predictor.row(row, where))
        except Exception as error:
            raise of_error(error, where) from error
    frame = asking(predictor.frame, long)
    try:
        encoded = predictor.task_type.encode(found, frame)
    except DataError as error:
        what = f"{error.what}, by {error.found}; shorten it, or say {cutting}"
        limit = f"{frame.length} tokens"
        raise Refusal("validation", what, field=error.where or field, limit=limit) from error
    assert encoded.extent is not None
    tokens, windows, cut = (
        each.tolist()
        for each in (encoded.extent.tokens, encoded.extent.windows, encoded.extent.cut > 0)
    )
    return Part(encoded, tokens, windows, cut)


def encode_masked(
    model: Model, texts: Sequence[str], first: int, field: str
) -> tuple[list[MaskedText], Part]:
    """Texts with masks, each judged in the window around it.

    Raises:
        Refusal: a text without a mask.
    """
    found = []
    for number, text in enumerate(texts, start=first):
        try:
            found.append(inference_texts.masked_text(model, text, windows=True))
        except Exception as error:
            raise of_error(error, f"{field}[{number}]") from error
    tokens, windows = [each.num_tokens for each in found], [each.num_windows for each in found]
    return found, Part(None, tokens, windows, [False] * len(texts))


def encode_prompts(
    model: Model, texts: Sequence[str], first: int, field: str
) -> tuple[list[PromptTokens], Part]:
    """Prompts as the model goes on from them.

    Raises:
        Refusal: one that is longer than the model reads; a model that scores no prompts.
    """
    found: list[PromptTokens] = []
    for number, text in enumerate(texts, start=first):
        try:
            found += inference_texts.prompt_tokens(model, [text])
        except Exception as error:
            raise of_error(error, f"{field}[{number}]") from error
    lengths = [len(each.ids) for each in found]
    return found, Part(None, lengths, [1] * len(texts), [False] * len(texts))
