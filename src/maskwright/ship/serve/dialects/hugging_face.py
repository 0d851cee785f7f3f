"""The paths for the InferenceClient of huggingface_hub: /models/NAME/pipeline/TASK.

    InferenceClient().text_classification(text, model="http://…/models/reviews/pipeline/text-classification")

TASK is the name of a task on the hub. Bodies are {"inputs", "parameters"}; responses are those of
the hub, for a list of inputs a list. Unsupported parameters are refused by name.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import Field, ValidationError

from maskwright.base.counted import rounded
from maskwright.ship.serve.dialects.base.answers import (
    apply_function,
    class_scores,
    classes,
    embeddings_of,
    event_stream,
    headers_of,
    similarities_to,
)
from maskwright.ship.serve.dialects.base.bodies import Body, Many, Text, refuse_unsupported
from maskwright.ship.serve.dialects.base.model_reference import ModelReference, resolve
from maskwright.ship.serve.errors import Refusal
from maskwright.ship.serve.host import GeneratedText, GenerationOptions, Host, HostResponse, Piece

ENTAILMENT, CONTRADICTION = "entail", "contradict"
TEMPLATE = "This example is {}."
FINISHED = {"end": "eos_token", "stop": "stop_sequence", "length": "length"}
TOKENS = 100
# Range of random seeds, as in other servers.
SEEDS = 2**31
WITHIN = "parameters."
Number = Annotated[float, Field(allow_inf_nan=False)]
Reply = tuple[Any, list[HostResponse]]


def render(refusal: Refusal) -> Response:
    """Render {"error", "error_type"}."""
    return JSONResponse(failure(refusal), refusal.status, headers=refusal.headers)


def failure(refusal: Refusal) -> dict[str, str]:
    kinds = dict.fromkeys(("overloaded", "unready"), "overloaded")
    kinds |= dict.fromkeys(("backend", "weights"), "generation")
    return {"error": refusal.message, "error_type": kinds.get(refusal.kind, "validation")}


class _Fields(Body):
    """Parameters of every task."""

    adapter_id: Text | None = None
    truncate: bool | None = Field(
        default=None, description="Cut a text that is too long at its end."
    )


class _ClassFields(_Fields):
    top_k: int | None = Field(default=None, ge=1)
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None


class _MaskFields(_Fields):
    top_k: int | None = Field(default=None, ge=1, le=1000)
    targets: list[Text] | None = None


class _TagFields(_Fields):
    aggregation_strategy: Text | None = None
    ignore_labels: list[Text] | None = None
    stride: int | None = None


class _AnswerFields(_Fields):
    top_k: int | None = Field(default=None, ge=1, le=100)
    doc_stride: int | None = None
    max_answer_len: int | None = None
    max_seq_len: int | None = None
    max_question_len: int | None = None
    handle_impossible_answer: bool | None = None
    align_to_words: bool | None = None


class _LabelFields(_Fields):
    candidate_labels: list[Text] = Field(min_length=1)
    multi_label: bool | None = None
    hypothesis_template: Text | None = None


class _TextFields(_Fields):
    src_lang: Text | None = None
    tgt_lang: Text | None = None
    clean_up_tokenization_spaces: bool | None = None
    truncation: Text | None = None
    generate_parameters: dict[str, Any] | None = None


class _GenerationFields(Body):
    adapter_id: Text | None = None
    best_of: int | None = None
    decoder_input_details: bool | None = None
    details: bool | None = None
    do_sample: bool | None = None
    frequency_penalty: Number | None = None
    grammar: dict[str, Any] | None = None
    max_new_tokens: int | None = Field(default=None, ge=1)
    repetition_penalty: Number | None = None
    return_full_text: bool | None = None
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: list[Text] | None = None
    temperature: Number | None = Field(default=None, gt=0)
    top_k: int | None = Field(default=None, ge=1)
    top_n_tokens: int | None = None
    top_p: Number | None = Field(default=None, gt=0, le=1)
    truncate: int | None = None
    typical_p: Number | None = None
    watermark: bool | None = None


class _QuestionInputs(Body):
    question: Text
    context: Text


class _SentenceInputs(Body):
    source_sentence: Text
    sentences: list[Text] = Field(min_length=1)


class _FeatureBody(Body):
    """A body with its parameters beside the texts."""

    inputs: Many
    normalize: bool | None = None
    prompt_name: Text | None = None
    truncate: bool | None = None
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = None
    dimensions: int | None = Field(default=None, ge=1)
    encoding_format: Literal["float", "base64"] | None = None


def _body(inputs: Any, parameters: type[Body]) -> type[Body]:
    """Create the schema of a body from the type of `inputs` and the schema of `parameters`."""
    from pydantic import create_model

    is_required = any(field.is_required() for field in parameters.model_fields.values())
    fields: dict[str, Any] = {"inputs": (inputs, ...)}
    fields["parameters"] = (parameters, ...) if is_required else (parameters | None, None)
    fields["options"] = (dict[str, Any] | None, None)
    fields["stream"] = (bool | None, None)
    return create_model(f"{parameters.__name__}Body", __base__=Body, **fields)


def routes(host: Host) -> APIRouter:
    router = APIRouter(tags=["Hugging Face"])
    task_names = [*TASKS, *(TRAINED_TASKS)]

    @router.post("/models/{model}/pipeline/{task}", response_model=None)
    async def pipeline(model: str, task: str, body: dict[str, Any]) -> Response:
        """The answer of a model to `inputs`, as the hub's pipeline of that name gives it."""
        if task not in task_names:
            raise Refusal(
                "not_found", f"no such task; there are: {', '.join(task_names)}", field="task"
            )
        body_type, answer = TASKS.get(task) or TRAINED_TASKS[task]
        request: Any = _checked(body_type, body)
        parameters = getattr(request, "parameters", None)
        if parameters is None and body_type is not _FeatureBody:
            parameters = body_type.model_fields["parameters"].annotation.__args__[0]()  # type: ignore[union-attr]
        if getattr(request, "stream", None) and answer is not _generated_texts:
            raise Refusal("validation", "such an answer does not come in pieces", field="stream")
        reference = resolve(host, model, getattr(parameters, "adapter_id", None))
        if task in TRAINED_TASKS and reference.task().pipeline != task:
            raise reference.unable(f"a model for {task}")
        if answer is _generated_texts:
            assert isinstance(parameters, _GenerationFields)
            return await _generated_texts(reference, request, parameters)
        value, responses = await answer(reference, request, parameters)
        return JSONResponse(value, headers=headers_of(reference, responses))

    return router


