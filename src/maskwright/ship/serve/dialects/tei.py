"""The routes of text-embeddings-inference, with its bodies and errors.

    POST /embed /embed_all /predict /rerank /similarity /tokenize /decode /vertex /invocations /
    POST /v1/rerank /v2/rerank    with `documents`, as of Cohere and Jina; /rerank takes both
    GET  /info /ping /

Each is also available under the name of a model or adapter, such as /reviews/predict; without a
name the only served model is used. POST / and /invocations return embeddings or classes, depending
on the model. Differences to the original: texts that are too long are split into windows unless
`truncate` is true, multiple labels are scored independently, and token ids need `tokenizer`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from maskwright.base.terminal import rounded
from maskwright.base.version import VERSION
from maskwright.learn.tasks.base.choices import PROMPTS
from maskwright.learn.tasks.base.late_interaction import Role
from maskwright.learn.tasks.base.sentence_transformers_folder import SparseEmbeddingTask, sparse_row
from maskwright.ship.serve.dialects.base.messages import (
    Ids,
    LenientBody,
    Many,
    ModelReference,
    Reply,
    Text,
    Texts,
    TextsOrPairs,
    TruncatableBody,
    as_list,
    class_scores,
    classes,
    embeddings_of,
    in_parts,
    only,
    parse,
    prompt_options,
    require_ids,
    resolve,
    respond,
    similarities_to,
    texts_in,
)
from maskwright.ship.serve.encoding import Truncation
from maskwright.ship.serve.errors import Kind, Refusal
from maskwright.ship.serve.host import Host, HostResponse, all_of

Handler = Callable[[ModelReference, Any], Awaitable[Reply]]
Name = Annotated[str, Path(description="A model or an adapter.")]
# Estimated bytes per token of an answer of /tokenize.
BYTES_A_TOKEN = 80
# Names of refusals, and statuses that differ.
TYPES: dict[Kind, str] = {
    "empty": "Empty",
    "overloaded": "Overloaded",
    "unready": "Unhealthy",
    "backend": "Backend",
    "model": "Backend",
    "weights": "Backend",
    "timeout": "Backend",
}
STATUS: dict[Kind, int] = {"backend": 424}


def render(refusal: Refusal) -> Response:
    """Render {"error", "error_type"}; a response to a wrong token has no body."""
    status = STATUS.get(refusal.kind, refusal.status)
    if refusal.kind == "unauthorised":
        return Response(status_code=status, headers=refusal.headers)
    body = {"error": refusal.message, "error_type": TYPES.get(refusal.kind, "Validation")}
    return JSONResponse(body, status, headers=refusal.headers)


class EmbedAllRequest(TruncatableBody):
    """Texts whose tokens are embedded."""

    inputs: Texts
    prompt_name: Text | None = None
    prompt: Text | None = Field(default=None, description="Ours: a text before each text.")
    tokenizer: Text | None = Field(default=None, description="Ours: the model of token ids.")


class EmbedRequest(EmbedAllRequest):
    """Texts to embed."""

    normalize: bool | None = True
    dimensions: int | None = Field(default=None, ge=1)


class PredictRequest(TruncatableBody):
    """A text or a pair, or a list of lists of these, to classify."""

    inputs: TextsOrPairs
    raw_scores: bool = False


class _Document(LenientBody):
    text: Text


class RerankRequest(TruncatableBody):
    """Texts to rank by their relevance for a query: `texts`, or `documents` as of Cohere and Jina,
    with an answer in their format."""

    query: Text
    texts: list[Text] | None = None
    documents: list[Text | _Document] | None = None
    model: Text | None = None
    top_n: int | None = Field(default=None, ge=1)
    return_documents: bool | None = None
    rank_fields: Annotated[list[Text] | None, only(["text"])] = None
    raw_scores: bool = False
    return_text: bool = False

    @property
    def text_field(self) -> tuple[str, list[str]]:
        """The name and the texts of the field that is set.

        Raises:
            Refusal: neither or both.
        """
        if (self.texts is None) is (self.documents is None):
            raise Refusal("validation", "wanted texts, or documents", field="texts")
        if self.texts is not None:
            return "texts", self.texts
        texts = [d if isinstance(d, str) else d.text for d in self.documents or ()]
        return "documents", texts


class _SimilarityInputs(LenientBody):
    source_sentence: Text
    sentences: list[Text]


class _SimilarityFields(TruncatableBody):
    prompt_name: Text | None = None


class SimilarityRequest(LenientBody):
    """A text, and others to compare with it."""

    inputs: _SimilarityInputs
    parameters: _SimilarityFields | None = None


class TokenizeRequest(LenientBody):
    """Texts to tokenize."""

    inputs: Many
    add_special_tokens: bool = True
    prompt_name: Text | None = None


class DecodeRequest(LenientBody):
    """Token ids to decode."""

    ids: Ids
    skip_special_tokens: bool = True


class VertexRequest(LenientBody):
    """Several bodies of the other routes."""

    instances: list[dict[str, Any]]


def routes(host: Host) -> APIRouter:
    router = APIRouter(tags=["text-embeddings-inference"])
    for path, (body_type, handler) in HANDLERS.items():
        options: dict[str, Any] = {"methods": ["POST"], "response_model": None}
        only, named = _endpoints(host, body_type, handler)
        router.add_api_route(path, only, **options)
        if path != "/":
            router.add_api_route(f"/{{model}}{path}", named, **options)

    @router.get("/info", response_model=None)
    async def info() -> dict[str, Any]:
        return _info(resolve(host, None))

    @router.get("/{model}/info", response_model=None)
    async def info_of(model: str) -> dict[str, Any]:
        return _info(resolve(host, model))

    @router.get("/", response_class=Response)
    @router.get("/ping", response_class=Response)
    async def ping() -> Response:
        """200 when it can answer."""
        return Response(status_code=200 if host.ready and host.alive else 503)

    return router


def _endpoints(
    host: Host, body_type: Any, handler: Handler
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the functions of a route for the only served model, and for the model in the path."""

    async def named(body: Any, model: Name) -> Response:
        in_body = getattr(body, "model", None)
        reference = resolve(host, model) if model else resolve(host, in_body, any_name=True)
        return respond(reference, *await handler(reference, body))

    async def only(body: Any) -> Response:
        return await named(body, "")

    for endpoint in (only, named):
        endpoint.__annotations__["body"] = body_type
        endpoint.__name__ = handler.__name__
    return only, named


