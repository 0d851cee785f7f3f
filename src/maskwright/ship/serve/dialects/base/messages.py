"""What dialects share: bodies of requests, the model they refer to, and responses.

A request names a model or an adapter. If a single model is served, no name is required.

Bodies have typed fields, and texts without invalid characters. A `Body` has no unknown fields; a
`LenientBody` ignores and counts them, as the server does whose protocol it has. Responses are
embeddings, classes and event streams, all with these headers:

    x-served-model        the name of the model that answered
    x-compute-type        cpu or cuda
    x-compute-characters, x-compute-tokens        of all texts
    x-total-time, x-tokenization-time, x-queue-time, x-inference-time, x-compute-time      ms
    x-windows             the number of windows of each text, such as 1,3,1
    x-truncated           the indices of the truncated texts, such as 2,5; "none" without any
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote

import numpy as np
import scipy.special
from fastapi.responses import JSONResponse, Response, StreamingResponse
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from maskwright.ask.predict.engine import Engine
from maskwright.base.errors import shorten
from maskwright.base.terminal import rounded
from maskwright.learn.tasks.base.add_head import num_outputs
from maskwright.learn.tasks.base.choices import COMPARED, DIMENSIONS, NAME, PROMPTS, SKIPPED
from maskwright.learn.tasks.base.similarities import compared, unit_vectors
from maskwright.learn.tasks.base.task_type import UNTOLD, TaskType
from maskwright.model.inference.growing_text import Piece
from maskwright.ship.serve.encoding import Options, Truncation, split_rows
from maskwright.ship.serve.errors import Refusal, of_error
from maskwright.ship.serve.host import Host, HostResponse
from maskwright.ship.serve.metrics import Timings
from maskwright.ship.serve.served_model import ServedModel
from maskwright.text.tokenizer.tokenizer import Tokenizer


# ------------------------------------------------------------------------------ models
@dataclass(frozen=True)
class ModelReference:
    """A served model, without an adapter or with one.

    Attributes:
        name: the name of the model.
        adapter: the name of the adapter or head; None: the model itself.
    """

    host: Host
    name: str
    adapter: str | None

    @property
    def served(self) -> ServedModel:
        return self.host.model(self.name)

    @property
    def engine(self) -> Engine:
        return self.served.engine(self.adapter)

    @property
    def called(self) -> str:
        """The name of the adapter, or of the model."""
        return self.adapter or self.name

    @property
    def fingerprint(self) -> str:
        """The hash of the model's files when it was opened."""
        return self.engine.fingerprint

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; raises IncompatibleError if the folder has none."""
        return self.engine.model.tokenizer

    @property
    def task_type(self) -> TaskType | None:
        """The task that the model was trained for; None: no task."""
        if "predict" not in self.engine.abilities:
            return None
        return self.engine.predictor.task_type

    @property
    def makes_vectors(self) -> bool:
        """Whether the model was trained to embed texts, or can embed and has no other task."""
        task = self.task_type
        if task is not None and task.head == "sequence":
            return False
        if task is None or self.engine.model.writes_for_texts:
            return "embed" in self.engine.abilities
        return bool(task.alone)

    @property
    def scores_whole_texts(self) -> bool:
        """Whether the model's task scores whole texts or pairs."""
        return self.task_type is not None and self.task_type.scores_rows

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the task; LABEL_0, … if it has none, as in transformers."""
        task = self.task_type
        assert task is not None
        return task.labels or tuple(f"LABEL_{n}" for n in range(num_outputs(task)))

    @property
    def takes_pairs(self) -> bool:
        """Whether the model's task accepts pairs of texts."""
        task = self.task_type
        return task is not None and (len(task.roles) == 2 or bool(task.options.get(UNTOLD)))

    @property
    def is_reranker(self) -> bool:
        """Whether the model's task gives one score for a pair of texts."""
        return self.scores_whole_texts and self.takes_pairs and num_outputs(self.task()) == 1

    def task(self) -> TaskType:
        """Return the task that the model was trained for.

        Raises:
            Refusal: the model was trained for no task.
        """
        if (task_type := self.task_type) is None:
            raise self.unable("a model that was fine-tuned for a task")
        return task_type

    def unable(self, requirement: str) -> Refusal:
        """Return the refusal for a missing ability; `requirement` describes a suitable model."""
        abilities = ", ".join(self.engine.abilities)
        reason = f"{self.called} cannot do this; wanted: {requirement}; abilities: {abilities}"
        return Refusal("model", reason, field="model")

    def options(self, field: str = "inputs", **settings: Any) -> Options:
        return Options(adapter=self.adapter, field=field, **settings)