def _checked(body_type: type[Body], body: dict[str, Any]) -> Body:
    try:
        return body_type.model_validate(body)
    except ValidationError as error:
        faults = error.errors()
        # The location of a field with several types contains the names of these types.
        location = [str(key) for key in faults[0]["loc"]]
        where = ".".join(key for key in location if not key.startswith("_") and "[" not in key)
        raise Refusal("validation", faults[0]["msg"], field=where or "body") from None


async def _masks(model: ModelReference, body: Any, parameters: _MaskFields) -> Reply:
    refuse_unsupported(
        parameters, {"targets": []}, "only the likeliest tokens are returned", WITHIN
    )
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    options = model.options("inputs", top=parameters.top_k)
    response = await model.host.fill_mask(model.name, texts, options)
    candidates = [_holes(holes) for holes in response.values]
    return candidates[0] if isinstance(body.inputs, str) else candidates, [response]


def _holes(holes: Sequence[Any]) -> Any:
    """Return the candidates of each mask, the best first; of a single mask without outer list."""
    candidates = [
        [
            {
                "score": rounded(candidate.probability),
                "token": candidate.id,
                "token_str": candidate.token,
                "sequence": candidate.text,
            }
            for candidate in hole.candidates
        ]
        for hole in holes
    ]
    return candidates[0] if len(candidates) == 1 else candidates


