"""The explorers of the served models: the pages of `maskwright explore`, from this server.

    GET /                    a browser is sent on to the pages; others get what the dialects say
    GET /explore/…           their files
    POST /explore/ask/NAME   what a page asks of Python, one question after the other

The models are computed in the browser, so only those that fit there are listed. Whether a page may
ask is the gate's to say, as of every POST.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response
from starlette.requests import Request
from starlette.routing import Match, Route

from maskwright.ship.explore.corruption import QueryableModel
from maskwright.ship.explore.server import HEADERS, LARGEST, file_response, question_response
from maskwright.ship.explore.site import Site, SiteModel
from maskwright.ship.serve.errors import Refusal
from maskwright.ship.serve.host import Host

PLACE = "/explore"
# Weights that a browser loads and computes with in a second or two.
MOST_WEIGHTS = 60_000_000


class _BrowserRoute(Route):
    """A route for who asks for HTML, as a browser does; no match for others."""

    def matches(self, scope: Any) -> tuple[Match, Any]:
        accepted = next((value for name, value in scope["headers"] if name == b"accept"), b"")
        if b"text/html" not in accepted.lower():
            return Match.NONE, {}
        return super().matches(scope)


def routes(host: Host) -> APIRouter:
    """The pages of the models that the host has now."""
    router = APIRouter()
    site = _sites(host)
    # A thread beside the event loop and beside those of the models: questions wait for each other.
    thread = ThreadPoolExecutor(1, "explorer")

    @router.get(PLACE, include_in_schema=False)
    def without_slash() -> Response:
        return RedirectResponse(f"{PLACE}/")

    @router.get(f"{PLACE}/{{path:path}}", include_in_schema=False)
    def page(path: str) -> Response:
        status, kind, body = file_response(site(), path)
        if status != HTTPStatus.OK:
            body = _without_places(body.decode(), host).encode()
        return Response(body, status, headers=HEADERS, media_type=kind)

    @router.post(f"{PLACE}/ask/{{name}}", include_in_schema=False)
    async def ask(name: str, request: Request) -> Response:
        question = await request.body()
        if len(question) > LARGEST:
            raise Refusal("too_large", "too long a question", field="body", limit=LARGEST)

        def found() -> tuple[int, str, bytes]:
            return question_response(site(), f"ask/{name}", question)

        status, kind, body = await asyncio.get_running_loop().run_in_executor(thread, found)
        body = _of_refusal(status, body, host)
        return Response(body, status, headers=HEADERS, media_type=kind)

    return router


def for_browsers() -> Route:
    """Sends a browser from / on to the pages. It is a route of the application itself: FastAPI asks
    no route of a router that is included whether it matches."""

    async def on(request: Request) -> Response:
        return RedirectResponse(f"{PLACE}/")

    return _BrowserRoute("/", on, include_in_schema=False)


def _ready(host: Host, name: str) -> QueryableModel:
    """A served model as the pages ask about it, on the weights that are served: where networks are
    asked, after what was asked before."""
    opened = host.model(name).opened

    def ask(function: Callable[[Any], Any]) -> Any:
        return host.run_and_wait(lambda: function(opened.network()))

    return QueryableModel(opened.model, ask)


def _of_refusal(status: int, body: bytes, host: Host) -> bytes:
    """An answer to a question; what it says where it refuses is without places."""
    if status != HTTPStatus.OK:
        return _without_places(body.decode(), host).encode()
    if b'"refused"' not in body or not (refusal := json.loads(body).get("refused")):
        return body
    details = {n: _without_places(v, host) if isinstance(v, str) else v for n, v in refusal.items()}
    return json.dumps({**json.loads(body), "refused": details}, ensure_ascii=False).encode()


def _without_places(text: str, host: Host) -> str:
    """The same with the names of the models in place of where they lie on this machine. Whole paths
    alone: the name of a folder may be any word."""
    for name in host.names:
        folder = host.model(name).folder
        for path in sorted({str(folder.absolute()), str(folder.resolve())}, key=len, reverse=True):
            text = text.replace(path, name)
    return text


def _sites(host: Host) -> Callable[[], Site]:
    """What gives the site, made anew when a model was swapped."""
    sites: dict[tuple[str, ...], Site] = {}

    def site() -> Site:
        models_by_name = [(name, host.model(name)) for name in host.names]
        key = tuple(model.fingerprint for _, model in models_by_name)
        if key not in sites:
            sites.clear()
            site_models = [
                SiteModel(name, model.folder.absolute(), ready=partial(_ready, host, name))
                for name, model in models_by_name
                if model.opened.num_parameters <= MOST_WEIGHTS
            ]
            sites[key] = Site("Models of this server", site_models, live=True)
        return sites[key]

    return site
