"""The server process: socket, event loop and signals.

    SIGTERM, SIGINT     accept no connections; respond with `Connection: close`; close idle
                        connections after a moment; exit with 0 when none is left
    SIGHUP              as SIGTERM, unless it is ignored (nohup)
    a second signal     exit at once

No request is lost: connections in the kernel's backlog are accepted before the listener closes, and
a connection is closed only after a response that announced it, or when it is idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from maskwright.base.errors import MaskwrightError, UsageError
from maskwright.ship.serve.gate import MAX_HEADER_BYTES, Gate
from maskwright.ship.serve.host import Host
from maskwright.ship.serve.protocol import HttpConnection

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
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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


class DrainingServer(uvicorn.Server):
    """A uvicorn server whose shutdown loses no request."""

    def __init__(self, gate: Gate, host: Host, sock: socket.socket) -> None:
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
        )
        super().__init__(config)
        self.gate, self.host, self.sock = gate, host, sock
        self._signals = 0

    async def run_until_stopped(
        self, load: Callable[[], Any], ready: Callable[[], None]
    ) -> MaskwrightError | None:
        """Serve until a signal comes. `load` runs on a thread; `ready` is called after it.

        Returns:
            The error if the models could not be loaded; else None.
        """
        loop = asyncio.get_running_loop()
        self.host.start(loop)
        serving = asyncio.ensure_future(self._serve([self.sock]))
        load_error: MaskwrightError | None = None
        with self._signal_handlers(loop):
            try:
                await asyncio.to_thread(load)
                await self.host.warm_up()
                ready()
            except MaskwrightError as error:
                load_error, self.should_exit = error, True
            except BaseException:
                self.should_exit = True
                await serving
                raise
            await serving
        self.host.stop()
        return load_error

    @contextlib.contextmanager
    def _signal_handlers(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = [signal.SIGTERM, signal.SIGINT]
        if HANGUP is not None and signal.getsignal(HANGUP) is not signal.SIG_IGN:
            signals.append(HANGUP)
        previous_handlers = {number: signal.getsignal(number) for number in signals}
        for number in signals:
            loop.add_signal_handler(number, self._signalled, number)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
                signal.signal(number, previous_handlers[number])

    def _signalled(self, number: int) -> None:
        self._signals += 1
        if self._signals > 1:
            os._exit(128 + number)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, finish open requests within `drain_seconds`, then stop."""
        self.host.draining = True
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
        for server in self.servers:
            server.close()
        self.sock.close()
        for connection in pending:
            connection.setblocking(False)
            await loop.connect_accepted_socket(self._connection, connection)

    def _connection(self) -> asyncio.Protocol:
        protocol_class: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = protocol_class(
            config=self.config, server_state=self.server_state, app_state={}
        )
        return protocol


class BackgroundServer:
    """A server on its own thread, for notebooks and tests.

    Attributes:
        url: the address of the server.
    """

    def __init__(self, server: DrainingServer, load: Callable[[], Any]) -> None:
        self._server, self._load = server, load
        self._ready = threading.Event()
        self._error: BaseException | None = None
        address = server.sock.getsockname()
        name = f"[{address[0]}]" if ":" in address[0] else address[0]
        self.url = f"http://{name}:{address[1]}"
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
            load_error = asyncio.run(self._server.run_until_stopped(self._load, self._ready.set))
            self._error = self._error or load_error
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()


def run(server: DrainingServer, load: Callable[[], Any], ready: Callable[[], None]) -> None:
    """Serve on the current thread until a signal comes.

    Raises:
        MaskwrightError: the models could not be loaded.
    """
    load_error = asyncio.run(server.run_until_stopped(load, ready))
    if load_error is not None:
        raise load_error


def _listening_process(port: int) -> int | None:
    """Return the id of the process that listens on a local port, by /proc; None if unknown."""
    port_suffix = f":{port:04X}"
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[1].endswith(port_suffix) and columns[3] == "0A":
                    inodes.add(f"socket:[{columns[9]}]")
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for link in (folder / "fd").iterdir():
                if os.readlink(link) in inodes:
                    return int(folder.name)
    return None
