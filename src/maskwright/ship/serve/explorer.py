"""The pages of `maskwright explore` for the served models.

    GET /explore/…           the files of the pages, to which the gate redirects browsers from /
    POST /explore/ask/NAME   queries of the pages, one at a time

The browser runs the models, so only models below a size limit are listed. The gate checks queries
like every other POST request.
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

from maskwright.ship.explore.corruption import QueryableModel
from maskwright.ship.explore.server import HEADERS, LARGEST, file_response, question_response
from maskwright.ship.explore.site import Site, SiteModel
from maskwright.ship.serve.errors import Refusal
from maskwright.ship.serve.host import Host

PREFIX = "/explore"
# Maximum number of weights, which a browser loads and computes in one or two seconds.
MOST_WEIGHTS = 60_000_000


def routes(host: Host) -> APIRouter:
    router = APIRouter()
    site = _sites(host)
    # A separate thread, so that queries wait only for each other.
    thread = ThreadPoolExecutor(1, "explorer")

    @router.get(PREFIX, include_in_schema=False)
    def without_slash() -> Response:
        return RedirectResponse(f"{PREFIX}/")

    @router.get(f"{PREFIX}/{{path:path}}", include_in_schema=False)
    def page(path: str) -> Response:
        status, kind, body = file_response(site(), path)
        if status != HTTPStatus.OK:
            body = _without_paths(body.decode(), host).encode()
        return Response(body, status, headers=HEADERS, media_type=kind)

    @router.post(f"{PREFIX}/ask/{{name}}", include_in_schema=False)
    async def ask(name: str, request: Request) -> Response:
        question = await request.body()
        if len(question) > LARGEST:
            raise Refusal("too_large", "too long a question", field="body", limit=LARGEST)

        def respond() -> tuple[int, str, bytes]:
            return question_response(site(), f"ask/{name}", question)

        status, kind, body = await asyncio.get_running_loop().run_in_executor(thread, respond)
        body = _hide_paths(status, body, host)
        return Response(body, status, headers=HEADERS, media_type=kind)

    return router


def _ready(host: Host, name: str) -> QueryableModel:
    """Return a served model for the pages; it computes on the device thread, like requests."""
    engine = host.model(name).engine()

    def compute(function: Callable[[Any], Any]) -> Any:
        return host.run_and_wait(lambda: function(engine.network()))

    return QueryableModel(engine.model, compute)


def _hide_paths(status: int, body: bytes, host: Host) -> bytes:
    """Return the response to a query without the paths in a refusal."""
    if status != HTTPStatus.OK:
        return _without_paths(body.decode(), host).encode()
    if b'"refused"' not in body or not (refusal := json.loads(body).get("refused")):
        return body
    details = {n: _without_paths(v, host) if isinstance(v, str) else v for n, v in refusal.items()}
    return json.dumps({**json.loads(body), "refused": details}, ensure_ascii=False).encode()


def _without_paths(text: str, host: Host) -> str:
    """Replace the paths of model folders by the names of the models."""
    for name in host.names:
        folder = host.model(name).folder
        for path in sorted({str(folder.absolute()), str(folder.resolve())}, key=len, reverse=True):
            text = text.replace(path, name)
    return text


def _sites(host: Host) -> Callable[[], Site]:
    """Return a function that returns the site, which is rebuilt after a model was swapped."""
    sites: dict[tuple[str, ...], Site] = {}

    def site() -> Site:
        models_by_name = [(name, host.model(name)) for name in host.names]
        key = tuple(model.fingerprint for _, model in models_by_name)
        if key not in sites:
            sites.clear()
            page_models = [
                SiteModel(name, model.folder.absolute(), ready=partial(_ready, host, name))
                for name, model in models_by_name
                if model.engine().has_network and model.engine().num_parameters <= MOST_WEIGHTS
            ]
            sites[key] = Site("Models of this server", page_models, live=True)
        return sites[key]

    return site
