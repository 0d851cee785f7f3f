"""The pages on this machine: a small server of a site's files, and of what it is asked.

    with serving(site, port=0) as address: ...

It answers on the loopback address alone, to a browser that names it as its host, and gives out the
files of the site (`answer`) and what its pages ask (`reply`), nothing else. Nothing is kept of what
is asked.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from maskwright.base import catalogue
from maskwright.base.errors import MaskwrightError, UsageError
from maskwright.base.storage.strict_json import parse_object
from maskwright.ship.explore.site import POLICY, Site
from maskwright.ship.explore.trial import Refused

HOST = "127.0.0.1"
LARGEST = 64 << 10  # bytes of a question
PART = re.compile(r"bytes=(\d{1,18})-(\d{1,18})?", re.ASCII)
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


def answer(site: Site, path: str) -> tuple[int, str, bytes]:
    """Status, type and body for the path of a request."""
    try:
        body = site.read(_name(path))
    except KeyError:
        return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"there is no such file"
    except MaskwrightError as error:
        return HTTPStatus.CONFLICT, "text/plain; charset=utf-8", str(error).encode()[:4000]
    kind = TYPES.get(_name(path).rpartition(".")[2], "application/octet-stream")
    return HTTPStatus.OK, kind, body


def reply(site: Site, path: str, body: bytes) -> tuple[int, str, bytes]:
    """Status, type and body for a question of a page (`asked/`), a JSON object. What cannot be
    answered is an answer, too: {"refused": {what, where, found, wanted, do}}."""
    plain = "text/plain; charset=utf-8"
    name = _name(path).removeprefix("ask/")
    if not _name(path).startswith("ask/") or name not in catalogue.names("explore.asked"):
        return HTTPStatus.NOT_FOUND, plain, b"there is no such question"
    try:
        given = parse_object(body, f"ask/{name}", error=UsageError, largest=LARGEST)
        found = catalogue.load("explore.asked", name).answer(site, given)
    except MaskwrightError as error:
        found = {"refused": asdict(Refused.by(error))}
    return HTTPStatus.OK, TYPES["json"], json.dumps(found, ensure_ascii=False).encode()


def part(path: Path, first: int, last: int | None) -> tuple[int, str, bytes]:
    """Status, `Content-Range` and the bytes `first` to `last` of a file, or to its end."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        stop = size if last is None else min(size, last + 1)
        if not first < stop:
            return HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, f"bytes */{size}", b""
        file.seek(first)
        body = file.read(stop - first)
    return HTTPStatus.PARTIAL_CONTENT, f"bytes {first}-{first + len(body) - 1}/{size}", body


def _name(path: str) -> str:
    """The file of the site that a request names."""
    return unquote(urlsplit(path).path).removeprefix("/") or "index.html"


class Server(ThreadingHTTPServer):
    """A thread for each request; none is waited for."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that leaves before it has its answer is no fault; all else is shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving(site: Site, port: int = 0) -> Iterator[str]:
    """The address under which the site is served meanwhile.

    Args:
        port: 0 for one that is free.

    Raises:
        UsageError: the port is in use, or no port.
    """
    if not 0 <= port < 1 << 16:
        raise UsageError(
            "no such port",
            where="--port",
            found=port,
            wanted="0 to 65535",
        )
    asking = threading.Lock()  # one question after the other: they use the same processors

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version, sys_version = "maskwright", ""

        def do_GET(self) -> None:
            if self.headers.get("Host") not in hosts:
                self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"another host")
            elif not self._send_part():
                self._send(*answer(site, self.path))

        def _send_part(self) -> bool:
            """Answer a request for a part of a file that lies on the disk, such as the end of a
            journal that grows; False: it is none."""
            asked = PART.fullmatch(self.headers.get("Range", ""))
            path = site.file(_name(self.path)) if asked else None
            if asked is None or path is None:
                return False
            first, last = (int(n) if n else None for n in asked.groups())
            try:
                status, span, body = part(path, first or 0, last)
            except OSError:
                return False
            if not (body or first):  # an empty file is read as a whole, which is no error
                return False
            self._send(status, TYPES["jsonl"], body, {"Content-Range": span})
            return True

        def do_POST(self) -> None:
            # Only a page of this server may ask: a browser says where a question comes from.
            origin = self.headers.get("Origin")
            size = self.headers.get("Content-Length", "")
            if self.headers.get("Host") not in hosts:
                self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"another host")
            elif (
                self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin"
                or origin is None
                or origin.removeprefix("http://") not in hosts
            ):
                self._refuse(HTTPStatus.FORBIDDEN, b"another page")
            elif not size.isascii() or not size.isdecimal() or len(size) > 9:
                self._refuse(HTTPStatus.LENGTH_REQUIRED, b"no length")
            elif int(size) > LARGEST:
                self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, b"too long a question")
            else:
                body = self.rfile.read(int(size))
                with asking:
                    status, kind, found = reply(site, self.path, body)
                self._send(status, kind, found)

        def _refuse(self, status: int, why: bytes) -> None:
            """Answer without reading what was sent."""
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
            """Nothing is logged: a link holds the user's text."""

    try:
        server = Server((HOST, port), Handler)
    except OSError as error:
        raise UsageError(
            "the port cannot be used",
            where="--port",
            found=f"{port}: {error.strerror}",
            do="name another port, or 0 for one that is free",
        ) from error
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


def explore(
    models: Path | str | Sequence[Path | str],
    *,
    port: int = 0,
    text: str | None = None,
    browser: bool = True,
    say: Callable[[str], None] = print,
    until: threading.Event | None = None,
) -> None:
    """Show the pages for models and runs until it is interrupted.

    Args:
        port: of the server on this machine; 0 for one that is free.
        text: what the pages begin with; None: a text of their own.
        browser: open the page in the browser.
        say: takes the address.
        until: ends it, too.

    Raises:
        UsageError: no such folder, or a port that is in use.
        CheckpointError: a folder that is damaged.
    """
    paths = [models] if isinstance(models, str | Path) else models
    site = Site.of(paths, sample=text, live=True)
    if site.models:
        site.read("data/models/0/model.json")  # what cannot be shown is said before a page opens
    with serving(site, port) as address:
        say(f"{address}   (Ctrl+C ends it)")
        if browser:
            webbrowser.open(address)
        try:
            (until or threading.Event()).wait()
        except KeyboardInterrupt:
            say("")
