"""The pages on this machine: a small server of a site's files, and of what it is asked.

    with serving(site, port=0) as address: ...

It answers on the loopback address alone, to a browser that names it as its host, and gives out the
files of the site and nothing else (`answer`). Nothing is kept of what is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from maskwright.errors import MaskwrightError, UsageError
from maskwright.explore.site import Site

HOST = "127.0.0.1"
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "jsonl": "application/x-ndjson; charset=utf-8",
    "safetensors": "application/octet-stream",
}
POLICY = (
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def answer(site: Site, path: str) -> tuple[int, str, bytes]:
    """Status, type and body for the path of a request."""
    name = unquote(urlsplit(path).path).removeprefix("/") or "index.html"
    try:
        body = site.read(name)
    except KeyError:
        return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"there is no such file"
    except MaskwrightError as error:
        return HTTPStatus.CONFLICT, "text/plain; charset=utf-8", str(error).encode()[:4000]
    return HTTPStatus.OK, TYPES.get(name.rpartition(".")[2], "application/octet-stream"), body


@contextmanager
def serving(site: Site, port: int = 0) -> Iterator[str]:
    """The address under which the site is served meanwhile.

    Args:
        port: 0 for one that is free.

    Raises:
        UsageError: the port is in use.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version, sys_version = "maskwright", ""

        def do_GET(self) -> None:
            if self.headers.get("Host") not in hosts:
                self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"another host")
            else:
                self._send(*answer(site, self.path))

        def do_HEAD(self) -> None:
            self.do_GET()

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            for name, value in {**HEADERS, "Content-Type": kind}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is logged: a link holds the user's text."""

    try:
        server = ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise UsageError(
            "the port cannot be used",
            where="--port",
            found=f"{port}: {error.strerror}",
            do="name another port, or 0 for one that is free",
        ) from error
    server.daemon_threads = True
    number = server.server_address[1]
    hosts = {f"{name}:{number}" for name in (HOST, "localhost")}
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{number}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
