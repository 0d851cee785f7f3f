"""The checks of every request before it reaches a route. Requests are denied by default.

    connection limit -> Host -> Origin -> token -> path, method -> limits of the caller
    -> type, length -> waiting line -> body -> JSON -> route

A request that is refused before its body costs no more than its headers. The body is received here
up to the limit; if the client disconnects, the work for its request is cancelled.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import RedirectResponse, Response

from maskwright.base.errors import DataError, MaskwrightError
from maskwright.base.storage import strict_json
from maskwright.ship.serve import app
from maskwright.ship.serve.access import AccessPolicy, Headers
from maskwright.ship.serve.app import Application
from maskwright.ship.serve.callers import Caller
from maskwright.ship.serve.errors import Refusal, of_error
from maskwright.ship.serve.host import Host
from maskwright.ship.serve.metrics import RequestLog

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_HEADERS, MAX_HEADER_BYTES, MAX_URL = 64, 16_384, 2_048
# Bodies with more bytes than this are parsed on a thread.
LARGE_JSON = 65_536
# The header by which a browser prompts its user for the token.
PROMPT = 'Basic realm="Maskwright: the token is the password, the name is any", charset="UTF-8"'
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Gate:
    """The ASGI application that the HTTP server calls.

    Attributes:
        open_requests: the number of requests in progress.
    """

    def __init__(self, application: Application, policy: AccessPolicy, log: RequestLog) -> None:
        self.application, self.policy, self.log = application, policy, log
        self.host: Host = application.host
        self.open_requests = 0
        self.host.metrics.gauges["mw_lost_log_lines"] = lambda: log.lost

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request: render refusals and internal errors, and log the outcome."""
        if scope["type"] != "http":
            return
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value)
        sender = _ResponseSender(send, self.host, self.policy.cors_headers(headers))
        sender.identify(headers)
        start = time.monotonic()
        self.open_requests += 1
        try:
            await self._handle(scope, headers, receive, sender)
        except (Refusal, MaskwrightError) as error:
            refusal = of_error(error)
            scope["mw_refused"] = refusal.kind
            if not sender.started:
                response = self.application.path_info(scope["path"]).render(refusal)
                is_page = scope["method"] == "GET" and _accepts_pages(headers)
                if refusal.kind == "unauthorised" and is_page:
                    response.headers["www-authenticate"] = PROMPT
                if refusal.kind in ("too_large", "timeout", "malformed"):
                    sender.closes = True
                await response(scope, receive, sender)
        except _DisconnectedError:
            self.host.metrics.count("disconnects")
        except Exception as error:
            self.log.failure(sender.request, error)
            self.host.metrics.count("failures")
            if not sender.started:
                failure = Refusal("backend", "the server failed; its log has the request's id")
                response = self.application.path_info(scope["path"]).render(failure)
                await response(scope, receive, sender)
        finally:
            self.open_requests -= 1
            self.host.waiting_line.advance()
            method = scope["method"] if scope["method"] in METHODS else "other"
            route, facts = getattr(scope.get("route"), "path", None), sender.facts
            seconds, refused = time.monotonic() - start, scope.get("mw_refused")
            model = facts.get("served", "")
            self.host.metrics.finished(
                sender.status, refused, method == "POST", model, route or "", seconds
            )
            if sender.caller is not None:
                sender.caller.use("tokens", facts.get("tokens", 0))
            self.log.line(
                "request",
                request=sender.request,
                method=method,
                route=route,
                status=sender.status,
                refused=refused,
                seconds=round(seconds, 4),
                model=model or None,
                tokens=facts.get("tokens"),
                queue=round(facts.get("queue", 0.0), 4),
                compute=round(facts.get("compute", 0.0), 4),
                caller=sender.caller and sender.caller.name,
                trace=sender.trace.decode() or None,
            )

    async def _handle(
        self, scope: Scope, headers: Headers, receive: Receive, sender: _ResponseSender
    ) -> None:
        """Check a request, receive its body and call its route; failed checks raise a Refusal."""
        _require_valid_target(scope)
        caller = self.policy.require_access(scope, headers)
        method = scope["method"]
        if scope["path"] == "/" and method in ("GET", "HEAD") and _accepts_pages(headers):
            await RedirectResponse(f"{app.EXPLORER_PREFIX}/")(scope, receive, sender)
            return
        methods = self.application.path_info(scope["path"]).methods
        if methods is None:
            raise Refusal("not_found", "no such path; /docs lists what there is")
        if method == "OPTIONS" and sender.origin:
            allowed = {
                "access-control-allow-methods": ", ".join(sorted(methods)),
                "access-control-allow-headers": "authorization, content-type, *",
                "access-control-max-age": "600",
            }
            await Response(status_code=204, headers=allowed)(scope, receive, sender)
            return
        if method not in methods and not (method == "HEAD" and "GET" in methods):
            raise Refusal("method", "the path has other methods", allow=tuple(sorted(methods)))
        if method != "POST":
            # The server sends no body for HEAD requests.
            get_scope = {**scope, "method": "GET"} if method == "HEAD" else scope
            await self.application.answer(get_scope, receive, sender)
            return
        if scope["path"] == app.RELOAD:
            if caller is None or not caller.entry.admin:
                raise Refusal("forbidden", "only --token or a key with `admin` may reload")
            await self.application.answer(scope, receive, sender)
            return
        if caller is not None:
            sender.caller = caller
            await caller.require_allowance(self.host.limits.max_wait_seconds)
        _require_type(headers)
        self._require_size(headers)
        if not self.host.ready:
            reason = "the server is not ready: /ready says when it is"
            raise Refusal("unready", reason, retry_after=1)
        until, content_length = self.host.patience(), headers.get(b"content-length", [b"0"])
        await self.host.wait_for_room(int(content_length[0]), until)
        body = await self._body(receive)
        async with self.host.admit(len(body), sender.facts, until):
            content = await _parsed(body)
            await self._answer_watched(scope, body, content, receive, sender)

    def _require_size(self, headers: Headers) -> None:
        limit, content_length = self.host.limits.max_body_bytes, headers.get(b"content-length")
        if content_length is None:
            return
        if b"transfer-encoding" in headers:
            raise Refusal("malformed", "the body has two lengths", field="Content-Length")
        if int(content_length[0]) > limit:  # h11 has validated it
            raise Refusal("too_large", "the body is too large", limit=f"{limit} bytes")

    async def _body(self, receive: Receive) -> bytes:
        """Receive the whole body; refuse it once it exceeds the limit."""
        limit, body = self.host.limits.max_body_bytes, bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _DisconnectedError
            body += message.get("body", b"")
            if len(body) > limit:
                raise Refusal("too_large", "the body is too large", limit=f"{limit} bytes")
            if not message.get("more_body", False):
                return bytes(body)

    async def _answer_watched(
        self, scope: Scope, body: bytes, content: Any, receive: Receive, sender: _ResponseSender
    ) -> None:
        """Call the route with the body (`content`: parsed); cancel it if the client disconnects."""
        disconnected, body_delivered = asyncio.Event(), False
        answer_task = asyncio.current_task()
        assert answer_task is not None

        async def receive_body() -> Message:
            nonlocal body_delivered
            if not body_delivered:
                body_delivered = True
                return {"type": "http.request", "body": body, "more_body": False}
            await disconnected.wait()
            return {"type": "http.disconnect"}

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            disconnected.set()
            if not sender.ended:
                answer_task.cancel()

        watch_task = asyncio.ensure_future(watch())
        try:
            await self.application.answer(scope, receive_body, sender, content)
        except asyncio.CancelledError:
            if not disconnected.is_set() or answer_task.uncancel():
                raise
            self.host.metrics.count("disconnects")
            scope["mw_refused"] = "disconnected"
        finally:
            watch_task.cancel()