async def _embeddings(model: ModelReference, body: _FeatureBody, parameters: Any) -> Reply:
    if (body.truncation_direction or "right").lower() == "left":
        raise Refusal(
            "validation", "texts can only be truncated at their end", field="truncation_direction"
        )
    embeddings, response = await embeddings_of(
        model,
        [body.inputs] if isinstance(body.inputs, str) else body.inputs,
        field="inputs",
        truncate=bool(body.truncate),
        normalize=bool(body.normalize),
        dimensions=body.dimensions,
        prompt=body.prompt_name,
    )
    if body.encoding_format == "base64":
        encoded = [
            base64.b64encode(embedding.astype("<f4").tobytes()).decode() for embedding in embeddings
        ]
        return encoded, [response]
    return [embedding.tolist() for embedding in embeddings], [response]


async def _similarities(model: ModelReference, body: Any, parameters: _Fields) -> Reply:
    source, texts = body.inputs.source_sentence, body.inputs.sentences
    truncate = bool(parameters.truncate)
    similarities, response = await similarities_to(
        model, source, texts, field="inputs", truncate=truncate
    )
    return similarities, [response]


async def _classes(model: ModelReference, body: Any, parameters: _ClassFields) -> Reply:
    """Return a list of classes for each text, also for a single text."""
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    function = parameters.function_to_apply
    raw = function is not None
    response = await class_scores(
        model, texts, field="inputs", truncate=bool(parameters.truncate), raw=raw
    )
    scores = response.values
    if function is not None:
        scores = [apply_function(logits, function) for logits in scores]
    return [classes(model.labels, logits, parameters.top_k) for logits in scores], [response]


async def _tagged_words(model: ModelReference, body: Any, parameters: _TagFields) -> Reply:
    if parameters.aggregation_strategy not in (None, "simple", "first"):
        reason = "words are classified by their first token"
        raise Refusal(
            "validation", reason, field="parameters.aggregation_strategy", limit="simple, first"
        )
    refuse_unsupported(parameters, {"stride": None}, "windows overlap by half", WITHIN)
    value, responses = await _of_task(model, body.inputs, parameters)
    ignored = set(parameters.ignore_labels or ())

    def without_ignored(entities: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            entity
            for entity in entities
            if entity.get("entity_group", entity.get("entity")) not in ignored
        ]

    is_single = isinstance(body.inputs, str)
    return without_ignored(value) if is_single else [
        without_ignored(entities) for entities in value
    ], responses


async def _answers(model: ModelReference, body: Any, parameters: _AnswerFields) -> Reply:
    usual = dict.fromkeys(("doc_stride", "max_answer_len", "max_seq_len", "max_question_len"))
    usual |= {"align_to_words": True, "handle_impossible_answer": True}
    refuse_unsupported(parameters, usual, "the model keeps what it was trained with", WITHIN)
    is_list = isinstance(body.inputs, list)
    rows = [question.model_dump() for question in (body.inputs if is_list else [body.inputs])]
    top = parameters.top_k if (parameters.top_k or 1) > 1 else None
    options = model.options("inputs", truncate=bool(parameters.truncate), top=top)
    response = await model.host.predict(model.name, rows, options)
    return response.values if is_list else response.values[0], [response]


