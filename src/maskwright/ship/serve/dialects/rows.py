"""Maskwright's own routes: predictions for rows of a task, as with `maskwright predict` and
`LanguageModel.predict`, and the numbers of tokens of the rows.

    GET  /v1/models/NAME/task     the task of the model, and the columns that it reads
    POST /v1/predict              {"model", "rows": […]} -> {"answers": […], "windows": […], …}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Response
from pydantic import Field

from maskwright.ask.predict import wire
from maskwright.learn.tasks.base.choices import LongText
from maskwright.model.checkpoint.fine_tuned import LONGEST
from maskwright.ship.serve.dialects.base.messages import (
    Body,
    ModelReference,
    Text,
    headers_of,
    resolve,
)
from maskwright.ship.serve.dialects.base.messages import render as render
from maskwright.ship.serve.host import Host

ROWS = 128  # rows of one request that the server advises


class RowsRequest(Body):
    """Rows to answer."""

    model: Text | None = None
    rows: list[Any]
    top: int | None = Field(default=None, ge=1)
    long: LongText = Field(
        default="windows",
        description="A text longer than the model reads is read in windows, refused, or read as "
        "the model was trained, which mostly cuts its end.",
    )


def routes(host: Host) -> APIRouter:
    router = APIRouter(tags=["Maskwright"])

    @router.get("/v1/models/{model}/task", response_model=None)
    async def task(model: str) -> dict[str, Any]:
        """The task that the model was trained for."""
        return _described(resolve(host, model))

    @router.get("/v1/task", response_model=None)
    async def only_task() -> dict[str, Any]:
        """The task of the only model."""
        return _described(resolve(host, None))

    @router.post("/v1/predict", response_model=None)
    async def predict(body: RowsRequest) -> Response:
        """The answers of the model's task."""
        model = resolve(host, body.model)
        model.task()
        options = model.options("rows", top=body.top, long=body.long)
        response = await host.predict(model.name, body.rows, options)
        facts = {
            "model": model.called,
            "fingerprint": response.fingerprint,
            "tokens": response.tokens,
            "windows": response.windows,
            "truncated": response.truncated,
        }
        content = wire.render(facts, body.rows, response.values)
        headers = headers_of(model, [response])
        return Response(content, media_type="application/json", headers=headers)

    return router


def _described(model: ModelReference) -> dict[str, Any]:
    model.task()  # raises Refusal for a model without one
    engine = model.engine  # once: another model may take the name meanwhile
    predictor, task = engine.predictor, engine.predictor.task_type
    return {
        "model": model.called,
        "fingerprint": engine.fingerprint,
        "task": task.task,
        "labels": list(task.labels),
        "options": dict(task.options),
        "columns": {role: list(names) for role, names in predictor.columns.items()},
        "length": predictor.longest or LONGEST,
        "max_rows": min(ROWS, model.host.limits.max_items),
        "max_body_bytes": model.host.limits.max_body_bytes,
        "findings": [vars(finding) for finding in predictor.findings],
    }


# Routes that only some models answer (`dialects/tei.py`).
RESPONDS: dict[str, Callable[[ModelReference], bool]] = dict.fromkeys(
    ("/v1/predict", "/v1/task", "/v1/models/{model}/task"),
    lambda model: model.task_type is not None,
)
