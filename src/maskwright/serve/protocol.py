"""HTTP/1.1 with deadlines: uvicorn's protocol on h11, which by itself waits without end.

    headers       10 s after the connection, or after their first byte
    body          10 s, and 1 s more for each 64 KB that came
    an answer     30 s without a byte taken by its reader
    connections   a bounded number

While the queue is full, requests are refused before they are read as HTTP (`shedding.py`).

A connection whose request was refused before its body was read is closed in peace: the answer is
sent, and what still comes is thrown away for a moment, since a reset would destroy the answer.
"""

from __future__ import annotations

import asyncio
import select
import sys
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from maskwright.serve.shedding import Shedding

HEADER_SECONDS = 10.0
BODY_SECONDS, BYTES_A_SECOND = 10.0, 65_536
WRITE_SECONDS = 30.0
LINGER_SECONDS, LINGER_BYTES = 2.0, 4_194_304
# More than this is sent without waiting for the end of the loop's turn.
HELD_BYTES = 65_536


class _Transport:
    """A transport that sends what is written in one turn of the loop at once, as head and body of
    an answer are, and whose `close` lets the peer finish what it was sending."""

    def __init__(self, transport: asyncio.Transport, protocol: Protocol) -> None:
        self._transport, self._protocol = transport, protocol
        self._held: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not data:
            return
        if not self._held:
            self._protocol.loop.call_soon(self.flush)
        self._held.append(data)
        if sum(map(len, self._held)) > HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        held, self._held = self._held, []
        if held and not self._transport.is_closing():
            self._transport.write(b"".join(held))

    def close(self) -> None:
        self.flush()
        self._protocol.close_in_peace(self._transport)


class Protocol(H11Protocol):
    """One connection."""

    max_connections = 512
    # What refuses requests at once; None: nothing does.
    shedding: Shedding | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._since, self._received = 0.0, 0
        self._phase = ""
        self._lingers = False
        self._unwanted = 0  # bytes of the body of a request that was refused at once
        self._was_answered = False
        self.last_used = time.monotonic()

    # -------------------------------------------------------------------------------- events
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = _Transport(transport, self)  # type: ignore[assignment]
        self.flow._transport = transport
        if len(self.connections) > self.max_connections:
            self._say(503, "too many connections")
            return
        self._look()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._lingers:
            if self._received > LINGER_BYTES:
                self.transport.abort()
            return
        self.last_used = time.monotonic()
        if self._unwanted:
            unwanted = min(self._unwanted, len(data))
            self._unwanted, data = self._unwanted - unwanted, data[unwanted:]
        if data and not self._is_shed(data):
            super().data_received(data)
        self._look()

    def _is_shed(self, data: bytes) -> bool:
        """Whether these bytes are a request that was refused at once."""
        between = self.cycle is None or self.cycle.response_complete
        if self.shedding is None or not between or self.conn.their_state is not h11.IDLE:
            return False
        if self._part_of_headers() or self.transport.is_closing():
            return False
        shed = self.shedding(data, self.server_state.default_headers)
        if shed is None:
            return False
        self._unwanted, self._was_answered = shed.body, True
        self.transport.write(shed.answer)
        self.on_response_complete()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._writing):
            if timer is not None:
                timer.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        if self._lingers:
            self.transport.abort()

    def on_response_complete(self) -> None:
        self.last_used = time.monotonic()
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(WRITE_SECONDS, self._abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def send_400_response(self, msg: str) -> None:
        error = sys.exc_info()[1]
        status = getattr(error, "error_status_hint", 400)
        self._say(status, "no HTTP request that this server understands")

    # ------------------------------------------------------------------------------ deadlines
    def _look(self) -> None:
        """Set the deadline of what is waited for now."""
        if self.transport.is_closing() or self._lingers:
            return
        state = self.conn.their_state
        known = self.cycle is not None or self._was_answered
        phase = {h11.IDLE: "headers", h11.SEND_BODY: "body"}.get(state, "")
        if self._unwanted:
            phase = "body"
        elif state is h11.IDLE and known and not self._part_of_headers():
            phase = ""
        if phase == self._phase:
            return
        self._phase, self._since, self._received = phase, self.loop.time(), 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if phase:
            self._timer = self.loop.call_at(self._deadline(), self._expired)

    def _part_of_headers(self) -> bool:
        return bool(self.conn.trailing_data[0])

    def _deadline(self) -> float:
        if self._phase == "headers":
            return self._since + HEADER_SECONDS
        return self._since + BODY_SECONDS + self._received / BYTES_A_SECOND

    def _expired(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if (deadline := self._deadline()) > self.loop.time():
            self._timer = self.loop.call_at(deadline, self._expired)
            return
        if self._unwanted:  # it was answered
            self.transport.close()
        else:
            self._say(408, "the request did not come in time")

    # ------------------------------------------------------------------------------- closing
    def _say(self, status: int, what: str) -> None:
        """Answer without the application, if nothing was answered yet, and close."""
        body = f'{{"error": "{what}"}}\n'.encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            reason = STATUS_PHRASES.get(status, b"")
            if self.cycle is not None:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            try:
                response = h11.Response(status_code=status, headers=headers, reason=reason)
                self.transport.write(self.conn.send(response))
                self.transport.write(self.conn.send(h11.Data(data=body)))
                self.transport.write(self.conn.send(h11.EndOfMessage()))
            except h11.LocalProtocolError:
                pass
        self.transport.close()

    def close_in_peace(self, transport: asyncio.Transport) -> None:
        """Close; where the peer is still sending, only our side at first."""
        if transport.is_closing() or self._lingers:
            return
        sending = self.conn.their_state is h11.SEND_BODY or self.conn.their_state is h11.ERROR
        if not sending or not transport.can_write_eof():
            transport.close()
            return
        self._lingers, self._received = True, 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            transport.write_eof()
            self.flow.resume_reading()
            transport.resume_reading()
        except (OSError, RuntimeError):
            transport.abort()
            return
        self.loop.call_later(LINGER_SECONDS, transport.abort)

    def close_if_idle(self, seconds: float) -> None:
        """Close where nothing is asked and nothing came for so long. What came while the event loop
        was late lies in the kernel still, and counts."""
        idle = self.cycle is None or self.cycle.response_complete
        if not idle or time.monotonic() - self.last_used < seconds or self._part_of_headers():
            return
        if not self.transport.is_closing():
            arrived = select.poll()
            arrived.register(self.transport.get_extra_info("socket"), select.POLLIN)
            if not arrived.poll(0):
                self.transport.close()

    def _abort(self) -> None:
        self.transport.abort()
