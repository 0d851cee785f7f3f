"""The explorers of the served models: the pages of `maskwright explore`, from this server.

    GET /            a browser is sent on to the pages; other clients get what the dialects say
    GET /explore/…   their files

The models are computed in the browser, so only those that fit there are listed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response
from starlette.requests import Request
from starlette.routing import Match, Route

from maskwright.explore.server import HEADERS, answer
from maskwright.explore.site import Shown, Site
from maskwright.serve.host import Host

PLACE = "/explore"
# Weights that a browser loads and computes with in a second or two.
MOST_WEIGHTS = 60_000_000


class _ForBrowsers(Route):
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

    @router.get(PLACE, include_in_schema=False)
    def without_slash() -> Response:
        return RedirectResponse(f"{PLACE}/")

    @router.get(f"{PLACE}/{{path:path}}", include_in_schema=False)
    def page(path: str) -> Response:
        status, kind, body = answer(site(), path)
        return Response(body, status, headers=HEADERS, media_type=kind)

    return router


def for_browsers() -> Route:
    """Sends a browser from / on to the pages. It is a route of the application itself: FastAPI asks
    no route of a router that is included whether it matches."""

    async def on(request: Request) -> Response:
        return RedirectResponse(f"{PLACE}/")

    return _ForBrowsers("/", on, include_in_schema=False)


def _sites(host: Host) -> Callable[[], Site]:
    """What gives the site, made anew when a model was swapped."""
    made: dict[tuple[str, ...], Site] = {}

    def site() -> Site:
        served = [(name, host.model(name)) for name in host.names]
        key = tuple(each.fingerprint for _, each in served)
        if key not in made:
            made.clear()
            models = [
                Shown(name, each.language_model.opened().model.folder)
                for name, each in served
                if each.language_model.opened().num_parameters <= MOST_WEIGHTS
            ]
            made[key] = Site("Models of this server", models)
        return made[key]

    return site