def resolve(
    host: Host, name: str | None, adapter: str | None = None, *, any_name: bool = False
) -> ModelReference:
    """Find the model or adapter of that name.

    Args:
        any_name: a single model without adapters answers to every name.

    Raises:
        Refusal: it does not exist, or `name` is None and several models are served.
    """
    if any_name and len(host.names) == 1 and not host.model().adapters:
        name = None
    if name is None:
        if len(host.names) > 1:
            served_names = ", ".join(host.names)
            reason = f"several models are served, and none is named; there are: {served_names}"
            raise Refusal("validation", reason, field="model")
        name = host.model().name
    elif name not in host.names and adapter is None:
        for served in map(host.model, host.names):
            if name in served.adapters:
                return ModelReference(host, served.name, name)
    host.model(name).engine(adapter)  # raises Refusal if there is none
    return ModelReference(host, name, adapter)


def all_references(host: Host) -> list[ModelReference]:
    """Return references to all models, then to all adapters; names are unique."""
    models = [ModelReference(host, name, None) for name in host.names]
    references = {reference.called: reference for reference in models}
    for reference in models:
        for adapter in reference.served.adapters:
            references.setdefault(adapter, ModelReference(host, reference.name, adapter))
    return list(references.values())


# ------------------------------------------------------------------------------ bodies
SURROGATE = re.compile("[\ud800-\udfff]")
FAULTS = 10  # maximum number of validation errors that a response lists
BodyType = TypeVar("BodyType", bound="Body")
Condition = Callable[[Any], bool]


