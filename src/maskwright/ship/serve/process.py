"""The server process, and the protocol of its connections.

    SIGTERM, SIGINT     respond with `Connection: close`; after `stop_delay_seconds` accept no
                        connections; close idle connections after a moment; exit with 0 when none
                        is left
    SIGHUP              read models and keys again; from a terminal that closes: as SIGTERM; ignored
                        under nohup
    a second signal     exit at once

No request is lost: connections in the kernel's backlog are accepted before the listener closes, and
a connection is closed only after a response that announced it, or when it is idle.

The protocol is HTTP/1.1 with deadlines, based on the h11 protocol of uvicorn, which has none:

    headers       10 s after the connection was made, or after their first byte
    body          10 s, and 1 s more for each 64 KB received
    response      30 s while the client reads nothing
    connections   a maximum number, and a maximum of bytes of incomplete requests; beyond it the
                  connection that has waited the longest is closed

A client that closes its side after its request (`shutdown(SHUT_WR)`) gets the response. One that
closed both sides looks the same until data is sent: after half a second it is sent an interim
response, "100 Continue", which a closed socket rejects.

A connection whose request was refused before its body was read is closed gracefully: the response
is sent and further input is discarded for a moment, since a reset would destroy the response.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from socket import SO_ERROR, SOL_SOCKET
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from maskwright.base.errors import UsageError
from maskwright.ship.serve.errors import Refusal
from maskwright.ship.serve.gate import MAX_HEADER_BYTES, Gate
from maskwright.ship.serve.host import Host

# ------------------------------------------------------------------------------ connections
HEADER_SECONDS = 10.0
BODY_SECONDS, BYTES_A_SECOND = 10.0, 65_536
WRITE_SECONDS = 30.0
LINGER_SECONDS, LINGER_BYTES = 2.0, 4_194_304
# Maximum bytes of all incomplete request bodies together.
COMING_BYTES = 67_108_864
# Seconds between checks whether a client that has closed its side still reads.
READER_SECONDS = 0.5
TOO_MANY = "too many connections"
# Seconds until a connection beyond the maximum is refused, so that clients that connect again at
# once do not take the time of others; not beyond this multiple of the maximum.
HOLD_SECONDS, HOLD = 2.0, 4
# Buffered bytes above which writes are sent before the end of the event loop's iteration.
HELD_BYTES = 65_536


class _Transport:
    """A transport that joins the writes of one iteration of the event loop (such as headers and
    body of a response), and whose `close` lets the peer finish sending."""

    def __init__(self, transport: asyncio.Transport, protocol: HttpConnection) -> None:
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
        chunks, self._held = self._held, []
        if chunks and not self._transport.is_closing():
            self._transport.write(b"".join(chunks))

    def close(self) -> None:
        self.flush()
        self._protocol.close_gracefully(self._transport)


class HttpConnection(H11Protocol):
    """One connection; `_phase` is "headers" or "body" while that is awaited, else ""."""

    max_connections = 512

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._since, self._received = 0.0, 0
        self._phase = ""
        self._lingers = False
        self._is_held = False
        self._half_closed = False
        self.last_used = time.monotonic()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = _Transport(transport, self)  # type: ignore[assignment]
        self.flow._transport = transport
        if len(self.connections) > self.max_connections and not self._make_room(
            self._waiting_connections
        ):
            self._is_held = True
            transport.pause_reading()
            seconds = HOLD_SECONDS * (len(self.connections) <= HOLD * self.max_connections)
            self._timer = self.loop.call_later(seconds, self._refuse, 503, TOO_MANY)
            return
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._lingers:
            if self._received > LINGER_BYTES:
                self.transport.abort()
            return
        self.last_used = time.monotonic()
        super().data_received(data)
        self._set_deadline()
        if self._phase == "body":
            receiving = [c for c in self._waiting_connections if c._phase == "body"]
            if sum(c._received for c in receiving) + self._received > COMING_BYTES:
                self._make_room(receiving)

    @property
    def _waiting_connections(self) -> list[HttpConnection]:
        """The other connections that wait for their clients: for a request, for the rest of one,
        or until a response is read."""
        connections: Any = self.connections - {self}
        return [connection for connection in connections if connection._is_waited_for]

    def _make_room(self, waiting: Sequence[HttpConnection]) -> bool:
        """Close the connection that has waited the longest. Return whether there was one."""
        if not waiting:
            return False
        oldest = min(waiting, key=lambda connection: connection._since)
        if oldest._phase:
            oldest._refuse(503, TOO_MANY)
        oldest.transport.abort()
        return True

    @property
    def _is_waited_for(self) -> bool:
        is_idle = self.cycle is None or self.cycle.response_complete
        is_sending = bool(self._phase) and not self.flow.read_paused
        return not self._is_held and (is_idle or is_sending or self._writing is not None)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._writing):
            if timer is not None:
                timer.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        if self._lingers:
            self.transport.abort()
        elif self._is_answering:
            self._half_closed = True
            self._watch_reader()
        elif self._phase and self._received:
            self._refuse(400, "the request ends before its end")
        return self._half_closed

    @property
    def _is_answering(self) -> bool:
        """Whether a request was received completely and its response is incomplete."""
        cycle = self.cycle
        return cycle is not None and not (cycle.response_complete or cycle.more_body)

    def _watch_reader(self, looks: int = 0) -> None:
        """Check periodically whether a client that has closed its side still reads; else abort."""
        if not self._is_answering or self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(SOL_SOCKET, SO_ERROR):
            self.transport.abort()
            return
        if looks == 1 and not self.cycle.response_started and self.scope["http_version"] == "1.1":
            interim = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self.transport.write(self.conn.send(interim))
        self.loop.call_later(READER_SECONDS, self._watch_reader, looks + 1)

    def on_response_complete(self) -> None:
        self.last_used = time.monotonic()
        super().on_response_complete()
        self._set_deadline()
        if self._half_closed and not self._is_answering:  # no further request lies in the buffer
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def send_400_response(self, msg: str) -> None:
        error = sys.exc_info()[1]
        status = getattr(error, "error_status_hint", 400)
        self._refuse(status, "no HTTP request that this server understands")

    def _set_deadline(self) -> None:
        """Start the timer of the current phase, if the phase has changed."""
        if self.transport.is_closing() or self._lingers:
            return
        state = self.conn.their_state
        phase = {h11.IDLE: "headers", h11.SEND_BODY: "body"}.get(state, "")
        if state is h11.IDLE and self.cycle is not None and not self._part_of_headers():
            phase = ""
        if phase == self._phase:
            return
        self._phase, self._since = phase, self.loop.time()
        self._received = len(self.cycle.body) if phase == "body" and self.cycle is not None else 0
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
        if self.flow.read_paused:  # the request is in the waiting line, its body only in part
            self._since = self.loop.time()
        if (deadline := self._deadline()) > self.loop.time():
            self._timer = self.loop.call_at(deadline, self._expired)
            return
        self._refuse(408, "the request did not come in time")

    def _refuse(self, status: int, message: str) -> None:
        """Send an error response, unless a response was started, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            if self.cycle is not None:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            body = f'{{"error": "{message}"}}\n'.encode()
            self.transport.write(
                b"HTTP/1.1 %d %s\r\n" % (status, STATUS_PHRASES.get(status, b""))
                + b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
                + b"connection: close\r\n\r\n"
                + body
            )
        self.transport.close()

    def close_gracefully(self, transport: asyncio.Transport) -> None:
        """Close the connection; while the peer is still sending, only the write side first."""
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
        """Close the connection if it was idle for `seconds` and has no unread data."""
        is_idle = self.cycle is None or self.cycle.response_complete
        if not is_idle or time.monotonic() - self.last_used < seconds or self._part_of_headers():
            return
        if not self.transport.is_closing():
            with selectors.DefaultSelector() as selector:
                selector.register(self.transport.get_extra_info("socket"), selectors.EVENT_READ)
                if not selector.select(0):
                    self.transport.close()