async def _zero_shot(model: ModelReference, body: Any, parameters: _LabelFields) -> Reply:
    """Score arbitrary labels by entailment: each label is a hypothesis about the text."""
    names = [label.lower() for label in model.labels] if model.scores_whole_texts else []
    entailments = [n for n, name in enumerate(names) if name.startswith(ENTAILMENT)]
    contradictions = [n for n, name in enumerate(names) if name.startswith(CONTRADICTION)]
    if not model.takes_pairs or len(entailments) != 1:
        raise model.unable(f"a model of two texts with a label that begins with {ENTAILMENT}")
    entailment = entailments[0]
    template = parameters.hypothesis_template or TEMPLATE
    if "{}" not in template:
        reason = "the template has no place for a label: {}"
        raise Refusal("validation", reason, field="parameters.hypothesis_template")
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    labels = parameters.candidate_labels
    model.host.budget().require_inputs(len(texts) * len(labels), "parameters.candidate_labels")
    rows = [(text, template.replace("{}", label)) for text in texts for label in labels]
    response = await class_scores(
        model, rows, field="inputs", truncate=bool(parameters.truncate), raw=True
    )
    logits = np.array(response.values, np.float64).reshape(len(texts), len(labels), -1)
    classifications = []
    for text_logits in logits:  # (labels, classes)
        if parameters.multi_label or len(labels) == 1:
            contradiction = (
                contradictions[0]
                if contradictions
                else 1 - entailment
                if text_logits.shape[1] == 2
                else None
            )
            if contradiction is None:
                raise model.unable(f"a label that begins with {CONTRADICTION}")
            probs = np.array(
                [
                    apply_function(row[[contradiction, entailment]], "softmax")[1]
                    for row in text_logits
                ]
            )
        else:
            probs = apply_function(text_logits[:, entailment], "softmax")
        classifications.append(classes(labels, probs))
    return classifications[0] if isinstance(body.inputs, str) else classifications, [response]


async def _generated_answers(model: ModelReference, body: Any, parameters: _TextFields) -> Reply:
    usual: dict[str, Any] = {"clean_up_tokenization_spaces": False, "truncation": "do_not_truncate"}
    usual |= {"src_lang": None, "tgt_lang": None, "generate_parameters": {}}
    refuse_unsupported(parameters, usual, "the model keeps what it was trained with", WITHIN)
    value, responses = await _of_task(model, body.inputs, parameters)
    return [value] if isinstance(body.inputs, str) else value, responses


async def _of_task(model: ModelReference, inputs: Any, parameters: _Fields) -> Reply:
    """Return the prediction of the task for one input, or a list of them for a list."""
    rows = inputs if isinstance(inputs, list) else [inputs]
    options = model.options("inputs", truncate=bool(parameters.truncate))
    response = await model.host.predict(model.name, rows, options)
    return response.values if isinstance(inputs, list) else response.values[0], [response]


async def _generated_texts(
    model: ModelReference, body: Any, parameters: _GenerationFields
) -> Response:
    """Continue texts: a JSON response, or an event stream for a single text."""
    if "generate" not in model.engine.abilities:
        raise model.unable("a model that writes")
    usual: dict[str, Any] = {"best_of": 1, "decoder_input_details": False, "watermark": False}
    usual |= {"frequency_penalty": 0, "repetition_penalty": 1, "typical_p": 1, "top_n_tokens": 0}
    refuse_unsupported(
        parameters, usual | {"grammar": {}, "truncate": None}, "not supported", WITHIN
    )
    sampling = (parameters.temperature, parameters.top_k, parameters.top_p)
    samples = parameters.do_sample or any(setting is not None for setting in sampling)
    if parameters.do_sample is False and samples:
        reason = "sampling is off, but its settings are given"
        raise Refusal("validation", reason, field="parameters.do_sample")
    generation = GenerationOptions(
        tokens=parameters.max_new_tokens or TOKENS,
        temperature=(parameters.temperature or 1.0) if samples else 0.0,
        top_k=parameters.top_k or 0,
        top_p=parameters.top_p or 1.0,
        seed=_seed(parameters, samples),
        stop=tuple(parameters.stop or ()),
        logprobs=0 if parameters.details or body.stream else None,
    )
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    with_prompt = bool(parameters.return_full_text)
    options = model.options("inputs")
    if body.stream:
        if not isinstance(body.inputs, str):
            raise Refusal("validation", "one text is streamed at a time", field="stream", limit=1)
        lengths: list[int] = []
        pieces = model.host.stream(model.name, texts[0], generation, options, lengths.append)
        prefix = texts[0] if with_prompt else ""

        def events(stream: AsyncIterator[Piece]) -> AsyncIterator[Any]:
            return _events(model, stream, prefix, lengths, generation.seed)

        return await event_stream(pieces, events, failure, {"x-windows": "1"})
    response = await model.host.generate(model.name, texts, generation, options)
    values = []
    for text, generated in zip(texts, response.values, strict=True):
        value: dict[str, Any] = {"generated_text": (text if with_prompt else "") + generated.text}
        if parameters.details:
            value["details"] = _details(model, generated, generation.seed)
        values.append(value)
    return JSONResponse(values, headers=headers_of(model, [response]))