class Body(BaseModel):
    """A request body or a part of one, with strict types and without unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


# The unknown fields in the body of the current request.
IGNORED: ContextVar[set[str] | None] = ContextVar("ignored", default=None)


class LenientBody(Body):
    """A body whose unknown fields are ignored; their names are added to `IGNORED`."""

    model_config = ConfigDict(extra="allow")

    def model_post_init(self, context: Any) -> None:
        if self.model_extra and (ignored := IGNORED.get()) is not None:
            ignored.update(self.model_extra)


class TruncatableBody(LenientBody):
    """The fields of a body whose texts may be truncated."""

    truncate: bool | None = Field(default=None, description="Cut a text that is too long.")
    truncation_direction: Literal["Left", "Right", "left", "right"] = "Right"

    @property
    def cuts(self) -> Truncation:
        """Whether and where texts may be truncated."""
        side: Truncation = "left" if self.truncation_direction.lower() == "left" else "right"
        return side if self.truncate else False


def _wrong(message: str) -> PydanticCustomError:
    return PydanticCustomError("wrong", "{what}", {"what": message})


def valid_text(value: Any) -> Any:
    """Check strings, also in nested lists, for NUL characters and lone surrogates."""
    if isinstance(value, str):
        if "\0" in value:
            raise _wrong("a text holds the character NUL")
        if SURROGATE.search(value):
            raise _wrong("a text holds half of a surrogate pair, which is no character")
    elif isinstance(value, list):
        for element in value:
            valid_text(element)
    return value


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _list_of(is_element: Condition) -> Condition:
    return lambda value: isinstance(value, list) and all(map(is_element, value))


def _one_of(description: str, *conditions: Condition) -> BeforeValidator:
    """A validator of inputs that meet one of the conditions, and whose texts are valid."""

    def check(value: Any) -> Any:
        if not any(condition(value) for condition in conditions):
            raise _wrong(f"wanted {description}")
        return valid_text(value)

    return BeforeValidator(check)


def only(supported: Any) -> AfterValidator:
    """A validator of a field whose other values are not supported; null is as good as none."""

    def check(value: Any) -> Any:
        if value is not None and value != supported:
            raise _wrong(f"not supported; leave it out, or set it to {json.dumps(supported)}")
        return value

    return AfterValidator(check)


Text = Annotated[str, BeforeValidator(valid_text)]
Number = Annotated[float, Field(allow_inf_nan=False)]
# One text or several.
Many = Annotated[
    str | list[str],
    _one_of("a text, or a list of texts", _is_text, _list_of(_is_text)),
]
# One text or several, or their token ids.
Texts = Annotated[
    str | list[str] | list[int] | list[list[int]],
    _one_of(
        "a text, a list of texts, token ids, or a list of lists of these",
        _is_text,
        _list_of(_is_text),
        _list_of(_is_id),
        _list_of(_list_of(_is_id)),
    ),
]
# Token ids of one text, or of several.
Ids = Annotated[
    list[int] | list[list[int]],
    _one_of("token ids, or a list of lists of these", _list_of(_is_id), _list_of(_list_of(_is_id))),
]
# A text or a pair; or a list of texts and pairs. A flat list is one pair.
TextsOrPairs = Annotated[
    str | list[str] | list[list[str]],
    _one_of(
        "a text, a pair of texts, or a list of lists of one text or two: [[text], [text], …]",
        _is_text,
        lambda value: _list_of(_is_text)(value) and len(value) in (0, 2),
        _list_of(lambda element: _list_of(_is_text)(element) and len(element) in (1, 2)),
    ),
]


def parse(body_type: type[BodyType], body: Any, field: str = "") -> BodyType:
    """Validate a parsed body, which lies at `field` of the body of the request.

    Raises:
        Refusal: the body does not match its schema.
    """
    try:
        return body_type.model_validate(body)
    except ValidationError as error:
        raise misfit(error.errors(include_url=False), field) from None


def misfit(faults: Sequence[Mapping[str, Any]], field: str = "") -> Refusal:
    """Return the refusal of a body at `field` with these validation errors of pydantic."""
    shown = faults[:FAULTS]
    locations = [_location(fault, field) for fault in shown]
    lines = [shown[0]["msg"]]
    lines += [f"{where}: {fault['msg']}" for where, fault in zip(locations, shown, strict=True)][1:]
    more = f"; and {len(faults) - FAULTS} more" if len(faults) > FAULTS else ""
    return Refusal("validation", shorten("; ".join(lines), 900) + more, field=locations[0])


def _location(fault: Mapping[str, Any], field: str) -> str:
    """Return the field of a validation error, without the types of a field with several types."""
    keys = [str(key) for key in fault["loc"]]
    fields = [key for key in keys if not key.startswith("_") and "[" not in key]
    return ".".join(filter(None, (field, *(fields or keys)))) or "body"


def as_list(inputs: Any) -> Any:
    """Return an input that may be one text or a list as a list."""
    return inputs if isinstance(inputs, list) else [inputs]


def texts_in(
    inputs: str | list[str] | list[int] | list[list[int]],
    model: ModelReference,
    field: str,
    tokenizer: str | None,
) -> list[str]:
    """Return an input as a list of texts; token ids are decoded.

    Args:
        tokenizer: the name or fingerprint of the model whose tokenizer made the token ids. Ids of
            another tokenizer, such as those that LangChain sends by default, are other words.

    Raises:
        Refusal: token ids without the name of the model's tokenizer, or not the encoding of any
            text.
    """
    if isinstance(inputs, str):
        return [inputs]
    is_text = not inputs or isinstance(inputs[0], str)
    if not is_text and tokenizer not in (model.name, model.called, model.fingerprint):
        reason = (
            "token ids of an unknown tokenizer; give texts (in LangChain: "
            f'check_embedding_ctx_length=False), or add "tokenizer": "{model.called}" if the ids '
            "are of the tokenizer of this model"
        )
        raise Refusal("validation", reason, field=field)
    if inputs and isinstance(inputs[0], int):
        return [_text_of_ids(inputs, model, field)]
    return [
        text_or_ids
        if isinstance(text_or_ids, str)
        else _text_of_ids(text_or_ids, model, f"{field}[{number}]")  # type: ignore[arg-type]
        for number, text_or_ids in enumerate(inputs)
    ]


def _text_of_ids(ids: Sequence[int], model: ModelReference, field: str) -> str:
    tokenizer = model.tokenizer
    require_ids(ids, model, field)
    text = tokenizer.decode(ids)
    text_ids = tokenizer.encode(text) if text.strip() else []
    if list(ids) not in (text_ids, tokenizer.frame(text_ids)[0]):
        reason = "these token ids are those of no text; give the text"
        raise Refusal("validation", reason, field=field)
    return text


def require_ids(ids: Sequence[int], model: ModelReference, field: str) -> None:
    """Raise a Refusal for token ids that the vocabulary does not have."""
    last_id = model.tokenizer.vocabulary_size - 1
    if any(not 0 <= token_id <= last_id for token_id in ids):
        raise Refusal("validation", "a token id outside the vocabulary", field=field, limit=last_id)


# ------------------------------------------------------------------------------ answers
ScoreFunction = Literal["sigmoid", "softmax", "none"]
# The content of a response, and the responses of the host that it was made of.
Reply = tuple[Any, list[HostResponse]]


def render(refusal: Refusal) -> Response:
    """Render a refusal in the plain format: {"error", "kind", "field", "limit"}."""
    body: dict[str, Any] = {"error": refusal.reason, "kind": refusal.kind}
    body |= {} if refusal.field is None else {"field": refusal.field}
    body |= {} if refusal.limit is None else {"limit": refusal.limit}
    return JSONResponse(body, refusal.status, headers=refusal.headers)


_WIDTHS: dict[str, int] = {}  # of embeddings, by the fingerprint of the model


async def embeddings_of(
    model: ModelReference,
    texts: Sequence[str],
    *,
    field: str,
    truncate: Truncation,
    normalize: bool = True,
    dimensions: int | None = None,
    trained_dimensions: bool = False,
    prompt_name: str | None = None,
    prompt: str | None = None,
) -> tuple[list[NDArray[np.float32]], HostResponse]:
    """Return the embedding (D,) of each text, and the response of the host.

    Args:
        normalize: scale embeddings to unit length.
        dimensions: the number of leading dimensions to return, scaled to length 1; None: all.
        trained_dimensions: refuse numbers that the model was not trained for.
        prompt_name, prompt: as in `prompt_options`.

    Raises:
        Refusal: the model makes no embeddings, has no such prompt, or not so few dimensions.
    """
    if not model.makes_vectors:
        raise model.unable("a model that makes vectors")
    prompted = prompt_options(model, prompt_name, prompt)
    options = model.options(field, truncate=truncate, task_options=prompted)
    if dimensions is not None:
        if (width := _WIDTHS.get(model.fingerprint)) is None:
            # The width is that of the last module of the folder: one short text shows it.
            probe = await in_parts(model, ["a"], options, model.host.embed)
            width = _WIDTHS[model.fingerprint] = len(probe.values[0])
        trained = (model.task_type.options if model.task_type else {}).get(DIMENSIONS, [width])
        if not (min(trained) if trained_dimensions else 1) <= dimensions <= width:
            numbers = ", ".join(map(str, trained))
            reason = f"the model was trained for {numbers} dimensions (Matryoshka)"
            raise Refusal("validation", reason, field="dimensions", limit=width)
    response = await in_parts(model, texts, options, model.host.embed)
    embeddings: list[NDArray[np.float32]] = response.values
    if dimensions is not None and dimensions != len(embeddings[0]):
        embeddings = list(unit_vectors(np.stack(embeddings)[:, :dimensions]))
    return [_unit(embedding) for embedding in embeddings] if normalize else embeddings, response


def plain_embedding(embedding: NDArray[np.float32], encoding: str | None) -> list[float] | str:
    """Return an embedding as a JSON value: its numbers, or their bytes in "base64"."""
    if encoding == "base64":
        return base64.b64encode(embedding.astype("<f4").tobytes()).decode()
    return embedding.tolist()


async def in_parts(
    model: ModelReference,
    rows: Sequence[Any],
    options: Options,
    compute: Callable[[str, Sequence[Any], Options], Awaitable[HostResponse]],
) -> HostResponse:
    """Compute the rows of a request. If they have more characters than half of the queue may have
    tokens, they are computed one portion after the other, each within the deadline, so that
    other requests are answered between them."""
    budget, limit = model.host.budget(), model.host.limits.max_queue_tokens // 2
    portions = list(split_rows(rows, len(rows), limit))
    if len(portions) <= 1:
        return await compute(model.name, rows, options)
    budget.require_inputs(len(rows), options.field)
    responses = []
    for portion in portions:
        budget.begin_portion()
        responses.append(await compute(model.name, [rows[n] for n in portion], options))

    def joined(name: str) -> list[Any]:
        return [value for response in responses for value in getattr(response, name)]

    timings = [vars(response.timings) for response in responses]
    return HostResponse(
        values=joined("values"),
        tokens=joined("tokens"),
        windows=joined("windows"),
        truncated=joined("truncated"),
        timings=Timings(**{name: sum(seconds[name] for seconds in timings) for name in timings[0]}),
        characters=sum(response.characters for response in responses),
        fingerprint=responses[0].fingerprint,
    )


def prompt_options(
    model: ModelReference, name: str | None, prompt: str | None = None
) -> dict[str, Any]:
    """Return the options of the task by which texts are embedded with another prompt before them.

    Args:
        name: the name of a prompt of the model; None: its default.
        prompt: a text to use instead of a prompt of the model.

    Raises:
        Refusal: there is no such prompt, both are given, or the model does not pool the tokens of
            its own prompt.
    """
    options: dict[str, Any] = dict(model.task_type.options) if model.task_type else {}
    prompts = options.get(PROMPTS, {})
    if prompt is not None and name is not None:
        raise Refusal("validation", "a prompt, or the name of one", field="prompt")
    if prompt is None and name in (None, options.get(NAME)):
        return {}
    if prompt is None and name not in prompts:
        prompt_names = ", ".join(prompts) or "none"
        reason = f"no prompt of that name; there are: {prompt_names}"
        raise Refusal("validation", reason, field="prompt_name")
    if SKIPPED in options:
        reason = f"the model always has the prompt {options.get(NAME)!r}, which it does not pool"
        raise Refusal("validation", reason, field="prompt_name")
    return {NAME: name} if prompt is None else {PROMPTS: {"": prompt}, NAME: ""}


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
    model: ModelReference,
    rows: Sequence[Any],
    *,
    field: str,
    truncate: Truncation,
    raw: bool = False,
) -> HostResponse:
    """Return the probabilities (L,) of each text or pair, or with `raw` the scores of the head.

    Raises:
        Refusal: the model does not score whole texts.
    """
    if not model.scores_whole_texts:
        raise model.unable("a model that gives classes or a number of whole texts")
    options = model.options(field, truncate=truncate, raw=raw)
    return await in_parts(model, rows, options, model.host.scores)


def classes(
    labels: Sequence[str], scores: NDArray[np.floating], top: int | None = None
) -> list[dict[str, Any]]:
    """Return the `top` best labels with their scores, in descending order; None: all labels."""
    order = np.argsort(-scores, kind="stable")[:top]
    return [{"score": rounded(scores[index]), "label": labels[index]} for index in order]


def apply_function(logits: NDArray[np.floating], function: ScoreFunction) -> NDArray[np.float64]:
    """Apply a softmax or sigmoid to logits (L,); "none" returns them."""
    wide_logits = logits.astype(np.float64)
    if function == "none":
        return wide_logits
    scores = {"softmax": scipy.special.softmax, "sigmoid": scipy.special.expit}[function]
    return np.asarray(scores(wide_logits))


def headers_of(model: ModelReference, responses: Sequence[HostResponse]) -> dict[str, str]:
    """Return the headers of a response; times are the maximum over the responses of the host."""

    def slowest(name: str) -> str:
        return str(round(1000 * max(getattr(r.timings, name) for r in responses)))

    truncated = [is_cut for response in responses for is_cut in response.truncated]
    return {
        "x-served-model": quote(model.called),
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
