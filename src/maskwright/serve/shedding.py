"""Requests that are refused at the price of their head: while the queue is full, most of what comes
is refused, and reading each as HTTP in full would take the time of those that are answered.

    shed(b"POST /predict HTTP/1.1\\r\\n…")  ->  Shed(the answer's bytes, bytes of the body to come)
                                           or None: it is read as any other

Only a plain request is shed: POST to a plain path, the head in one piece, a length, nothing that
changes how a body is read. It passes the checks of the gate that come before those of the queue;
where one of them objects, it is read as any other and hears of that. The answer is, byte for byte
but for its id, the one that the gate would have given.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from starlette.responses import Response

from maskwright.serve.errors import Refusal
from maskwright.serve.gate import HEADERS, MAX_HEADER_BYTES, Gate, new_id
from maskwright.serve.host import BYTES_A_TOKEN

END = b"\r\n\r\n"
FIRST = re.compile(rb"POST ((?:/[A-Za-z0-9_.-]+)+|/) HTTP/1\.1")
FIELD = re.compile(rb"([A-Za-z0-9-]+):[ \t]*([!-~]|[!-~][ -~\t]*[!-~])?[ \t]*")
LENGTH = re.compile(rb"[0-9]{1,12}")
# What changes how the body is read, or what else the answer says.
UNUSUAL = {b"transfer-encoding", b"expect", b"upgrade", b"origin", b"content-encoding", b"trailer"}
# So many answers are kept that differ by their path or by when to come again.
ANSWERS = 200


@dataclass(frozen=True)
class Shed:
    """A request that is refused.

    Attributes:
        answer: what is sent.
        body: bytes of its body that are still to come.
    """

    answer: bytes
    body: int


class Shedding:
    """Refuses what comes while the queue is full."""

    def __init__(self, gate: Gate) -> None:
        self._gate, self._host = gate, gate.host
        self._answers: dict[tuple[str, str], _Answer] = {}
        self._taken = 0  # tokens, as estimated, of what was let through in this turn of the loop

    def __call__(self, data: bytes, default: Sequence[tuple[bytes, bytes]]) -> Shed | None:
        """What becomes of a connection's next bytes; `default` are headers that the HTTP server
        adds to every answer."""
        if self._host.draining or not self._host.ready:
            return None
        if (refusal := self._host.overloaded(self._taken)) is None:
            at = data.find(END)
            self._take(0 if at < 0 else (len(data) - at - len(END)) // BYTES_A_TOKEN)
            return None
        head, end, body = data.partition(END)
        if not end or len(head) > MAX_HEADER_BYTES:
            return None
        line, *fields = head.split(b"\r\n")
        headers: dict[bytes, list[bytes]] = {}
        for field in fields:
            if (found := FIELD.fullmatch(field)) is None:
                return None
            headers.setdefault(found[1].lower(), []).append(found[2] or b"")
        first, lengths = FIRST.fullmatch(line), headers.get(b"content-length", [])
        if first is None or len(lengths) != 1 or not LENGTH.fullmatch(lengths[0]):
            return None
        keeps = headers.get(b"connection", [b"keep-alive"])
        if UNUSUAL & headers.keys() or [each.lower() for each in keeps] != [b"keep-alive"]:
            return None
        left, path = int(lengths[0]) - len(body), first[1].decode()
        if left < 0 or not self._is_taken(path, headers):
            return None
        request = new_id()
        made = self._answer(path, refusal)
        self._gate.note(request, "POST", None, refusal.status, refusal.kind, 0.0)
        return Shed(made.with_head(default, request), left)

    def _take(self, tokens: int) -> None:
        """Count what is let through until the gate does, which is in the loop's next turn."""
        if tokens and not self._taken:
            asyncio.get_running_loop().call_soon(self._forget)
        self._taken += tokens

    def _forget(self) -> None:
        self._taken = 0

    def _is_taken(self, path: str, headers: dict[bytes, list[bytes]]) -> bool:
        """Whether nothing but the full queue is against the request."""
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name, value) for name, values in headers.items() for value in values],
        }
        try:
            return self._gate.takes_post(scope, headers)
        except Refusal:
            return False

    def _answer(self, path: str, refusal: Refusal) -> _Answer:
        key = (path, refusal.headers["retry-after"])
        if key not in self._answers:
            if len(self._answers) >= ANSWERS:
                self._answers.clear()
            response = self._gate.application.refusal({"path": path, "headers": []}, refusal)
            self._answers[key] = _Answer(response)
        return self._answers[key]


class _Answer:
    """A response as bytes, but for what differs from one to the next."""

    def __init__(self, response: Response) -> None:
        status = HTTPStatus(response.status_code)
        self._first = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
        self._own = _lines([*response.raw_headers, *HEADERS, (b"vary", b"Origin")])
        self._body = bytes(response.body)

    def with_head(self, default: Sequence[tuple[bytes, bytes]], request: str) -> bytes:
        own = _lines([(b"x-request-id", request.encode())])
        return b"".join((self._first, _lines(default), self._own, own, b"\r\n", self._body))


def _lines(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%s: %s\r\n" % each for each in headers)
