"""Every bound of a server, as one value; and what a request has used of those that bound it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from maskwright.base.errors import UsageError
from maskwright.ship.serve.errors import Refusal

# Of an answer, as estimated before it is computed: a larger one would hold up all other requests.
MOST_ANSWER_BYTES = 40_000_000


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a server takes at most.

    Attributes:
        max_wait_seconds: a request is taken in if what waits before it takes no longer than this,
            at the rate at which the queue empties; else 429.
        max_queue_tokens: tokens that may wait, whatever the rate; beyond them 429.
        max_batch_tokens: tokens that are read together at most, unless one text has more.
        max_writing_tokens: positions of texts that are written at the same time, prompts included.
        max_input_characters: characters of one text.
        max_items: texts of one request, however its body divides or multiplies them.
        max_body_bytes: bytes of a request's body.
        max_connections: connections at the same time.
        deadline: seconds until a request is given up.
        linger_ms: milliseconds that a lone request waits for others; for tiny models.
        drain_seconds: seconds that requests have to end in when the server is asked to stop.
    """

    max_wait_seconds: float = 1.0
    max_queue_tokens: int = 32_768
    max_batch_tokens: int = 4_096
    max_writing_tokens: int = 16_384
    max_input_characters: int = 200_000
    max_items: int = 128
    max_body_bytes: int = 1_048_576
    max_connections: int = 512
    deadline: float = 30.0
    linger_ms: float = 0.0
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least: float = 0 if field.name == "linger_ms" else 1
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


class Budget:
    """What one request has used of its limits. They hold for all that is asked for it together:
    the instances of a body, the texts beside each label, the copies of each prompt.

    Attributes:
        began: when its body had come, which its deadline counts from.
        facts: what its answer's headers say of it.
        is_admitted: whether a part of it is in the queue already.
    """

    def __init__(self, limits: Limits, facts: dict[str, str] | None = None) -> None:
        self.limits, self.facts = limits, {} if facts is None else facts
        self.began, self.is_admitted = time.monotonic(), False
        self._used: Counter[str] = Counter()

    def require_inputs(self, count: int, field: str) -> None:
        """Refuse inputs that would be too many, before they are made.

        Raises:
            Refusal: naming field and limit, as all methods here.
        """
        count, most = count + self._used["inputs"], self.limits.max_items
        if count > most:
            what = f"{count} inputs in one request"
            raise Refusal("validation", what, field=field, limit=most)

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
                    what, where = f"a text of {size} characters", f"{field}[{number}]"
                    raise Refusal("too_large", what, field=where, limit=longest)
                characters += size
        # As many as a body can hold: a text that is read beside several others counts each time.
        self._take("characters", characters, self.limits.max_body_bytes, field)

    def take_tokens(self, count: int, field: str | None = None) -> None:
        """Count tokens that are read or written."""
        self._take("tokens", count, self.limits.max_queue_tokens, field)

    def take_answer(self, size: int, field: str) -> None:
        """Count bytes that an answer will have."""
        self._take("bytes to answer with", size, MOST_ANSWER_BYTES, field)

    def _take(self, what: str, count: int, most: int, field: str | None) -> None:
        self._used[what] += count
        if self._used[what] > most:
            sentence = f"the request has {self._used[what]} {what}"
            raise Refusal("too_large", sentence, field=field, limit=most)


def texts_of(row: Any) -> Iterator[str]:
    """The texts in a row, however it is given."""
    if isinstance(row, str):
        yield row
    elif isinstance(row, Mapping):
        for value in row.values():
            yield from texts_of(value)
    elif isinstance(row, list | tuple):
        for value in row:
            yield from texts_of(value)