async def embed(model: ModelReference, body: EmbedRequest) -> Reply:
    texts = texts_in(body.inputs, model, "inputs", body.tokenizer)
    _require_some(texts, "inputs")
    embeddings, response = await embeddings_of(
        model,
        texts,
        field="inputs",
        truncate=body.cuts,
        normalize=body.normalize is not False,
        dimensions=body.dimensions,
        prompt_name=body.prompt_name,
        prompt=body.prompt,
    )
    return [embedding.tolist() for embedding in embeddings], [response]


async def embed_all(model: ModelReference, body: EmbedAllRequest) -> Reply:
    texts = texts_in(body.inputs, model, "inputs", body.tokenizer)
    _require_some(texts, "inputs")
    if "embed_all" in model.engine.abilities:
        role: Role = "query" if body.prompt_name == "query" else "document"
        response = await _token_vectors(model, texts, role, "inputs", body.cuts)
        return [vectors.tolist() for vectors in response.values], [response]
    if "embed" not in model.engine.abilities:
        raise model.unable("a model that reads texts")
    prompted = prompt_options(model, body.prompt_name, body.prompt)
    options = model.options("inputs", truncate=body.cuts, task_options=prompted)
    response = await in_parts(model, texts, options, model.host.token_states)
    return [states.tolist() for states in response.values], [response]


async def _token_vectors(
    model: ModelReference, texts: Sequence[str], role: Role, field: str, truncate: Truncation
) -> HostResponse:
    options = model.options(field, truncate=truncate)
    compute = partial(model.host.token_vectors, role=role)
    return await in_parts(model, texts, options, compute)


async def embed_sparse(model: ModelReference, body: EmbedAllRequest) -> Reply:
    if not isinstance(model.task_type, SparseEmbeddingTask):
        raise model.unable("a model that makes sparse vectors (SPLADE)")
    texts = texts_in(body.inputs, model, "inputs", body.tokenizer)
    _require_some(texts, "inputs")
    prompted = prompt_options(model, body.prompt_name, body.prompt)
    options = model.options("inputs", truncate=body.cuts, task_options=prompted)
    response = await in_parts(model, texts, options, model.host.embed)
    return [sparse_row(weights) for weights in response.values], [response]


async def predict(model: ModelReference, body: PredictRequest) -> Reply:
    is_single = isinstance(body.inputs, str) or isinstance(next(iter(body.inputs), None), str)
    inputs = [body.inputs] if is_single else body.inputs
    _require_some(inputs, "inputs")
    rows = [texts[0] if len(texts) == 1 else tuple(texts) for texts in map(as_list, inputs)]
    response = await class_scores(
        model, rows, field="inputs", truncate=body.cuts, raw=body.raw_scores
    )
    classifications = [classes(model.labels, scores) for scores in response.values]
    return classifications[0] if is_single else classifications, [response]


