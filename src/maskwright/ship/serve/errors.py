"""Refusals of requests, and the limits that lead to them.

A refusal names the field and the limit, but never a path of this machine or a traceback. Quoted
parts of a request are truncated, so that no response is longer than 4 KB.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from typing import Any, Literal

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
    "empty",
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
    "empty": 400,  # no inputs
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


def deadline_refusal() -> Refusal:
    return Refusal("timeout", "the deadline passed before the answer was there")


@asynccontextmanager
async def before(deadline: float) -> AsyncIterator[None]:
    """A timeout at a time of `time.monotonic`, which raises a Refusal."""
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            yield
    except TimeoutError:
        raise deadline_refusal() from None


def _sentence(error: MaskwrightError, *, with_place: bool) -> str:
    clauses = [error.what]
    if with_place and error.where:
        clauses.append(f"at {shorten(error.where, QUOTED)}")
    if error.found:
        clauses.append(f"found {shorten(error.found, QUOTED)}")
    if error.wanted:
        clauses.append(f"wanted {shorten(error.wanted, 200)}")
    return "; ".join(clauses)


# ------------------------------------------------------------------------------ limits
# Maximum estimated bytes of a response, since larger ones would delay all other requests.
MOST_ANSWER_BYTES = 40_000_000


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a server.

    Attributes:
        max_wait_seconds: seconds that a request waits for its turn; then 429.
        max_queue_tokens: tokens that may wait, at any rate; beyond them 429.
        max_batch_tokens: tokens of a batch, unless one text has more.
        max_writing_tokens: positions of texts generated at the same time, with their prompts.
        max_input_characters: characters of one text.
        max_items: texts of one request, with all combinations and copies that it asks for.
        max_body_bytes: bytes of the body of a request.
        max_connections: connections at the same time.
        deadline: seconds until a request is given up.
        linger_ms: milliseconds that a lone request waits for others; for tiny models.
        drain_seconds: seconds that requests have to finish when the server stops.
        stop_delay_seconds: seconds after the signal to stop in which requests are still accepted,
            while /ready says no, so that balancers notice.
    """

    max_wait_seconds: float = 10.0
    max_queue_tokens: int = 32_768
    max_batch_tokens: int = 4_096
    max_writing_tokens: int = 16_384
    max_input_characters: int = 200_000
    max_items: int = 2048
    max_body_bytes: int = 4_194_304
    max_connections: int = 512
    deadline: float = 30.0
    linger_ms: float = 0.0
    drain_seconds: float = 30.0
    stop_delay_seconds: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least: float = 0 if field.name in ("linger_ms", "stop_delay_seconds") else 1
            if field.name in ("deadline", "drain_seconds", "max_wait_seconds"):
                least = 0.001
            if not value >= least:
                raise UsageError(
                    "a limit is out of range",
                    where=f"--{field.name.replace('_', '-')}",
                    found=value,
                    wanted=f"{least:g} or more",
                )
        if self.max_batch_tokens > self.max_queue_tokens:
            raise UsageError(
                "a batch is larger than the queue",
                where="--max-batch-tokens",
                found=self.max_batch_tokens,
                wanted=f"at most --max-queue-tokens, {self.max_queue_tokens}",
            )


class RequestBudget:
    """The amounts that a request has used of its limits. They apply to the sum over the instances
    of a body, the combinations of texts with labels, and the copies of prompts.

    Attributes:
        began: the time at which its body was received, or its current portion begun; deadlines are
            relative to it.
        facts: of its response, for headers, log and metrics: `model` (fingerprint), `served`
            (name), `tokens`, `queue` and `compute` (seconds).
        is_admitted: whether a part of it is already queued.
        reservation: room in the queue that is kept for it, closed once it is queued.
    """

    def __init__(self, limits: Limits, facts: dict[str, Any] | None = None) -> None:
        self.limits, self.facts = limits, {} if facts is None else facts
        self.began, self.is_admitted = time.monotonic(), False
        self.reservation = ExitStack()
        self._used: Counter[str] = Counter()

    def require_inputs(self, count: int, field: str) -> None:
        """Check a number of inputs before they are created.

        Raises:
            Refusal: a limit is exceeded; likewise in all methods of this class.
        """
        count, limit = count + self._used["inputs"], self.limits.max_items
        if count > limit:
            reason = f"{count} inputs in one request"
            raise Refusal("validation", reason, field=field, limit=limit)

    def take_rows(self, rows: Sequence[Any], field: str) -> None:
        """Count inputs, and the characters of their texts."""
        if not len(rows):
            raise Refusal("validation", "nothing to answer", field=field)
        self.require_inputs(len(rows), field)
        self._used["inputs"] += len(rows)
        longest, characters = self.limits.max_input_characters, 0
        for number, row in enumerate(rows):
            for size in map(len, texts_of(row)):
                if size > longest:
                    reason, where = f"a text of {size} characters", f"{field}[{number}]"
                    raise Refusal("too_large", reason, field=where, limit=longest)
                characters += size
        # A text that is paired with several others counts every time.
        self._take("characters", characters, self.limits.max_body_bytes, field)

    def begin_portion(self) -> None:
        """Begin another portion of the request: the tokens of those that were computed no longer
        count, and the deadline begins anew."""
        self._used["tokens"], self.began = 0, time.monotonic()

    def take_tokens(self, count: int, field: str | None = None) -> None:
        """Count tokens of inputs or generated texts."""
        self._take("tokens", count, self.limits.max_queue_tokens, field)

    def take_answer(self, size: int, field: str) -> None:
        """Count the estimated bytes of a response."""
        self._take("bytes to answer with", size, MOST_ANSWER_BYTES, field)

    def _take(self, quantity: str, count: int, limit: int, field: str | None) -> None:
        self._used[quantity] += count
        if self._used[quantity] > limit:
            reason = f"the request has {self._used[quantity]} {quantity}"
            raise Refusal("too_large", reason, field=field, limit=limit)


def texts_of(row: Any) -> Iterator[str]:
    """Yield all strings in a row, which may be nested lists, tuples or mappings."""
    if isinstance(row, str):
        yield row
    elif isinstance(row, Mapping):
        for value in row.values():
            yield from texts_of(value)
    elif isinstance(row, list | tuple):
        for value in row:
            yield from texts_of(value)