# ------------------------------------------------------------------------------ the process
# Sent when the terminal closes; not on every system.
HANGUP = getattr(signal, "SIGHUP", None)
# Seconds after which an idle connection is closed: normally, and during shutdown.
KEEP_ALIVE, IDLE_AT_END = 75, 1.0


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        UsageError: the port is in use (the message names the process), or the address is invalid.
    """
    if not isinstance(port, int) or not 0 <= port <= 65_535:
        raise UsageError("no such port", where="--port", found=repr(port), wanted="0 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    # On Windows SO_REUSEADDR would let a second server use the port.
    reuse = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
    listener.setsockopt(socket.SOL_SOCKET, reuse, 1)
    try:
        listener.bind((host, port))
        # Two sockets can be bound to the same port until one of them listens.
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno in (98, 48, 10048):
            pid = _listening_process(port)
            owner = "" if pid is None else f" by process {pid}"
            raise UsageError(
                "the port is in use",
                where=f"--port {port}",
                found=f"used{owner}",
                do="give another one with --port (0: any that is free), or end that process",
            ) from None
        raise UsageError(
            "the address cannot be used",
            where=f"--host {host} --port {port}",
            found=error.strerror or str(error),
            wanted="an address of this machine, such as 127.0.0.1",
        ) from None
    listener.setblocking(False)
    return listener


def bind_unix_socket(path: Path) -> socket.socket:
    """Return a listening Unix socket for the user and the group of the process; a socket that no
    process listens on is replaced.

    Raises:
        UsageError: the path is in use or cannot be used, or the system has no such sockets.
    """
    if not hasattr(socket, "AF_UNIX"):
        message = "Python has no Unix sockets on this system"
        raise UsageError(message, where="--unix-socket", do="use --host and --port")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                try:
                    client.connect(str(path))
                    raise OSError(errno.EADDRINUSE, "a server listens on it")
                except ConnectionRefusedError:
                    path.unlink()
        listener.bind(str(path))
        path.chmod(0o660)
        listener.listen(2048)
    except (OSError, ValueError) as error:
        listener.close()
        raise UsageError(
            "the socket cannot be used",
            where=f"--unix-socket {path}",
            found=getattr(error, "strerror", None) or str(error),
            wanted="a path of at most 107 bytes, in a folder that can be written",
        ) from None
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address of a listening socket: `http://…`, or `unix:PATH`."""
    name = listener.getsockname()
    if isinstance(name, str):
        return f"unix:{name}"
    host, port = name[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class DrainingServer(uvicorn.Server):
    """A uvicorn server whose shutdown loses no request, and which reads models and keys again.

    Args:
        say: receives messages for the user.
    """

    def __init__(
        self,
        gate: Gate,
        host: Host,
        sock: socket.socket,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        limits = {"max_connections": host.limits.max_connections}
        protocol = type("Connection", (HttpConnection,), limits)
        config = uvicorn.Config(
            gate,
            http=protocol,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            backlog=2048,
            proxy_headers=False,
            callback_notify=self._follow,
            timeout_notify=0,  # with each tick, once a second
        )
        super().__init__(config)
        self.gate, self.host, self.sock, self.say = gate, host, sock, say
        self._signals = 0
        self._load: Callable[[], Any] = lambda: None
        self._reloading = asyncio.Lock()
        host.reload = self.reload

    async def run_until_stopped(self, load: Callable[[], Any], ready: Callable[[], None]) -> None:
        """Serve until a signal comes. `load` runs on a thread; `ready` is called after it.

        Raises:
            MaskwrightError: the models could not be loaded.
        """
        loop = asyncio.get_running_loop()
        self._load = load
        self.host.start(loop)
        serving = asyncio.ensure_future(self._serve([self.sock]))
        try:
            with self._signal_handlers(loop):
                try:
                    async with self._reloading:
                        await asyncio.to_thread(load)
                        await self.host.warm_up()
                    ready()
                except BaseException:
                    self.should_exit = True
                    raise
                finally:
                    await serving
        finally:
            self.host.stop()

    @contextlib.contextmanager
    def _signal_handlers(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = [signal.SIGTERM, signal.SIGINT]
        if HANGUP is not None and signal.getsignal(HANGUP) is not signal.SIG_IGN:
            signals.append(HANGUP)

        def handle(number: int, frame: object) -> None:
            if number == HANGUP and not os.isatty(0):
                loop.call_soon_threadsafe(self._hung_up)
                return
            self._signals += 1
            if self._signals > 1:
                os._exit(128 + number)
            self.should_exit = True

        previous_handlers = {number: signal.signal(number, handle) for number in signals}
        try:
            yield
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)

    async def reload(self, models: bool = True) -> None:
        """Read the key file, and with `models` open all models again. Requests are answered
        meanwhile; those that were admitted before keep their models.

        Raises:
            Refusal: something could not be read; the old keys or models are kept.
        """
        keys = self.gate.policy.keys
        steps = {} if keys is None else {"keys": keys.read}
        async with self._reloading:
            for subject, read in (steps | ({"models": self._load} if models else {})).items():
                try:
                    await asyncio.to_thread(read)
                except Exception as error:
                    self.host.metrics.count("reload_failures")
                    self.gate.log.line("reload-failed", subject=subject, error=str(error))
                    self.say(
                        f"the old {subject} stay, since the new ones could not be read\n{error}"
                    )
                    reason = getattr(error, "what", type(error).__name__)  # without paths
                    raise Refusal("model", f"the old {subject} are kept: {reason}") from error
                self.gate.log.line("reload", subject=subject)

    def _hung_up(self) -> None:
        self._task = asyncio.ensure_future(self._follow(models=True))

    async def _follow(self, models: bool = False) -> None:
        """Reload with `models`, else the key file alone if it has changed; failures are logged."""
        keys = self.gate.policy.keys
        if models or (keys is not None and keys.has_changed()):
            with contextlib.suppress(Refusal):
                await self.reload(models)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, finish open requests within `drain_seconds`, then stop."""
        self.host.draining = True
        await asyncio.sleep(self.host.limits.stop_delay_seconds)
        await self._close_listeners()
        loop = asyncio.get_running_loop()
        end = loop.time() + self.host.limits.drain_seconds
        while self.server_state.connections and loop.time() < end:
            for connection in list(self.server_state.connections):
                assert isinstance(connection, HttpConnection)
                connection.close_if_idle(IDLE_AT_END)
            await asyncio.sleep(0.02)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()
        if self.server_state.tasks:
            await asyncio.wait(list(self.server_state.tasks), timeout=1.0)

    async def _close_listeners(self) -> None:
        """Accept the connections in the kernel's backlog, then close the listeners."""
        loop = asyncio.get_running_loop()
        pending = []
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.sock.accept()
                pending.append(connection)
        if isinstance(path := self.sock.getsockname(), str):  # of a Unix socket
            Path(path).unlink(missing_ok=True)
        for server in self.servers:
            server.close()
        self.sock.close()
        protocol_class: Any = self.config.http_protocol_class
        settings = {"config": self.config, "server_state": self.server_state, "app_state": {}}
        for connection in pending:
            connection.setblocking(False)
            await loop.connect_accepted_socket(lambda: protocol_class(**settings), connection)


class BackgroundServer:
    """A server on its own thread, for notebooks and tests.

    Attributes:
        url: the address of the server.
    """

    def __init__(self, server: DrainingServer, load: Callable[[], Any]) -> None:
        self._server, self._load = server, load
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self.url = url_of(server.sock)
        self._thread = threading.Thread(target=self._run, name="serve", daemon=True)
        self._thread.start()

    @property
    def host(self) -> Host:
        return self._server.host

    def wait(self) -> BackgroundServer:
        """Wait until the server is ready, and return it.

        Raises:
            MaskwrightError: the models could not be loaded.
        """
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return self

    def stop(self) -> None:
        """Finish open requests and stop."""
        self._server.should_exit = True
        self._thread.join()

    def __enter__(self) -> BackgroundServer:
        return self.wait()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._server.run_until_stopped(self._load, self._ready.set))
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()


def _listening_process(port: int) -> int | None:
    """Return the id of the process that listens on a local port, by /proc; None if unknown."""
    port_suffix = f":{port:04X}"
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                columns = line.split()
                if columns[1].endswith(port_suffix) and columns[3] == "0A":
                    inodes.add(f"socket:[{columns[9]}]")
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for link in (folder / "fd").iterdir():
                if os.readlink(link) in inodes:
                    return int(folder.name)
    return None