async def rerank(model: ModelReference, body: RerankRequest) -> Reply:
    """Score texts by their relevance for a query and sort them, in the format of the request."""
    field, texts = body.text_field
    if len(model.host.names) > 1 and body.model not in (None, model.called):
        reason = f"the path names another model, {model.called}"
        raise Refusal("validation", reason, field="model")
    _require_some(texts, field)
    if _retrieves(model):
        scores, response = await _similarities(model, body.query, texts, field, body.cuts)
    elif model.is_reranker:
        rows = [(body.query, text) for text in texts]
        response = await class_scores(
            model, rows, field=field, truncate=body.cuts, raw=body.raw_scores
        )
        scores = [rounded(score) for (score,) in response.values]
    else:
        raise model.unable("a model that gives one score for two texts (a reranker)")
    order = sorted(range(len(scores)), key=lambda n: (-scores[n], n))[: body.top_n]
    if body.return_text or body.return_documents:
        documents = [{"text": text} for text in texts]
    else:
        documents = [{}] * len(texts)
    if field == "texts":
        return [{"index": n, **documents[n], "score": scores[n]} for n in order], [response]
    value = {
        "id": str(uuid.uuid4()),
        "object": "list",
        "model": model.called,
        "results": [
            {"index": n, "relevance_score": scores[n]}
            | ({"document": documents[n]} if documents[n] else {})
            for n in order
        ],
        "usage": {"total_tokens": response.prompt_tokens},
    }
    return value, [response]


async def similarity(model: ModelReference, body: SimilarityRequest) -> Reply:
    _require_some(body.inputs.sentences, "inputs.sentences")
    parameters = body.parameters or _SimilarityFields()
    inputs, cuts, prompt = body.inputs, parameters.cuts, parameters.prompt_name
    similarities, response = await _similarities(
        model, inputs.source_sentence, inputs.sentences, "inputs", cuts, prompt
    )
    return similarities, [response]


async def _similarities(
    model: ModelReference,
    query: str,
    texts: Sequence[str],
    field: str,
    truncate: Truncation,
    prompt: str | None = None,
) -> tuple[list[float], HostResponse]:
    """Return the similarity of each text to `query` (of a multi-vector encoder MaxSim), and the
    response of the model, from which the headers are made."""
    late = model.engine.late if "embed_all" in model.engine.abilities else None
    if late is None:
        return await similarities_to(
            model, query, texts, field=field, truncate=truncate, prompt_name=prompt
        )
    queries = await _token_vectors(model, [query], "query", field, truncate)
    response = await _token_vectors(model, texts, "document", field, truncate)
    scores = [late.score(queries.values[0], vectors) for vectors in response.values]
    return [float(f"{score:.7g}") for score in scores], response


async def tokenize(model: ModelReference, body: TokenizeRequest) -> Reply:
    return await asyncio.to_thread(_tokens, model, body), []


def _tokens(model: ModelReference, body: TokenizeRequest) -> list[list[dict[str, Any]]]:
    """Return the tokens of each text with their ids, texts and character offsets."""
    texts = as_list(body.inputs)
    _require_some(texts, "inputs")
    budget, tokenizer = model.host.budget(), model.tokenizer
    if (name := body.prompt_name) is not None:
        prompt_options(model, name)  # raises Refusal if there is none
        prompt = model.task().options[PROMPTS][name]
        texts = [prompt + text for text in texts]
    budget.take_rows(texts, "inputs")
    encoded = tokenizer.encode_batch(texts, offsets=True)
    budget.take_answer(BYTES_A_TOKEN * sum(len(ids) for ids, _ in encoded), "inputs")
    framing_ids = tokenizer.frame([])[0] if body.add_special_tokens else []
    framing: list[dict[str, Any]] = [
        {"id": token_id, "text": token, "special": True, "start": None, "stop": None}
        for token_id, token in zip(framing_ids, tokenizer.tokens(framing_ids), strict=True)
    ]
    num_leading = tokenizer.frame_margins()[0]
    token_lists = []
    for text, (ids, spans) in zip(texts, encoded, strict=True):
        text_tokens: list[dict[str, Any]] = [
            {"id": int(n), "text": text[a:b], "special": False, "start": int(a), "stop": int(b)}
            for n, (a, b) in zip(ids.tolist(), spans.tolist(), strict=True)
        ]
        token_lists.append([*framing[:num_leading], *text_tokens, *framing[num_leading:]])
    return token_lists


async def decode(model: ModelReference, body: DecodeRequest) -> Reply:
    return await asyncio.to_thread(_decoded_texts, model, body), []


