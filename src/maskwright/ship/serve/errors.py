"""What a client is refused with. Every dialect renders it in its own shape.

    validation      the body or a field is wrong             422
    malformed       the body is no JSON, or HTTP is wrong    400
    unauthorised    no token, or another one                 401
    forbidden       the request comes from another site      403
    not_found       no such path, model, adapter             404
    method          the path has other methods               405
    timeout         its deadline passed, or its body never came    408
    too_large       body, or more than can ever be answered  413
    long_url        the URL has too many bytes               414
    media_type      not application/json                     415
    host            a name this server does not go by        421
    model           the model cannot do what is wanted       424
    weights         what the model computes is no number     424
    overloaded      the queue is full                        429
    headers         too many or too long                     431
    backend         the computation failed                   500
    unready         models are loading, or it is stopping    503

A refusal names the field and the limit, and never a path of this machine or a traceback. What is
quoted of a request is cut, so that no answer is longer than 4 KB.
"""

from __future__ import annotations

from typing import Literal

from maskwright.base.errors import (
    CheckpointError,
    DataError,
    IncompatibleError,
    MaskwrightError,
    UsageError,
    shorten,
)

Kind = Literal[
    "validation",
    "malformed",
    "unauthorised",
    "forbidden",
    "not_found",
    "method",
    "timeout",
    "too_large",
    "long_url",
    "media_type",
    "host",
    "model",
    "weights",
    "overloaded",
    "headers",
    "backend",
    "unready",
]
STATUS: dict[Kind, int] = {
    "validation": 422,
    "malformed": 400,
    "unauthorised": 401,
    "forbidden": 403,
    "not_found": 404,
    "method": 405,
    "timeout": 408,
    "too_large": 413,
    "long_url": 414,
    "media_type": 415,
    "host": 421,
    "model": 424,
    "weights": 424,
    "overloaded": 429,
    "headers": 431,
    "backend": 500,
    "unready": 503,
}
# Characters of what a refusal says, and of what it quotes; an answer stays below 4 KB.
LONGEST, QUOTED = 1_200, 80


class Refusal(Exception):  # noqa: N818 - what a client is given, not a fault
    """A request that is not answered.

    Args:
        kind: what is wrong; decides the status.
        what: one sentence, lower case, without a full stop.
        field: the field of the body at fault, such as "inputs[3]".
        limit: what would have been allowed.
        retry_after: seconds after which it is worth another try.
        allow: of `method`, the methods of the path.
    """

    def __init__(
        self,
        kind: Kind,
        what: str,
        *,
        field: str | None = None,
        limit: int | float | str | None = None,
        retry_after: float | None = None,
        allow: tuple[str, ...] = (),
    ) -> None:
        self.kind: Kind = kind
        self.what = shorten(what, LONGEST)
        self.field = None if field is None else shorten(field, QUOTED)
        self.limit = limit if not isinstance(limit, str) else shorten(limit, QUOTED)
        self.retry_after = retry_after
        self.allow = allow
        super().__init__(self.message)

    @property
    def status(self) -> int:
        return STATUS[self.kind]

    @property
    def message(self) -> str:
        """The sentence with field and limit, for shapes that have no place of their own for
        them."""
        where = "" if self.field is None else f"{self.field}: "
        limit = "" if self.limit is None else f" (limit: {self.limit})"
        return f"{where}{self.what}{limit}"

    @property
    def headers(self) -> dict[str, str]:
        """Headers that belong to it in every dialect."""
        found = {}
        if self.retry_after is not None:
            found["retry-after"] = str(max(1, round(self.retry_after)))
        if self.allow:
            found["allow"] = ", ".join(self.allow)
        if self.kind == "unauthorised":
            found["www-authenticate"] = "Bearer"
        return found


def of_error(error: BaseException, field: str | None = None, model: str | None = None) -> Refusal:
    """The refusal for what the library raised, asking `model`; a fault that is neither the client's
    nor the model's says nothing of itself."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, IncompatibleError):
        return Refusal("model", _sentence(error, place=False), field=field)
    if isinstance(error, CheckpointError) and model is not None:
        return Refusal("weights", f"{model}: {_sentence(error, place=False)}")
    if isinstance(error, DataError | UsageError):
        return Refusal("validation", _sentence(error, place=field is None), field=field)
    return Refusal("backend", "the computation failed; the server's log has the request's id")


def _sentence(error: MaskwrightError, *, place: bool) -> str:
    parts = [error.what]
    if place and error.where:
        parts.append(f"at {shorten(error.where, QUOTED)}")
    if error.found:
        parts.append(f"found {shorten(error.found, QUOTED)}")
    if error.wanted:
        parts.append(f"wanted {shorten(error.wanted, 200)}")
    return "; ".join(parts)
