"""Bodies of requests: typed fields, no unknown fields, and texts without invalid characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

from maskwright.base.errors import MaskwrightError
from maskwright.ship.serve.dialects.base.model_reference import ModelReference
from maskwright.ship.serve.errors import Refusal

SURROGATE = re.compile("[\ud800-\udfff]")


class Body(BaseModel):
    """A request body or a part of one, with strict types and without unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


def _wrong(message: str) -> PydanticCustomError:
    """A validation error with this message."""
    return PydanticCustomError("wrong", "{what}", {"what": message})


def valid_text(value: Any) -> Any:
    """Check strings, also in nested lists, for NUL characters and lone surrogates."""
    if isinstance(value, str):
        if "\0" in value:
            raise _wrong("a text holds the character NUL")
        if SURROGATE.search(value):
            raise _wrong("a text holds half of a surrogate pair, which is no character")
    elif isinstance(value, list):
        for element in value:
            valid_text(element)
    return value


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _texts(value: Any) -> Any:
    is_valid = isinstance(value, str) or (
        isinstance(value, list)
        and (
            all(isinstance(element, str) for element in value)
            or all(map(_is_id, value))
            or all(isinstance(element, list) and all(map(_is_id, element)) for element in value)
        )
    )
    if not is_valid:
        raise _wrong("wanted a text, a list of texts, token ids, or a list of lists of these")
    return valid_text(value)


def _ids(value: Any) -> Any:
    if not isinstance(value, list) or not (
        all(map(_is_id, value))
        or all(isinstance(element, list) and all(map(_is_id, element)) for element in value)
    ):
        raise _wrong("wanted token ids, or a list of lists of these")
    return value


def _rows(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(element, str) for element in value):
        if len(value) != 2:
            raise _wrong("a list of texts is one pair and has two; wanted [[text], [text], …]")
    elif not isinstance(value, str) and not (
        isinstance(value, list)
        and all(
            isinstance(element, list)
            and len(element) in (1, 2)
            and all(isinstance(text, str) for text in element)
            for element in value
        )
    ):
        raise _wrong("wanted a text, a pair of texts, or a list of lists of one text or two")
    return valid_text(value)


def _many(value: Any) -> Any:
    is_text = isinstance(value, str)
    if not (
        is_text or (isinstance(value, list) and all(isinstance(element, str) for element in value))
    ):
        raise _wrong("wanted a text, or a list of texts")
    return valid_text(value)


Text = Annotated[str, BeforeValidator(valid_text)]
# One text or several.
Many = Annotated[str | list[str], BeforeValidator(_many)]
# One text or several, or their token ids.
Texts = Annotated[str | list[str] | list[int] | list[list[int]], BeforeValidator(_texts)]
# Token ids of one text, or of several.
Ids = Annotated[list[int] | list[list[int]], BeforeValidator(_ids)]
# A text or a pair; or a list of texts and pairs.
TextsOrPairs = Annotated[str | list[str] | list[list[str]], BeforeValidator(_rows)]


def texts_in(
    inputs: str | list[str] | list[int] | list[list[int]], model: ModelReference, field: str
) -> list[str]:
    """Return an input as a list of texts; token ids are decoded.

    Raises:
        Refusal: token ids are not the encoding of any text.
    """
    if isinstance(inputs, str):
        return [inputs]
    if inputs and isinstance(inputs[0], int):
        return [_text_of_ids(inputs, model, field)]
    return [
        text_or_ids
        if isinstance(text_or_ids, str)
        else _text_of_ids(text_or_ids, model, f"{field}[{number}]")  # type: ignore[arg-type]
        for number, text_or_ids in enumerate(inputs)
    ]


def _text_of_ids(ids: Sequence[int], model: ModelReference, field: str) -> str:
    tokenizer = model.tokenizer
    try:
        text = tokenizer.decode(ids)
    except MaskwrightError as error:
        raise Refusal(
            "validation", "a token id outside the vocabulary", field=field, limit=error.wanted
        ) from error
    text_ids = tokenizer.encode(text) if text.strip() else []
    if list(ids) not in (text_ids, tokenizer.frame(text_ids)[0]):
        reason = "these token ids are those of no text; give the text"
        raise Refusal("validation", reason, field=field)
    return text


def refuse_unsupported(body: BaseModel, usual: dict[str, Any], why: str, within: str = "") -> None:
    """Refuse a body that has fields with unsupported values.

    Args:
        usual: the only supported value of each field, besides None.
        why: the reason, for the error message.
        within: the prefix of the fields in the request, such as "parameters.".

    Raises:
        Refusal: a field has another value.
    """
    for name, plain in usual.items():
        value = getattr(body, name)
        if value is not None and value != plain:
            raise Refusal("validation", f"{why}; leave it out", field=f"{within}{name}")
