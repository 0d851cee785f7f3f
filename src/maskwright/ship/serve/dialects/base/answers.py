"""Responses that several dialects share: embeddings, classes, headers and event streams.

Headers of every response:

x-compute-type        cpu or cuda
x-compute-characters, x-compute-tokens        of all texts
x-total-time, x-tokenization-time, x-queue-time, x-inference-time, x-compute-time      ms
x-windows             the number of windows of each text, such as 1,3,1
x-truncated           the indices of the truncated texts, such as 2,5; "none" without any
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal

import numpy as np
from fastapi.responses import JSONResponse, Response, StreamingResponse
from numpy.typing import NDArray

from maskwright.base.counted import rounded
from maskwright.learn.tasks.base.choices import COMPARED, DIMENSIONS, NAME, PROMPTS, SKIPPED
from maskwright.learn.tasks.base.similarities import compared, first_dimensions
from maskwright.ship.serve.dialects.base.model_reference import ModelReference
from maskwright.ship.serve.errors import Refusal, of_error
from maskwright.ship.serve.host import HostResponse, Piece

ScoreFunction = Literal["sigmoid", "softmax", "none"]
# The content of a response, and the responses of the host that it was made of.
Reply = tuple[Any, list[HostResponse]]


def render(refusal: Refusal) -> Response:
    """Render a refusal in the plain format: {"error", "kind", "field", "limit"}."""
    body: dict[str, Any] = {"error": refusal.reason, "kind": refusal.kind}
    body |= {} if refusal.field is None else {"field": refusal.field}
    body |= {} if refusal.limit is None else {"limit": refusal.limit}
    return JSONResponse(body, refusal.status, headers=refusal.headers)


async def embeddings_of(
    model: ModelReference,
    texts: Sequence[str],
    *,
    field: str,
    truncate: bool,
    normalize: bool = True,
    dimensions: int | None = None,
    prompt: str | None = None,
) -> tuple[list[NDArray[np.float32]], HostResponse]:
    """Return the embedding (D,) of each text, and the response of the host.

    Args:
        normalize: scale embeddings to unit length.
        dimensions: the number of leading dimensions to return, scaled to length 1; None: all.
        prompt: the name of the prompt to prepend; None: the default of the model.

    Raises:
        Refusal: the model makes no embeddings, has no such prompt, or not so few dimensions.
    """
    if not model.makes_vectors:
        raise model.unable("a model that makes vectors")
    texts = add_prompt(model, texts, prompt)
    options = model.options(field, truncate=truncate)
    response = await model.host.embed(model.name, texts, options)
    embeddings: list[NDArray[np.float32]] = response.values
    width = len(embeddings[0])
    if dimensions not in (None, width):
        trained = (model.task_type.options if model.task_type else {}).get(DIMENSIONS, [width])
        if not min(trained) <= dimensions < width:
            numbers = ", ".join(map(str, trained))
            reason = f"the model was trained for {numbers} dimensions (Matryoshka)"
            raise Refusal("validation", reason, field="dimensions", limit=width)
        embeddings = list(first_dimensions(np.stack(embeddings), dimensions))
    return [_unit(embedding) for embedding in embeddings] if normalize else embeddings, response


def plain_embedding(embedding: NDArray[np.float32], encoding: str | None) -> list[float] | str:
    """Return an embedding as a JSON value: its numbers, or their bytes in "base64"."""
    if encoding == "base64":
        return base64.b64encode(embedding.astype("<f4").tobytes()).decode()
    return embedding.tolist()


def add_prompt(model: ModelReference, texts: Sequence[str], name: str | None) -> list[str]:
    """Prepend the prompt `name` to the texts; None: the default, which the model itself adds.

    Raises:
        Refusal: there is no such prompt, or the model has a fixed prompt.
    """
    options: dict[str, Any] = dict(model.task_type.options) if model.task_type else {}
    if name is None or name == options.get(NAME):
        return list(texts)
    prompts = options.get(PROMPTS, {})
    if name not in prompts:
        prompt_names = ", ".join(prompts) or "none"
        raise Refusal(
            "validation", f"no prompt of that name; there are: {prompt_names}", field="prompt_name"
        )
    if options.get(NAME) is not None or SKIPPED in options:
        reason = f"the model always has the prompt {options.get(NAME)!r}"
        raise Refusal("validation", reason, field="prompt_name")
    return [prompts[name] + text for text in texts]


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    length = float(np.linalg.norm(vector.astype(np.float64)))
    return vector if length == 0 or abs(length - 1) < 1e-6 else (vector / length).astype(np.float32)


async def similarities_to(
    model: ModelReference, source: str, texts: Sequence[str], **options: Any
) -> tuple[list[float], HostResponse]:
    """Return the similarity of `source` to each text, by the similarity function of the model's
    folder; options and errors as in `embeddings_of`."""
    (source_embedding, *text_embeddings), response = await embeddings_of(
        model, [source, *texts], normalize=False, **options
    )
    task_type = model.task_type
    similarity = "cosine" if task_type is None else task_type.decoding.get(COMPARED, "cosine")
    scores = compared(similarity, source_embedding[None], np.stack(text_embeddings)).tolist()
    return [float(f"{score:.7g}") for score in scores], response


async def class_scores(
    model: ModelReference, rows: Sequence[Any], *, field: str, truncate: bool, raw: bool = False
) -> HostResponse:
    """Return the probabilities (L,) of each text or pair, or with `raw` the scores of the head.

    Raises:
        Refusal: the model does not score whole texts.
    """
    if not model.scores_whole_texts:
        raise model.unable("a model that gives classes or a number of whole texts")
    options = model.options(field, truncate=truncate, raw=raw)
    return await model.host.scores(model.name, rows, options)


def classes(
    labels: Sequence[str], scores: NDArray[np.floating], top: int | None = None
) -> list[dict[str, Any]]:
    """Return the `top` best labels with their scores, in descending order; None: all labels."""
    order = np.argsort(-scores, kind="stable")[:top]
    return [{"score": rounded(scores[index]), "label": labels[index]} for index in order]


def apply_function(logits: NDArray[np.floating], function: ScoreFunction) -> NDArray[np.float64]:
    """Apply a numerically stable softmax or sigmoid to logits (L,); "none" returns them."""
    wide_logits = logits.astype(np.float64)
    if function == "softmax":
        exponentials = np.exp(wide_logits - wide_logits.max())
        return np.asarray(exponentials / exponentials.sum())
    if function == "sigmoid":
        decay = np.exp(-np.abs(wide_logits))
        return np.asarray(np.where(wide_logits >= 0, 1.0, decay) / (1.0 + decay))
    return wide_logits


def headers_of(model: ModelReference, responses: Sequence[HostResponse]) -> dict[str, str]:
    """Return the headers of a response; times are the maximum over the responses of the host."""

    def slowest(name: str) -> str:
        return str(round(1000 * max(getattr(r.timings, name) for r in responses)))

    truncated = [is_cut for response in responses for is_cut in response.truncated]
    return {
        "x-compute-type": model.engine.device_type,
        "x-compute-time": slowest("total"),
        "x-compute-characters": str(sum(response.characters for response in responses)),
        "x-compute-tokens": str(sum(response.prompt_tokens for response in responses)),
        "x-total-time": slowest("total"),
        "x-tokenization-time": slowest("tokenise"),
        "x-queue-time": slowest("queue"),
        "x-inference-time": slowest("compute"),
        "x-windows": ",".join(str(n) for response in responses for n in response.windows),
        "x-truncated": ",".join(str(n) for n, is_cut in enumerate(truncated) if is_cut) or "none",
    }


def respond(model: ModelReference, value: Any, responses: Sequence[HostResponse]) -> Response:
    """Return `value` as JSON with the headers of the responses of the host."""
    return JSONResponse(value, headers=headers_of(model, responses) if responses else {})


def event(value: Any) -> bytes:
    """Format a server-sent event; values other than strings become JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


async def event_stream(
    pieces: AsyncIterator[Piece],
    events: Callable[[AsyncIterator[Piece]], AsyncIterator[Any]],
    failed: Callable[[Refusal], Any],
    headers: dict[str, str],
) -> StreamingResponse:
    """Wait for the first piece, then return a response that streams events.

    Args:
        pieces: the pieces from the host; closed when the response ends or fails.
        events: maps pieces to the contents of events.
        failed: returns the content of the event for an error after the first piece.

    Raises:
        Refusal: the request is refused before anything was sent.
    """
    first_piece = await anext(pieces, None)

    async def all_pieces() -> AsyncIterator[Piece]:
        if first_piece is not None:
            yield first_piece
        async for piece in pieces:
            yield piece

    async def body() -> AsyncIterator[bytes]:
        async with aclosing(pieces):  # type: ignore[type-var]
            try:
                async for content in events(all_pieces()):
                    yield event(content)
            except Exception as error:
                yield event(failed(of_error(error)))

    return StreamingResponse(body(), media_type="text/event-stream", headers=headers)
