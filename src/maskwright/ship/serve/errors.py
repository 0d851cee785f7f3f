"""The errors that clients get. Every dialect renders them in its own format.

A refusal names the field and the limit, but never a path of this machine or a traceback. Quoted
parts of a request are truncated, so that no response is longer than 4 KB.
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
    "validation": 422,  # the body or a field is invalid
    "malformed": 400,  # the body is not JSON, or invalid HTTP
    "unauthorised": 401,  # no token, or a wrong one
    "forbidden": 403,  # the request comes from another site
    "not_found": 404,  # no such path, model, adapter
    "method": 405,  # the path has other methods
    "timeout": 408,  # the deadline passed
    "too_large": 413,  # the body, or more than can be answered
    "long_url": 414,  # the URL has too many bytes
    "media_type": 415,  # not application/json
    "host": 421,  # not a name of this server
    "model": 424,  # the model lacks the ability
    "weights": 424,  # outputs of the model are not finite
    "overloaded": 429,  # the queue is full
    "headers": 431,  # too many or too long
    "backend": 500,  # the computation failed
    "unready": 503,  # models are loading, or the server stops
}
# Maximum characters of a reason, and of a quoted part of a request.
LONGEST, QUOTED = 1_200, 80


class Refusal(Exception):  # noqa: N818 - a response to a client, not a fault
    """An error response to a request.

    Args:
        kind: the kind of error, which determines the HTTP status.
        reason: one sentence in lower case, without a full stop.
        field: the invalid field of the body, such as "inputs[3]".
        limit: the limit that was exceeded, or the allowed values.
        retry_after: seconds after which the client may retry.
        allow: the methods of the path, for kind "method".
    """

    def __init__(
        self,
        kind: Kind,
        reason: str,
        *,
        field: str | None = None,
        limit: int | float | str | None = None,
        retry_after: float | None = None,
        allow: tuple[str, ...] = (),
    ) -> None:
        self.kind: Kind = kind
        self.reason = shorten(reason, LONGEST)
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
        """The reason with field and limit, for formats that have no fields for these."""
        where = "" if self.field is None else f"{self.field}: "
        limit = "" if self.limit is None else f" (limit: {self.limit})"
        return f"{where}{self.reason}{limit}"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response, common to all dialects."""
        fields = {}
        if self.retry_after is not None:
            fields["retry-after"] = str(max(1, round(self.retry_after)))
        if self.allow:
            fields["allow"] = ", ".join(self.allow)
        if self.kind == "unauthorised":
            fields["www-authenticate"] = "Bearer"
        return fields


def of_error(error: BaseException, field: str | None = None, model: str | None = None) -> Refusal:
    """Convert an error of the library to a refusal. Errors that are caused neither by the request
    nor by `model` are not described to the client."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, IncompatibleError):
        return Refusal("model", _sentence(error, with_place=False), field=field)
    if isinstance(error, CheckpointError) and model is not None:
        return Refusal("weights", f"{model}: {_sentence(error, with_place=False)}")
    if isinstance(error, DataError | UsageError):
        return Refusal("validation", _sentence(error, with_place=field is None), field=field)
    return Refusal("backend", "the computation failed; the server's log has the request's id")


def _sentence(error: MaskwrightError, *, with_place: bool) -> str:
    clauses = [error.what]
    if with_place and error.where:
        clauses.append(f"at {shorten(error.where, QUOTED)}")
    if error.found:
        clauses.append(f"found {shorten(error.found, QUOTED)}")
    if error.wanted:
        clauses.append(f"wanted {shorten(error.wanted, 200)}")
    return "; ".join(clauses)
