"""The routes of the OpenAI API that served models can answer.

    GET  /v1/models /v1/models/NAME
    POST /v1/embeddings (also /embeddings) /v1/completions
    POST /v1/chat/completions /v1/responses      refused, with what there is instead

Errors have the format of OpenAI, {"error": {…}}, with the fields for clients of
text-embeddings-inference beside it. Parameters of the API that are not supported are refused unless
they have no effect; fields that the API does not have are ignored and counted. A single served
model answers to every name. Token ids are prompts as they are; texts to embed are given as ids only
with the name of their tokenizer.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from maskwright.model.inference.growing_text import Piece
from maskwright.model.opening import special_tokens
from maskwright.ship.serve.dialects.base.messages import (
    LenientBody,
    ModelReference,
    Number,
    Text,
    Texts,
    all_references,
    as_list,
    embeddings_of,
    event_stream,
    only,
    plain_embedding,
    require_ids,
    resolve,
    respond,
    texts_in,
)
from maskwright.ship.serve.encoding import TokenLogprob, likeliest
from maskwright.ship.serve.errors import Kind, Refusal
from maskwright.ship.serve.generation import GeneratedText, GenerationOptions
from maskwright.ship.serve.host import Host, HostResponse

STATUS: dict[Kind, int] = {"validation": 400, "model": 400}
# Seeds have 31 bits, as in clients.
SEEDS = 2**31
LOGPROBS, CHOICES, STOPS = 5, 8, 4
SETTINGS = {"top_p", "repetition_penalty", "frequency_penalty", "presence_penalty"}


def render(refusal: Refusal) -> Response:
    """Render {"error": {"message", "type", "param", "code"}, "message", "type", "code"}."""
    status = STATUS.get(refusal.kind, refusal.status)
    error_types = {429: "rate_limit_error", 401: "authentication_error", 404: "not_found_error"}
    error_type = (error_types | {424: "server_error"}).get(
        status, "invalid_request_error" if status < 500 else "server_error"
    )
    code = "model_not_found" if refusal.kind == "not_found" else refusal.kind
    error = {"message": refusal.message, "type": error_type, "param": refusal.field, "code": code}
    should_retry = status in (429, 503)
    headers = {**refusal.headers, "x-should-retry": "true" if should_retry else "false"}
    tei_fields = {"message": refusal.message, "type": error_type, "code": status}
    return JSONResponse({"error": error, **tei_fields}, status, headers=headers)


class EmbeddingsRequest(LenientBody):
    """Texts to embed."""

    input: Texts
    model: Text | None = None
    user: Text | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(default=None, ge=1)
    truncate: bool | None = Field(default=None, description="Ours: cut a text that is too long.")
    prompt_name: Text | None = Field(default=None, description="Ours: a prompt of the model.")
    prompt: Text | None = Field(default=None, description="Ours: a text before each text.")
    tokenizer: Text | None = Field(default=None, description="Ours: the model of token ids.")


class _StreamOptions(LenientBody):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class CompletionsRequest(LenientBody):
    """Prompts to continue."""

    prompt: Texts
    model: Text | None = None
    best_of: int | None = None
    echo: bool | None = None
    frequency_penalty: Number | None = Field(default=None, ge=-2, le=2)
    logit_bias: Annotated[dict[str, Number] | None, only({})] = None
    logprobs: int | None = Field(default=None, ge=0, le=LOGPROBS)
    max_tokens: int | None = Field(default=None, ge=0)
    n: int | None = Field(default=None, ge=1, le=CHOICES)
    presence_penalty: Number | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: Number | None = Field(default=None, gt=0, description="As of vLLM.")
    top_k: int | None = Field(default=None, ge=-1, description="As of vLLM; -1 or 0: off.")
    min_p: Annotated[Number | None, only(0)] = None
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: Text | list[Text] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    suffix: Annotated[Text | None, only("")] = None
    temperature: Number | None = Field(default=None, ge=0, le=2)
    top_p: Number | None = Field(default=None, gt=0, le=1)
    user: Text | None = None


def routes(host: Host) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])
    created = int(time.time())

    def described(model: ModelReference) -> dict[str, Any]:
        return {
            "id": model.called,
            "object": "model",
            "created": created,
            "owned_by": "maskwright",
        }

    @router.get("/v1/models", response_model=None)
    async def models() -> dict[str, Any]:
        """All models and adapters."""
        return {"object": "list", "data": [described(model) for model in all_references(host)]}

    @router.get("/v1/models/{model}", response_model=None)
    async def model(model: str) -> dict[str, Any]:
        return described(resolve(host, model))

    @router.post("/v1/embeddings", response_model=None)
    @router.post("/embeddings", response_model=None)
    async def embeddings(body: EmbeddingsRequest) -> Response:
        model = resolve(host, body.model, any_name=True)
        texts = texts_in(body.input, model, "input", body.tokenizer)
        vectors, response = await embeddings_of(
            model,
            texts,
            field="input",
            truncate=bool(body.truncate),
            dimensions=body.dimensions,
            trained_dimensions=True,
            prompt_name=body.prompt_name,
            prompt=body.prompt,
        )
        plain = [plain_embedding(vector, body.encoding_format) for vector in vectors]
        data = [{"object": "embedding", "embedding": e, "index": n} for n, e in enumerate(plain)]
        tokens = response.prompt_tokens
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        value = {"object": "list", "data": data, "model": model.called, "usage": usage}
        return respond(model, value, [response])

    @router.post("/v1/completions", response_model=None)
    async def completions(body: CompletionsRequest) -> Response:
        return await _completions(resolve(host, body.model, any_name=True), body)

    @router.post("/v1/chat/completions", response_model=None)
    @router.post("/v1/responses", response_model=None)
    async def chat(body: dict[str, Any]) -> Response:
        """Always refused."""
        reason = (
            "this server has no chat: its models have no chat template; POST /v1/completions "
            "continues a text, /v1/embeddings embeds texts, and /docs lists all routes"
        )
        raise Refusal("model", reason, field="messages")

    return router


async def _completions(model: ModelReference, body: CompletionsRequest) -> Response:
    """Validate a completion request, score its prompts if needed, and generate or stream texts."""
    if "generate" not in model.engine.abilities:
        raise model.unable("a model that writes")
    if body.best_of not in (None, 1, body.n or 1):
        raise Refusal("validation", "only as many texts are written as returned", field="best_of")
    if body.stream_options is not None and not body.stream:
        raise Refusal("validation", "only with stream", field="stream_options")
    tokens = 16 if body.max_tokens is None else body.max_tokens
    if not tokens and not body.echo:
        raise Refusal("validation", "nothing to answer with; ask with echo", field="max_tokens")
    stop = [] if body.stop is None else as_list(body.stop)
    if len(stop) > STOPS or not all(stop):
        reason = "strings that end a text, none of them empty"
        raise Refusal("validation", reason, field="stop", limit=STOPS)
    is_single = isinstance(body.prompt, str) or isinstance(next(iter(body.prompt), ""), int)
    prompts: list[Any] = [body.prompt] if is_single else list(body.prompt)
    for number, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            require_ids(prompt, model, "prompt" if is_single else f"prompt[{number}]")
    copies, seed = body.n or 1, body.seed
    first_seed = secrets.randbelow(SEEDS) if seed is None else seed % SEEDS
    wants_scores = body.echo and (body.logprobs is not None or not tokens)
    num_inputs = copies + bool(wants_scores and tokens)  # of each prompt
    model.host.budget().require_inputs(len(prompts) * num_inputs, "prompt")
    generation = GenerationOptions(
        tokens=tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_k=max(0, body.top_k or 0),
        stop=tuple(stop),
        logprobs=body.logprobs,
        **body.model_dump(include=SETTINGS, exclude_none=True),
    )
    variants = [replace(generation, seed=(first_seed + copy) % SEEDS) for copy in range(copies)]
    if body.stream and len(prompts) * copies != 1:
        raise Refusal("validation", "one text is streamed at a time", field="stream", limit=1)
    options, scored = model.options("prompt"), None
    if wants_scores:
        score_options = model.options("prompt", top=body.logprobs)
        scored = await model.host.prompt_scores(model.name, prompts, score_options)
    completions = _CompletionsResponse(model, body, prompts, copies, scored)
    if body.stream:
        pieces = _none()
        if tokens:
            pieces = model.host.stream(
                model.name, prompts[0], variants[0], options, completions.set_prompt_tokens
            )
        return await event_stream(pieces, completions.events, failure, {"x-windows": "1"})
    texts: list[GeneratedText] = []
    if tokens:
        all_prompts = [prompt for prompt in prompts for _ in variants]
        response = await model.host.generate(
            model.name, all_prompts, variants * len(prompts), options
        )
        texts, first_copies = response.values, slice(None, None, copies)
        response = replace(
            response, tokens=response.tokens[first_copies], windows=response.windows[first_copies]
        )
        scored = scored or replace(response, truncated=response.truncated[first_copies])
    assert scored is not None
    completions.set_prompt_tokens(sum(scored.tokens))
    return respond(model, completions.whole(texts), [scored])


async def _none() -> AsyncIterator[Piece]:
    """Yield the pieces of an empty text."""
    yield Piece(0, None, "", "length")


def failure(refusal: Refusal) -> dict[str, Any]:
    """Return the content of the event for an error within a stream."""
    error = {"message": refusal.message, "type": "server_error", "param": None}
    return {"error": {**error, "code": refusal.kind}}


class _CompletionsResponse:
    """Formats responses to a completion request as OpenAI does.

    Args:
        copies: the number of texts per prompt.
        scored: the log-probabilities of each prompt; None if not requested.
    """

    def __init__(
        self,
        model: ModelReference,
        body: CompletionsRequest,
        prompts: list[Any],
        copies: int,
        scored: HostResponse | None,
    ) -> None:
        self.model, self.body, self.copies = model, body, copies
        decode = model.tokenizer.decode
        self.prompts = [p if isinstance(p, str) else decode(p, False) for p in prompts]
        self.scored, self.prompt_tokens = scored, 0 if scored is None else sum(scored.tokens)
        self.head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model.called,
            "system_fingerprint": model.fingerprint[:16],
        }

    def set_prompt_tokens(self, tokens: int) -> None:
        self.prompt_tokens = tokens

    def whole(self, texts: Sequence[GeneratedText]) -> dict[str, Any]:
        """Return the body of a response that is not streamed; copies of a prompt are consecutive.
        `texts` is empty if no tokens were requested."""
        choices = []
        for number in range(len(self.prompts) * self.copies):
            generated = texts[number] if texts else GeneratedText()
            echoed = self.prompts[number // self.copies] if self.body.echo else ""
            logprobs = self._logprobs(generated.pieces, len(echoed), number // self.copies)
            choices.append(_choice(number, echoed + generated.text, logprobs, generated.finished))
        num_written = sum(len(text.ids) for text in texts)
        return {**self.head, "choices": choices, "usage": _usage(self.prompt_tokens, num_written)}

    async def events(self, pieces: AsyncIterator[Piece]) -> AsyncIterator[Any]:
        """Yield a chunk for each piece with text, then the usage if requested, then [DONE]."""
        options = self.body.stream_options
        wants_usage = options is not None and bool(options.include_usage)
        usage_field = {"usage": None} if wants_usage else {}
        count, offset = 0, 0
        if self.body.echo:
            yield self._chunk(self.prompts[0], self._logprobs([], 0, 0), None) | usage_field
            offset = len(self.prompts[0])
        pending: list[Piece] = []
        async for piece in pieces:
            count += piece.id is not None
            pending.append(piece)
            if piece.text or piece.finished:
                text = "".join(pending_piece.text for pending_piece in pending)
                logprobs = self._logprobs(pending, offset)
                yield self._chunk(text, logprobs, piece.finished) | usage_field
                offset += len(text)
                pending = []
        if wants_usage:
            yield {**self.head, "choices": [], "usage": _usage(self.prompt_tokens, count)}
        yield "[DONE]"

    def _chunk(self, text: str, logprobs: Any, finished: str | None) -> dict[str, Any]:
        return {**self.head, "choices": [_choice(0, text, logprobs, finished)]}

    def _logprobs(
        self, pieces: Sequence[Piece], offset: int = 0, number: int | None = None
    ) -> dict[str, Any] | None:
        """Return the log-probabilities of pieces whose text begins at character `offset`, after
        those of prompt `number` if it was scored; None if not requested."""
        if self.body.logprobs is None:
            return None
        tokenizer, logprobs = self.model.tokenizer, list[TokenLogprob]()

        def add(token: str, piece: Piece) -> None:
            best = likeliest(tokenizer, piece.top_logprobs)
            logprobs.append(TokenLogprob(token, piece.logprob, best, offset))

        if number is not None and self.scored is not None:
            logprobs += self.scored.values[number]
        for piece in pieces:
            if piece.id is not None:
                add(tokenizer.decode([piece.id]), piece)
            offset += len(piece.text)
            if piece.id is None and piece.logprob is not None:
                end = special_tokens.end_of_text(tokenizer)
                add("" if end is None else tokenizer.decode([end], False), piece)
        return {
            "tokens": [entry.token for entry in logprobs],
            "token_logprobs": [entry.logprob for entry in logprobs],
            "top_logprobs": [entry.best for entry in logprobs] if self.body.logprobs else None,
            "text_offset": [entry.offset for entry in logprobs],
        }


def _choice(number: int, text: str, logprobs: Any, finished: str | None) -> dict[str, Any]:
    """Return a choice; `finished` None: the text is incomplete."""
    reason = "stop" if finished in ("end", "stop") else finished
    return {"index": number, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


# Routes that only some models answer (`dialects/tei.py`); chat is always refused.
RESPONDS: dict[str, Callable[[ModelReference], bool]] = {
    **dict.fromkeys(("/v1/embeddings", "/embeddings"), lambda model: model.makes_vectors),
    "/v1/completions": lambda model: "generate" in model.engine.abilities,
    **dict.fromkeys(("/v1/chat/completions", "/v1/responses"), lambda model: False),
}
