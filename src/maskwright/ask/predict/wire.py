"""The body of POST /v1/predict. Its checksum ties the answers to the rows of the request, so that a
client notices answers that were reordered or belong to another request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any


def render(facts: dict[str, Any], rows: Sequence[Any], answers: Sequence[Any]) -> bytes:
    """The body; the answers, which may be long vectors, become text once."""
    text = to_json(answers)
    head = to_json({**facts, "checksum": checksum_of(rows, text)})
    return f'{head[:-1]},"answers":{text}}}'.encode()


def checksum_of(rows: Sequence[Any], answers: str) -> str:
    """SHA-256 of rows, and of answers in JSON."""
    return hashlib.sha256(f"{to_json(rows)}\n{answers}".encode()).hexdigest()


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
