"""Maskwright's own route: rows of a task, as `maskwright predict` and `LanguageModel.predict` take
them, and their answers, with how much of each was read.

    GET  /v1/models/NAME/task     what the model was trained for, and the columns that it reads
    POST /v1/predict              {"model", "rows": […]} -> {"answers": […], "windows": […], …}
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from maskwright.ask.predict import wire
from maskwright.learn.tasks.base.choices import LongText
from maskwright.ship.serve.dialects.base.answers import headers_of
from maskwright.ship.serve.dialects.base.bodies import Body, Text
from maskwright.ship.serve.dialects.base.model_reference import ModelReference, choose
from maskwright.ship.serve.errors import Refusal
from maskwright.ship.serve.host import Host


def render(refusal: Refusal) -> Response:
    """{"error", "kind", "field", "limit"}."""
    body: dict[str, Any] = {"error": refusal.reason, "kind": refusal.kind}
    body |= {} if refusal.field is None else {"field": refusal.field}
    body |= {} if refusal.limit is None else {"limit": refusal.limit}
    return JSONResponse(body, refusal.status, headers=refusal.headers)


class RowsRequest(Body):
    """RowsRequest that are to be answered."""

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
        """What the model was trained for."""
        return _described(choose(host, model))

    @router.get("/v1/task", response_model=None)
    async def only_task() -> dict[str, Any]:
        """The same of the only model."""
        return _described(choose(host, None))

    @router.post("/v1/predict", response_model=None)
    async def predict(body: RowsRequest) -> Response:
        """The answers of the model's task."""
        chosen = choose(host, body.model)
        chosen.task()
        options = chosen.options("rows", top=body.top, long=body.long)
        answered = await host.predict(chosen.name, body.rows, options)
        facts = {
            "model": chosen.called,
            "fingerprint": answered.fingerprint,
            "tokens": answered.tokens,
            "windows": answered.windows,
            "truncated": answered.truncated,
        }
        content = wire.render(facts, body.rows, answered.values)
        headers = headers_of(chosen, [answered])
        return Response(content, media_type="application/json", headers=headers)

    return router


def _described(model: ModelReference) -> dict[str, Any]:
    model.task()  # refuses a model without one
    asking = model.served.variant(model.adapter)  # once: another model may take the name meanwhile
    predictor, task = asking.predictor, asking.predictor.task_type
    return {
        "model": model.called,
        "fingerprint": asking.fingerprint,
        "task": task.task,
        "labels": list(task.labels),
        "options": dict(task.options),
        "columns": {role: list(names) for role, names in predictor.columns.items()},
        "length": predictor.frame.length,
        "max_rows": model.host.limits.max_items,
        "max_body_bytes": model.host.limits.max_body_bytes,
        "findings": [vars(finding) for finding in predictor.findings],
    }