# Ids of requests and of traces (W3C Trace Context, section 3.2) that are taken from the client.
REQUEST_ID = re.compile(rb"[\w.:/+=@~-]{1,128}")
TRACEPARENT = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT")


# Not the random source of the system, since a system call would yield to other threads.
_IDS = random.Random()


class _DisconnectedError(Exception):
    """The client disconnected before its request was complete."""


class _ResponseSender:
    """An ASGI `send` that adds the common headers and tracks the state of the response."""

    def __init__(self, send: Send, host: Host, origin: list[tuple[bytes, bytes]]) -> None:
        self._send, self._host, self.origin = send, host, origin
        self.request, self.trace = "", b""  # its id and its traceparent, in log and response
        self.facts: dict[str, Any] = {}  # as of RequestBudget
        self.caller: Caller | None = None
        self.status, self.started, self.ended, self.closes = 0, False, False, False

    def identify(self, headers: Headers) -> None:
        """Take the id and the trace of the request from its headers, or create an id."""
        (request, *_), (trace, *_) = (
            headers.get(name, [b""]) for name in (b"x-request-id", b"traceparent")
        )
        is_valid = REQUEST_ID.fullmatch(request) is not None
        self.request = request.decode() if is_valid else f"{_IDS.getrandbits(64):016x}"
        self.trace = trace if TRACEPARENT.fullmatch(trace) else b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            headers = [*message.get("headers", []), *HEADERS, *self.origin, (b"vary", b"Origin")]
            headers.append((b"x-request-id", self.request.encode()))
            if self.trace:
                headers.append((b"traceparent", self.trace))
            if "model" in self.facts:
                headers.append((b"x-model-id", self.facts["model"].encode()))
            if self.closes or self._host.draining:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        elif not message.get("more_body", False):
            self.ended = True
        await self._send(message)


