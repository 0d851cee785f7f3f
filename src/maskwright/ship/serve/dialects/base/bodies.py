"""Bodies of requests: typed fields, no unknown fields, and texts without invalid characters."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from maskwright.base.errors import MaskwrightError, shorten
from maskwright.ship.serve.dialects.base.model_reference import ModelReference
from maskwright.ship.serve.errors import Refusal

SURROGATE = re.compile("[\ud800-\udfff]")
FAULTS = 10  # maximum number of validation errors that a response lists
BodyType = TypeVar("BodyType", bound="Body")
Condition = Callable[[Any], bool]


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


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _list_of(is_element: Condition) -> Condition:
    return lambda value: isinstance(value, list) and all(map(is_element, value))


def _one_of(description: str, *conditions: Condition) -> BeforeValidator:
    """A validator of inputs that meet one of the conditions, and whose texts are valid."""

    def check(value: Any) -> Any:
        if not any(condition(value) for condition in conditions):
            raise _wrong(f"wanted {description}")
        return valid_text(value)

    return BeforeValidator(check)


def only(supported: Any) -> AfterValidator:
    """A validator of a field whose other values are not supported; null is as good as none."""

    def check(value: Any) -> Any:
        if value is not None and value != supported:
            raise _wrong(f"not supported; leave it out, or set it to {json.dumps(supported)}")
        return value

    return AfterValidator(check)


Text = Annotated[str, BeforeValidator(valid_text)]
Number = Annotated[float, Field(allow_inf_nan=False)]
# One text or several.
Many = Annotated[
    str | list[str],
    _one_of("a text, or a list of texts", _is_text, _list_of(_is_text)),
]
# One text or several, or their token ids.
Texts = Annotated[
    str | list[str] | list[int] | list[list[int]],
    _one_of(
        "a text, a list of texts, token ids, or a list of lists of these",
        _is_text,
        _list_of(_is_text),
        _list_of(_is_id),
        _list_of(_list_of(_is_id)),
    ),
]
# Token ids of one text, or of several.
Ids = Annotated[
    list[int] | list[list[int]],
    _one_of("token ids, or a list of lists of these", _list_of(_is_id), _list_of(_list_of(_is_id))),
]
# A text or a pair; or a list of texts and pairs. A flat list is one pair.
TextsOrPairs = Annotated[
    str | list[str] | list[list[str]],
    _one_of(
        "a text, a pair of texts, or a list of lists of one text or two: [[text], [text], …]",
        _is_text,
        lambda value: _list_of(_is_text)(value) and len(value) in (0, 2),
        _list_of(lambda element: _list_of(_is_text)(element) and len(element) in (1, 2)),
    ),
]


def parse(body_type: type[BodyType], body: Any, field: str = "") -> BodyType:
    """Validate a parsed body, which lies at `field` of the body of the request.

    Raises:
        Refusal: the body does not match its schema.
    """
    try:
        return body_type.model_validate(body)
    except ValidationError as error:
        raise misfit(error.errors(include_url=False), field) from None


def misfit(faults: Sequence[Mapping[str, Any]], field: str = "") -> Refusal:
    """Return the refusal of a body at `field` with these validation errors of pydantic."""
    shown = faults[:FAULTS]
    locations = [_location(fault, field) for fault in shown]
    lines = [shown[0]["msg"]]
    lines += [f"{where}: {fault['msg']}" for where, fault in zip(locations, shown, strict=True)][1:]
    more = f"; and {len(faults) - FAULTS} more" if len(faults) > FAULTS else ""
    return Refusal("validation", shorten("; ".join(lines), 900) + more, field=locations[0])


def _location(fault: Mapping[str, Any], field: str) -> str:
    """Return the field of a validation error, without the types of a field with several types."""
    keys = [str(key) for key in fault["loc"]]
    fields = [key for key in keys if not key.startswith("_") and "[" not in key]
    return ".".join(filter(None, (field, *(fields or keys)))) or "body"


def as_list(inputs: Any) -> Any:
    """Return an input that may be one text or a list as a list."""
    return inputs if isinstance(inputs, list) else [inputs]


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
