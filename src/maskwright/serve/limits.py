"""Every bound of a server, as one value."""

from __future__ import annotations

from dataclasses import dataclass, fields

from maskwright.errors import UsageError


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
        max_items: texts of one request.
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