def _seed(parameters: _GenerationFields, draws: bool) -> int:
    """Return the seed of the request; by default a random one if tokens are sampled, else 0."""
    if parameters.seed is not None:
        return parameters.seed
    return secrets.randbelow(SEEDS) if draws else 0


def _details(model: ModelReference, generated: GeneratedText, seed: int) -> dict[str, Any]:
    return {
        "finish_reason": FINISHED[generated.finished],
        "generated_tokens": len(generated.ids),
        "seed": seed,
        "prefill": [],
        "tokens": [_token(model, piece) for piece in generated.pieces if piece.id is not None],
    }


def _token(model: ModelReference, piece: Piece, text: str | None = None) -> dict[str, Any]:
    """Describe a generated token; the end token has no text."""
    token_id = model.tokenizer.end if piece.id is None else piece.id
    token_text = "" if piece.id is None else model.tokenizer.decode([piece.id])
    return {
        "id": -1 if token_id is None else token_id,
        "text": token_text if text is None else text,
        "logprob": piece.logprob,
        "special": piece.id is None,
    }


async def _events(
    model: ModelReference, pieces: AsyncIterator[Piece], before: str, read: list[int], seed: int
) -> AsyncIterator[Any]:
    """Yield an event for each token; the last has the whole text, which begins with `before`, and
    details. `read` has the number of prompt tokens as its element once generation has started."""
    text, num_written, index = before, 0, 0
    async for piece in pieces:
        index += 1
        num_written += piece.id is not None
        text += piece.text
        details = None
        if piece.finished is not None:
            details = {
                "finish_reason": FINISHED[piece.finished],
                "generated_tokens": num_written,
                "input_length": sum(read),
                "seed": seed,
            }
        yield {
            "index": index,
            "token": _token(model, piece, piece.text),
            "generated_text": text if details is not None else None,
            "details": details,
        }


Handler = Callable[[ModelReference, Any, Any], Awaitable[Any]]
# Tasks that require an ability, and tasks that a model must have been trained for.
TASKS: dict[str, tuple[type[Body], Handler]] = {
    "fill-mask": (_body(Many, _MaskFields), _masks),
    "feature-extraction": (_FeatureBody, _embeddings),
    "sentence-similarity": (_body(_SentenceInputs, _Fields), _similarities),
    "zero-shot-classification": (_body(Many, _LabelFields), _zero_shot),
    "text-generation": (_body(Many, _GenerationFields), _generated_texts),
}
TRAINED_TASKS: dict[str, tuple[type[Body], Handler]] = {
    "text-classification": (_body(Many, _ClassFields), _classes),
    "token-classification": (_body(Many, _TagFields), _tagged_words),
    "question-answering": (
        _body(_QuestionInputs | list[_QuestionInputs], _AnswerFields),
        _answers,
    ),
    "summarization": (_body(Many, _TextFields), _generated_answers),
    "translation": (_body(Many, _TextFields), _generated_answers),
    "text2text-generation": (_body(Many, _TextFields), _generated_answers),
}
