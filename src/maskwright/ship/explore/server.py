"""A local server for the files of a site (`file_response`) and for queries of its pages
(`question_response`).

    with serving(site, port=0) as address: ...

It listens only on the loopback address, checks the Host header, and stores nothing of a request.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from maskwright.base.config import from_plain
from maskwright.base.errors import MaskwrightError, UsageError
from maskwright.base.report.document import EXPLORER_PORT
from maskwright.base.storage.strict_json import parse_object
from maskwright.ship.explore.corruption import CorruptionRequest, prepare_row
from maskwright.ship.explore.masks import refusal
from maskwright.ship.explore.site import POLICY, Site

HOST = "127.0.0.1"
CORRUPTION = "ask/corruption"  # the path of the only kind of query
LARGEST = 64 << 10  # maximum bytes of the body of a query
BYTE_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{1,18})?", re.ASCII)
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "jsonl": "application/x-ndjson; charset=utf-8",
    "safetensors": "application/octet-stream",
}
HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def file_response(
    site: Site, path: str, start: int = 0, length: int = -1
) -> tuple[int, str, bytes]:
    """Return status, content type and body for the path of a GET request; `start` and `length` as
    of `Site.read`."""
    try:
        body = site.read(_name(path), start, length)
    except KeyError:
        return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"there is no such file"
    except MaskwrightError as error:
        return HTTPStatus.CONFLICT, "text/plain; charset=utf-8", str(error).encode()[:4000]
    kind = TYPES.get(_name(path).rpartition(".")[2], "application/octet-stream")
    return HTTPStatus.OK, kind, body


def question_response(site: Site, path: str, body: bytes) -> tuple[int, str, bytes]:
    """Return status, content type and body for a query with a JSON object as body. The response to
    an invalid query has status 200, too: {"refused": {what, where, found, wanted, do, leak}}."""
    if _name(path) != CORRUPTION:
        return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"there is no such question"
    try:
        question = parse_object(body, CORRUPTION, error=UsageError, largest=LARGEST)
        answer = corruption_answer(site, question)
    except MaskwrightError as error:
        answer = {"refused": refusal(error)}
    return HTTPStatus.OK, TYPES["json"], json.dumps(answer, ensure_ascii=False).encode()


def corruption_answer(site: Site, question: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a text prepared by an objective, as from `corruption.prepare_row`.

    Args:
        question: the fields of a `CorruptionRequest`.

    Raises:
        UsageError: there is no such model.
        ConfigError: a field is missing, or its value has the wrong type.
        Others: as `prepare_row`.
    """
    request = from_plain(CorruptionRequest, question, CORRUPTION)
    if not 0 <= request.model < len(site.models):
        raise UsageError("there is no such model", where="model", found=request.model)
    return prepare_row(site.ready(request.model), request)


def _name(path: str) -> str:
    """Return the name of the file in the site for the path of a request."""
    return unquote(urlsplit(path).path).removeprefix("/") or "index.html"


class PageServer(ThreadingHTTPServer):
    """A server with one daemon thread per request."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print errors, unless the browser has disconnected."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving(site: Site, port: int = 0) -> Iterator[str]:
    """Serve a site as a context manager, whose value is the address.

    Args:
        port: the port; 0 for any free port.

    Raises:
        UsageError: the port is in use or invalid.
    """
    if not 0 <= port < 1 << 16:
        raise UsageError("no such port", where="--port", found=port, wanted="0 to 65535")
    question_lock = threading.Lock()  # queries share the processors

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version, sys_version = "maskwright", ""

        def do_GET(self) -> None:
            if self.headers.get("Host") not in hosts:
                self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"another host")
                return
            byte_range = BYTE_RANGE.fullmatch(self.headers.get("Range", ""))
            bounds = byte_range.groups() if byte_range else ("0", None)
            start, stop = (-1 if bound is None else int(bound) for bound in bounds)
            length = -1 if stop < 0 else max(0, stop - start + 1)
            status, kind, body = file_response(site, self.path, start, length)
            headers = {}
            # Of a growing journal a page requests the end; an empty one is sent as a whole.
            if byte_range and kind == TYPES["jsonl"] and body:
                headers = {"Content-Range": f"bytes {start}-{start + len(body) - 1}/*"}
                status = HTTPStatus.PARTIAL_CONTENT
            elif byte_range and kind == TYPES["jsonl"] and start:
                status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
            self._send(status, kind, body, headers)

        def do_POST(self) -> None:
            # Only pages of this server may send queries; browsers send the origin of a request.
            origin = self.headers.get("Origin")
            length = self.headers.get("Content-Length", "")
            if self.headers.get("Host") not in hosts:
                self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"another host")
            elif (
                self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin"
                or origin is None
                or origin.removeprefix("http://") not in hosts
            ):
                self._refuse(HTTPStatus.FORBIDDEN, b"another page")
            elif not length.isascii() or not length.isdecimal() or len(length) > 9:
                self._refuse(HTTPStatus.LENGTH_REQUIRED, b"no length")
            elif int(length) > LARGEST:
                self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, b"too long a question")
            else:
                body = self.rfile.read(int(length))
                with question_lock:
                    status, kind, reply_body = question_response(site, self.path, body)
                self._send(status, kind, reply_body)

        def _refuse(self, status: int, why: bytes) -> None:
            """Send an error without reading the body."""
            self.close_connection = True
            self._send(status, "text/plain", why)

        def do_HEAD(self) -> None:
            self.do_GET()

        def _send(
            self, status: int, kind: str, body: bytes, more: Mapping[str, str] | None = None
        ) -> None:
            self.send_response(status)
            for name, value in {**HEADERS, "Content-Type": kind, **(more or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing, since URLs contain texts of the user."""

    try:
        server = PageServer((HOST, port), Handler)
    except OSError as error:
        raise UsageError(
            "the port cannot be used",
            where="--port",
            found=f"{port}: {error.strerror}",
            do="name another port, or 0 for one that is free",
        ) from error
    bound_port = server.server_address[1]
    hosts = {f"{name}:{bound_port}" for name in (HOST, "localhost")}
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{bound_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def explore(
    models: Path | str | Sequence[Path | str],
    *,
    port: int | None = None,
    text: str | None = None,
    browser: bool = True,
    say: Callable[[str], None] = print,
    until: threading.Event | None = None,
) -> None:
    """Serve the pages for models and runs until interrupted.

    Args:
        port: of the server on this machine; 0 for any free port; None for `EXPLORER_PORT`, or any
            free port if that is in use.
        text: the initial text of the pages; None: their default.
        browser: open the page in the browser.
        say: receives the address.
        until: an event that stops the server.

    Raises:
        UsageError: no such folder, or the port is in use.
        CheckpointError: a folder is damaged.
    """
    paths = [models] if isinstance(models, str | Path) else models
    site = Site.of(paths, sample=text, live=True)
    if site.models:
        site.read("data/models/0/model.json")  # raise errors before a page opens
    with ExitStack() as stack:
        try:
            address = stack.enter_context(serving(site, EXPLORER_PORT if port is None else port))
        except UsageError:
            if port is not None:
                raise
            address = stack.enter_context(serving(site, 0))
        say(f"{address}   (Ctrl+C ends it)")
        if browser:
            webbrowser.open(address)
        try:
            (until or threading.Event()).wait()
        except KeyboardInterrupt:
            say("")
