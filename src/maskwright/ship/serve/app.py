"""The application: the routes of the dialects, and those of the server itself.

    GET /health    the process is running
    GET /ready     the models are loaded and have answered, and the device is not stuck
    GET /metrics   counters for Prometheus
    POST /admin/reload   read models and keys again, with a token
    GET /docs      a page with the models and routes; /openapi.json for programs

Routes of a dialect take precedence over these, except over the explorers. A refusal is rendered by
the dialect that has the path, else in the plain format.

The pages of `maskwright explore` for the served models, in the browser:

    GET /explore/…           the files of the pages, to which the gate redirects browsers from /
    POST /explore/ask/NAME   queries of the pages, one at a time

The browser runs the models, so only models below a size limit are listed. The gate checks queries
like every other POST request.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, StrictUndefined
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Match

from maskwright.base import catalogue
from maskwright.base.errors import shorten
from maskwright.base.version import VERSION
from maskwright.ship.explore.corruption import QueryableModel
from maskwright.ship.explore.server import HEADERS, LARGEST, file_response, question_response
from maskwright.ship.explore.site import Site, SiteModel
from maskwright.ship.serve.dialects.base.messages import (
    IGNORED,
    ModelReference,
    all_references,
    misfit,
    render,
)
from maskwright.ship.serve.errors import QUOTED, Refusal
from maskwright.ship.serve.host import Host

# ------------------------------------------------------------------------------ explorers
EXPLORER_PREFIX = "/explore"
# Maximum number of weights, which a browser loads and computes in one or two seconds.
MOST_WEIGHTS = 60_000_000


def explorer_routes(host: Host) -> APIRouter:
    router = APIRouter()
    site = _sites(host)
    # A separate thread, so that queries wait only for each other.
    thread = ThreadPoolExecutor(1, "explorer")

    @router.get(EXPLORER_PREFIX, include_in_schema=False)
    def without_slash() -> Response:
        return RedirectResponse(f"{EXPLORER_PREFIX}/")

    @router.get(f"{EXPLORER_PREFIX}/{{path:path}}", include_in_schema=False)
    def page(path: str) -> Response:
        status, kind, body = file_response(site(), path)
        if status != HTTPStatus.OK:
            body = _without_paths(body.decode(), host).encode()
        return Response(body, status, headers=HEADERS, media_type=kind)

    @router.post(f"{EXPLORER_PREFIX}/ask/{{name}}", include_in_schema=False)
    async def ask(name: str, request: Request) -> Response:
        question = await request.body()
        if len(question) > LARGEST:
            raise Refusal("too_large", "too long a question", field="body", limit=LARGEST)
        status, kind, body = await asyncio.get_running_loop().run_in_executor(
            thread, lambda: question_response(site(), f"ask/{name}", question)
        )
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
        key = tuple(model.engine().fingerprint for _, model in models_by_name)
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


# ------------------------------------------------------------------------------ the application
RELOAD, DIALECTS = "/admin/reload", "serve.dialects"
Render = Callable[[Refusal], Response]
MOST_PATHS = 1_000  # that are cached
PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
ASSETS = Path(__file__).with_name("assets")


@dataclass(frozen=True)
class PathInfo:
    """The routes at a path.

    Attributes:
        methods: the methods of all routes; None: the path does not exist.
        render: formats the refusals of the path.
        post: the POST route, if its function takes only the body and path parameters; else None.
        names: the path parameters of that route by name.
    """

    methods: frozenset[str] | None
    render: Render
    post: APIRoute | None = None
    names: Mapping[str, str] = field(default_factory=dict)


class Application:
    """The FastAPI application, and the dialects that render refusals of their routes.

    Args:
        dialects: modules with `routes` and `render`; None: all modules of `dialects/`.
    """

    def __init__(self, host: Host, dialects: Sequence[Any] | None = None) -> None:
        self.host = host
        self.app = FastAPI(
            title="Maskwright",
            version=VERSION,
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            redirect_slashes=False,
        )
        self.routers: list[tuple[APIRouter, Render]] = [(explorer_routes(host), render)]
        conditions: dict[str, Callable[[ModelReference], bool]] = {}
        if dialects is None:
            dialects = [catalogue.load(DIALECTS, name) for name in catalogue.names(DIALECTS)]
        for dialect in dialects:
            conditions |= getattr(dialect, "RESPONDS", {})
            self.routers.append((dialect.routes(host), dialect.render))
        self.routers.append((_own_routes(host, self.app, conditions), render))
        for router, _ in self.routers:
            self.app.include_router(router)
        for error in (RequestValidationError, HTTPException, Exception):
            self.app.add_exception_handler(error, _propagate)
        # The routes at a path (cached).
        self.path_info: Callable[[str], PathInfo] = lru_cache(MOST_PATHS)(self._find)
        # By the id of the route: schemas of the bodies of routes that can be called directly.
        self._bodies: dict[int, TypeAdapter[Any]] = {
            id(route): TypeAdapter(body_type)
            for router, _ in self.routers
            for route in router.routes
            if (body_type := _body_type(route)) is not None
        }

    def _find(self, path: str) -> PathInfo:
        """Match the path with the routes of all routers."""
        methods: set[str] = set()
        scope = {"type": "http", "path": path, "method": "GET"}
        matches = [
            (route, route_scope.get("path_params", {}), router_render)
            for router, router_render in self.routers
            for route in router.routes
            for match, route_scope in [route.matches(scope)]
            if match is not Match.NONE
        ]
        post, names = None, dict[str, str]()
        for route, path_parameters, _ in matches:
            route_methods = set(getattr(route, "methods", None) or ())
            if "POST" in route_methods - methods and id(route) in self._bodies:
                assert isinstance(route, APIRoute)
                post, names = route, dict(path_parameters)
            methods |= route_methods
        if not matches:
            return PathInfo(None, render)
        return PathInfo(frozenset(methods), matches[0][2], post, names)

    async def answer(self, scope: Any, receive: Any, send: Any, content: Any = None) -> None:
        """Call the route of a request. A POST route that takes just its body gets the parsed body
        `content`; others are called by the router of FastAPI.

        Raises:
            Refusal: the body does not match its schema.
            Others: as the route.
        """
        info, ignored = self.path_info(scope["path"]), set[str]()
        IGNORED.set(ignored)
        try:
            if info.post is None or scope["method"] != "POST":
                await self.app(scope, receive, send)
                return
            scope["route"] = info.post
            fields = self._bodies[id(info.post)].validate_python(content)
            response: Response = await info.post.endpoint(body=fields, **info.names)
        except RequestValidationError as error:
            faults = [{**fault, "loc": fault["loc"][1:]} for fault in error.errors()]
            raise misfit(faults) from None
        except ValidationError as error:
            raise misfit(error.errors(include_url=False)) from None
        except HTTPException as error:
            kind: Any = {404: "not_found", 405: "method"}.get(error.status_code, "malformed")
            raise Refusal(kind, shorten(str(error.detail), QUOTED)) from None
        finally:
            if ignored:
                self.host.metrics.ignored_fields(scope["route"].path, ignored)
        await response(scope, receive, send)

    def hidden(self, name: str) -> str | None:
        """Return a path of the model `name` that a preceding route matches; None: no conflict."""
        routes = [route for router, _ in self.routers for route in router.routes]
        for index, route in enumerate(routes):
            template = getattr(route, "path", "")
            path = template.replace("{model}", name).replace("{task}", "x")
            for method in getattr(route, "methods", ()) if "{model}" in template else ():
                scope = {"type": "http", "path": path, "method": method}
                if any(preceding.matches(scope)[0] is Match.FULL for preceding in routes[:index]):
                    return path
        return None


async def _propagate(request: Request, error: Exception) -> Response:
    """Let the gate handle an error, which renders all of them, instead of FastAPI."""
    raise error


def _body_type(route: Any) -> Any:
    """Return the type of the body of a route whose function takes just a body and path parameters,
    and is annotated to return a Response; None for other routes."""
    if not isinstance(route, APIRoute):
        return None
    signature = inspect.signature(route.endpoint, eval_str=True)
    parameters = signature.parameters
    if parameters.keys() != {"body", *route.param_convertors}:
        return None
    return parameters["body"].annotation if signature.return_annotation is Response else None


def _own_routes(
    host: Host, app: FastAPI, conditions: Mapping[str, Callable[[ModelReference], bool]]
) -> APIRouter:
    """Return the routes of the server itself; `conditions` say by path which models a route of a
    dialect answers for."""
    router = APIRouter()

    @router.get("/health", response_class=PlainTextResponse, tags=["server"])
    async def health() -> str:
        """The process is running."""
        return "alive\n"

    @router.get("/ready", tags=["server"])
    async def ready() -> dict[str, Any]:
        """All models are loaded and have answered once."""
        if not host.ready or host.draining or not host.alive:
            reason = "the models are being loaded"
            if host.draining:
                reason = "the server is stopping"
            elif host.ready:
                reason = "the device does not answer"
            raise Refusal("unready", reason, retry_after=1)
        return {"ready": True, "models": list(host.names)}

    @router.get("/metrics", response_class=PlainTextResponse, tags=["server"])
    async def metrics() -> Response:
        """Counters in the text format of Prometheus."""
        return PlainTextResponse(
            host.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    @router.post(RELOAD, tags=["server"])
    async def reload() -> dict[str, Any]:
        """Read the key file and the folders of all models again. Requests are answered meanwhile,
        and by the old models if one of the new ones cannot be loaded."""
        await host.reload()
        return {"models": {name: host.model(name).engine().fingerprint for name in host.names}}

    @router.get("/openapi.json", include_in_schema=False)
    async def schema() -> dict[str, Any]:
        return app.openapi()

    @router.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        """The served models, and the routes that one of them answers, as a page."""
        models = all_references(host) if host.ready else []
        unanswered = {path for path, test in conditions.items() if not any(map(test, models))}
        environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
        page = environment.from_string((ASSETS / "docs.html").read_text("utf-8")).render(
            models=models,
            routes=_described_routes(app.openapi(), unanswered),
            address=str(request.base_url).removesuffix("/"),
        )
        return HTMLResponse(page, headers={"content-security-policy": PAGE_POLICY})

    @router.get("/docs/docs.css", include_in_schema=False)
    async def style() -> Response:
        return Response((ASSETS / "docs.css").read_bytes(), media_type="text/css")

    return router


def _described_routes(
    description: Mapping[str, Any], unanswered: Collection[str]
) -> Iterator[dict[str, Any]]:
    """Yield the routes of an OpenAPI description but for those `unanswered`, each with its schema
    and an example of its body as JSON; None for routes without a body."""
    schemas = description.get("components", {}).get("schemas", {})
    for path, methods in description["paths"].items():
        if path in unanswered or path.replace("/{model}/", "/") in unanswered:
            continue
        for method, route in methods.items():
            schema = example = None
            if "requestBody" in route:
                schema = route["requestBody"]["content"]["application/json"]["schema"]
                example = json.dumps(_example(schema, schemas), ensure_ascii=False)
                schema = json.dumps(schema, indent=2)
            yield {**route, "path": path, "method": method, "schema": schema, "example": example}


def _example(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int = 0) -> Any:
    """Return a value of the form that a JSON schema describes; `schemas` has those it refers to."""
    if "default" in schema:
        return schema["default"]
    if depth > 6:  # it may refer to itself
        return None
    if "$ref" in schema:
        return _example(schemas[schema["$ref"].rpartition("/")[2]], schemas, depth + 1)
    for alternatives in (schema.get("anyOf"), schema.get("allOf")):
        if alternatives:
            return _example(alternatives[0], schemas, depth + 1)
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object":
        fields = schema.get("properties", {})
        required = schema.get("required", ())
        return {name: _example(fields[name], schemas, depth + 1) for name in required}
    if schema.get("type") == "array":
        return [_example(schema.get("items", {}), schemas, depth + 1)]
    values = {"string": "a text", "integer": 1, "number": 1, "boolean": False}
    return values.get(schema.get("type", ""))