def _decoded_texts(model: ModelReference, body: DecodeRequest) -> list[str]:
    _require_some(body.ids, "ids")
    is_single = isinstance(body.ids[0], int)
    rows: Any = [body.ids] if is_single else body.ids
    model.host.budget().require_inputs(len(rows), "ids")
    for number, row in enumerate(rows):
        require_ids(row, model, "ids" if is_single else f"ids[{number}]")
    return [model.tokenizer.decode(row, body.skip_special_tokens) for row in rows]


async def invocations(model: ModelReference, body: dict[str, Any]) -> Reply:
    return await _reply_of(model, body)()


async def vertex_prediction(model: ModelReference, body: VertexRequest) -> Reply:
    _require_some(body.instances, "instances")
    model.host.budget().require_inputs(len(body.instances), "instances")
    replies = await all_of(
        reply()
        for reply in [
            _reply_of(model, instance, f"instances[{n}]")
            for n, instance in enumerate(body.instances)
        ]
    )
    responses = [response for _, responses in replies for response in responses]
    return {"predictions": [value for value, _ in replies]}, responses


def _reply_of(
    model: ModelReference, body: dict[str, Any], field: str = "body"
) -> Callable[[], Awaitable[Reply]]:
    """Return a function that answers a body of no particular route: rerank, predict or embed."""
    if "query" in body:
        return partial(rerank, model, parse(RerankRequest, body, field))
    if model.scores_whole_texts:
        return partial(predict, model, parse(PredictRequest, body, field))
    return partial(embed, model, parse(EmbedRequest, body, field))


def _info(model: ModelReference) -> dict[str, Any]:
    """Return the body of /info: the model, its type and the limits of the server."""
    limits, engine = model.host.limits, model.engine
    task, longest = model.task_type, model.served.longest
    labels = model.labels if model.scores_whole_texts else ()
    label_maps = {
        "id2label": {str(n): label for n, label in enumerate(labels)},
        "label2id": {label: n for n, label in enumerate(labels)},
    }
    if model.scores_whole_texts:
        kind = "reranker" if model.is_reranker else "classifier"
        model_type: dict[str, Any] = {kind: label_maps}
    elif model.makes_vectors or "embed_all" in engine.abilities:
        pooling = "mean" if task is None else str(task.options.get("pooling", "mean"))
        pooling = "none" if "embed_all" in engine.abilities else pooling
        model_type = {"embedding": {"pooling": pooling}}
    else:
        model_type = {task.pipeline if task is not None else "text-generation": {}}
    return {
        "model_id": model.called,
        "model_sha": model.fingerprint,
        "model_dtype": engine.dtype_name,
        "served_model_name": model.called,
        "model_type": model_type,
        "max_concurrent_requests": limits.max_connections,
        "max_input_length": limits.max_queue_tokens if longest is None else longest,
        "max_batch_tokens": limits.max_batch_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": limits.max_items,
        "auto_truncate": False,
        "tokenization_workers": 1,
        "version": VERSION,
        "sha": None,
        "docker_label": None,
    }


def _require_some(inputs: Any, field: str) -> None:
    if not len(inputs):
        raise Refusal("empty", "cannot be empty", field=field)


HANDLERS: dict[str, tuple[Any, Handler]] = {
    "/v1/rerank": (RerankRequest, rerank),  # before /{model}/rerank
    "/v2/rerank": (RerankRequest, rerank),
    "/embed": (EmbedRequest, embed),
    "/embed_all": (EmbedAllRequest, embed_all),
    "/embed_sparse": (EmbedAllRequest, embed_sparse),
    "/predict": (PredictRequest, predict),
    "/rerank": (RerankRequest, rerank),
    "/similarity": (SimilarityRequest, similarity),
    "/tokenize": (TokenizeRequest, tokenize),
    "/decode": (DecodeRequest, decode),
    "/vertex": (VertexRequest, vertex_prediction),
    "/invocations": (dict[str, Any], invocations),
    "/": (dict[str, Any], invocations),
}


def _retrieves(model: ModelReference) -> bool:
    return "embed_all" in model.engine.abilities or isinstance(model.task_type, SparseEmbeddingTask)


# Routes that only some models answer; /docs shows those that a served model answers.
RESPONDS: dict[str, Callable[[ModelReference], bool]] = {
    **dict.fromkeys(
        ("/v1/rerank", "/v2/rerank", "/rerank"),
        lambda model: model.is_reranker or _retrieves(model),
    ),
    "/embed": lambda model: model.makes_vectors,
    "/embed_all": lambda model: bool({"embed", "embed_all"} & {*model.engine.abilities}),
    "/embed_sparse": lambda model: isinstance(model.task_type, SparseEmbeddingTask),
    "/similarity": lambda model: model.makes_vectors,
    "/predict": lambda model: model.scores_whole_texts,
}
