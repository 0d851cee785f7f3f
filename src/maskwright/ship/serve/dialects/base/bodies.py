"""Bodies of requests: every field has a type, an unknown field is refused, and texts are texts."""

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
    """A body, or a part of one; nothing is converted and nothing passed over."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


def _wrong(message: str) -> PydanticCustomError:
    """A fault, in these words alone."""
    return PydanticCustomError("wrong", "{what}", {"what": message})


def sound(value: Any) -> Any:
    """Refuse what no text holds, in strings at any depth."""
    if isinstance(value, str):
        if "\0" in value:
            raise _wrong("a text holds the character NUL")
        if SURROGATE.search(value):
            raise _wrong("a text holds half of a surrogate pair, which is no character")
    elif isinstance(value, list):
        for element in value:
            sound(element)
    return value


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _texts(value: Any) -> Any:
    fits = isinstance(value, str) or (
        isinstance(value, list)
        and (
            all(isinstance(element, str) for element in value)
            or all(map(_is_id, value))
            or all(isinstance(element, list) and all(map(_is_id, element)) for element in value)
        )
    )
    if not fits:
        raise _wrong("wanted a text, a list of texts, token ids, or a list of lists of these")
    return sound(value)


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
    return sound(value)


def _many(value: Any) -> Any:
    is_text = isinstance(value, str)
    if not (
        is_text or (isinstance(value, list) and all(isinstance(element, str) for element in value))
    ):
        raise _wrong("wanted a text, or a list of texts")
    return sound(value)


Text = Annotated[str, BeforeValidator(sound)]
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
    """The texts that were given, one or several; of token ids those that they spell.

    Raises:
        Refusal: ids that spell no text, so that other ids would be read.
    """
    if isinstance(inputs, str):
        return [inputs]
    if inputs and isinstance(inputs[0], int):
        return [_spelled(inputs, model, field)]
    return [
        text_or_ids
        if isinstance(text_or_ids, str)
        else _spelled(text_or_ids, model, f"{field}[{number}]")  # type: ignore[arg-type]
        for number, text_or_ids in enumerate(inputs)
    ]


def _spelled(ids: Sequence[int], model: ModelReference, field: str) -> str:
    tokenizer = model.tokenizer
    try:
        text = tokenizer.decode(ids)
    except MaskwrightError as error:
        raise Refusal(
            "validation", "a token id outside the vocabulary", field=field, limit=error.wanted
        ) from error
    plain = tokenizer.encode(text) if text.strip() else []
    if list(ids) not in (plain, tokenizer.frame(plain)[0]):
        reason = "these token ids are those of no text; give the text"
        raise Refusal("validation", reason, field=field)
    return text


def refuse_set(body: BaseModel, usual: dict[str, Any], why: str, within: str = "") -> None:
    """Refuse fields that are set to something that is not done here.

    Args:
        usual: the values that change nothing, by field; None, which is no setting, never does.
        within: where the fields stand in the request, such as "parameters.".

    Raises:
        Refusal: naming the first.
    """
    for name, plain in usual.items():
        value = getattr(body, name)
        if value is not None and value != plain:
            raise Refusal("validation", f"{why}; leave it out", field=f"{within}{name}")