def _accepts_pages(headers: Headers) -> bool:
    return b"text/html" in headers.get(b"accept", [b""])[0].lower()


def _require_valid_target(scope: Scope) -> None:
    """Refuse targets that are no path, and URLs and headers that are too long."""
    raw_path = scope["raw_path"]
    if len(raw_path) + len(scope["query_string"]) > MAX_URL:
        raise Refusal("long_url", "the URL is too long", limit=f"{MAX_URL} bytes")
    if len(scope["headers"]) > MAX_HEADERS:
        raise Refusal("headers", "too many headers", limit=MAX_HEADERS)
    size = sum(len(name) + len(value) for name, value in scope["headers"])
    if size > MAX_HEADER_BYTES:
        raise Refusal("headers", "the headers are too long", limit=f"{MAX_HEADER_BYTES} bytes")
    if not raw_path.startswith(b"/") or raw_path.startswith(b"//"):
        raise Refusal("malformed", "the target is no path")


def _require_type(headers: Headers) -> None:
    """Refuse bodies that are not declared as uncompressed JSON in UTF-8."""
    encodings = headers.get(b"content-encoding", [b"identity"])
    content_types = headers.get(b"content-type", [])
    kind, _, rest = (content_types[0] if len(content_types) == 1 else b"").lower().partition(b";")
    charset = rest.replace(b" ", b"").replace(b'"', b"")
    is_json = kind.strip() == b"application/json" and charset in (b"", b"charset=utf-8")
    if not is_json or encodings != [b"identity"]:
        reason = "the body has to be JSON in UTF-8, not compressed: Content-Type: application/json"
        raise Refusal("media_type", reason, field="Content-Type")


async def _parsed(body: bytes) -> Any:
    if len(body) > LARGE_JSON:
        return await asyncio.get_running_loop().run_in_executor(None, _parse, body)
    return _parse(body)


def _parse(body: bytes) -> Any:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal("malformed", f"not UTF-8 at byte {error.start}", field="body") from None
    try:
        return strict_json.parse(text, "body")
    except DataError as error:
        detail = f"; found {error.found}" if error.found else ""
        raise Refusal("malformed", f"{error.what}, {error.where}{detail}", field="body") from None
    except RecursionError:
        raise Refusal("malformed", "JSON nested too deeply", field="body") from None
