"""The paths for the InferenceClient of huggingface_hub: /models/NAME/pipeline/TASK.

    InferenceClient().text_classification(text, model="http://…/models/reviews/pipeline/text-classification")

TASK is the name of a task on the hub. Bodies are {"inputs", "parameters"}; responses are those of
the hub, for a list of inputs a list. Parameters of a task that are not supported are refused unless
they have no effect; fields that it does not have are ignored and counted.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import Field, create_model

from maskwright.base.errors import CheckpointError, IncompatibleError, UsageError
from maskwright.base.terminal import rounded
from maskwright.learn.tasks.base import choices
from maskwright.learn.tasks.base.aggregation import AggregationStrategy
from maskwright.learn.tasks.base.task_type import TaskType
from maskwright.learn.tasks.base.text_generation import for_task
from maskwright.learn.tasks.base.zero_shot import HYPOTHESIS, hypotheses, label_logits
from maskwright.model.inference.growing_text import Piece
from maskwright.model.opening import folders
from maskwright.ship.serve.dialects.base.messages import (
    LenientBody,
    Many,
    ModelReference,
    Number,
    Reply,
    ScoreFunction,
    Text,
    TruncatableBody,
    apply_function,
    as_list,
    class_scores,
    classes,
    embeddings_of,
    event_stream,
    only,
    parse,
    plain_embedding,
    resolve,
    respond,
    similarities_to,
)
from maskwright.ship.serve.errors import Refusal, of_error
from maskwright.ship.serve.generation import GenerationOptions
from maskwright.ship.serve.host import Host

FINISHED = {"end": "eos_token", "stop": "stop_sequence", "length": "length"}
TOKENS = 100
# Range of random seeds, as in other servers.
SEEDS = 2**31
SETTINGS = {"top_k", "top_p", "typical_p", "repetition_penalty", "frequency_penalty"}
UnsupportedInt = Annotated[int | None, only(None)]


def render(refusal: Refusal) -> Response:
    """Render {"error", "error_type"}."""
    return JSONResponse(failure(refusal), refusal.status, headers=refusal.headers)


def failure(refusal: Refusal) -> dict[str, str]:
    kinds = dict.fromkeys(("overloaded", "unready"), "overloaded")
    kinds |= dict.fromkeys(("backend", "weights"), "generation")
    return {"error": refusal.message, "error_type": kinds.get(refusal.kind, "validation")}


class _Fields(TruncatableBody):
    """Parameters of every task."""

    adapter_id: Text | None = None


class _ClassFields(_Fields):
    top_k: int | None = Field(default=None, ge=1)
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None


class _MaskFields(_Fields):
    top_k: int | None = Field(default=None, ge=1, le=1000)
    targets: Text | list[Text] | None = None


class _TagFields(_Fields):
    aggregation_strategy: AggregationStrategy | None = Field(
        default=None, description="As of transformers; without it the words of the text are tagged."
    )
    ignore_labels: list[Text] | None = None
    stride: UnsupportedInt = None  # windows overlap by half


class _AnswerFields(_Fields):
    top_k: int | None = Field(default=None, ge=1, le=100)
    doc_stride: int | None = Field(default=None, ge=0)
    max_answer_len: int | None = Field(default=None, ge=1)
    max_seq_len: int | None = Field(default=None, ge=8)
    max_question_len: int | None = Field(default=None, ge=1)
    handle_impossible_answer: bool | None = None
    align_to_words: bool | None = None

    @property
    def task_options(self) -> dict[str, Any]:
        """The options of the task that the fields replace."""
        options: dict[str, Any] = {
            choices.OVERLAP: self.doc_stride,
            "longest": self.max_answer_len,
            choices.INPUT_LENGTH: self.max_seq_len,
            choices.QUESTION_LENGTH: self.max_question_len,
            choices.WITHIN: None if self.align_to_words is None else not self.align_to_words,
        }
        options = {name: value for name, value in options.items() if value is not None}
        if self.handle_impossible_answer is not None:
            options |= {choices.IMPOSSIBLE: self.handle_impossible_answer, "threshold": None}
        return options


class _LabelFields(_Fields):
    candidate_labels: list[Text] = Field(min_length=1)
    multi_label: bool | None = None
    hypothesis_template: Text | None = None


class _TextFields(_Fields):
    src_lang: Text | None = None
    tgt_lang: Text | None = None
    clean_up_tokenization_spaces: Annotated[bool | None, only(False)] = None
    truncation: Literal["do_not_truncate", "longest_first", "only_first"] | None = None
    generate_parameters: dict[str, Any] | None = None


class _GenerationFields(LenientBody):
    adapter_id: Text | None = None
    best_of: Annotated[int | None, only(1)] = None
    decoder_input_details: Annotated[bool | None, only(False)] = None
    details: bool | None = None
    do_sample: bool | None = None
    frequency_penalty: Number | None = Field(default=None, ge=-2, le=2)
    grammar: Annotated[dict[str, Any] | None, only({})] = None
    max_new_tokens: int | None = Field(default=None, ge=1)
    repetition_penalty: Number | None = Field(default=None, gt=0)
    return_full_text: bool | None = None
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: list[Text] | None = None
    temperature: Number | None = Field(default=None, gt=0)
    top_k: int | None = Field(default=None, ge=1)
    top_n_tokens: Annotated[int | None, only(0)] = None
    top_p: Number | None = Field(default=None, gt=0, le=1)
    truncate: UnsupportedInt = None
    typical_p: Number | None = Field(default=None, gt=0, le=1)
    watermark: Annotated[bool | None, only(False)] = None


class _QuestionInputs(LenientBody):
    question: Text
    context: Text


class _SentenceInputs(LenientBody):
    source_sentence: Text
    sentences: list[Text] = Field(min_length=1)


class _FeatureBody(TruncatableBody):
    """A body with its parameters beside the texts."""

    inputs: Many
    normalize: bool | None = None
    prompt_name: Text | None = None
    dimensions: int | None = Field(default=None, ge=1)
    encoding_format: Literal["float", "base64"] | None = None


def routes(host: Host) -> APIRouter:
    router = APIRouter(tags=["Hugging Face"])
    tasks = TASKS | TRAINED_TASKS

    @router.post("/models/{model}/pipeline/{task}", response_model=None)
    async def pipeline(model: str, task: str, body: dict[str, Any]) -> Response:
        """The answer of a model to `inputs`, as the hub's pipeline of that name gives it."""
        if task not in tasks:
            reason = f"no such task; there are: {', '.join(tasks)}"
            raise Refusal("not_found", reason, field="task")
        body_type, parameters_type, answer = tasks[task]
        request: Any = parse(body_type, body)
        parameters: Any = getattr(request, "parameters", None) or parameters_type()
        streams = getattr(request, "stream", None)
        if streams and answer is not _generated_texts:
            raise Refusal("validation", "such an answer does not come in pieces", field="stream")
        reference = resolve(host, model, getattr(parameters, "adapter_id", None))
        if task in TRAINED_TASKS and not _serves(reference.task(), task):
            raise reference.unable(f"a model for {task}")
        if streams:
            return await _streamed_text(reference, request, parameters)
        return respond(reference, *await answer(reference, request, parameters))

    return router


def _serves(task_type: TaskType, task: str) -> bool:
    """Whether a model answers a task of the hub; one that writes texts for texts and was not
    fine-tuned here answers all of these tasks."""
    return task_type.pipeline == task or (task in WRITING and choices.TASKS in task_type.options)


def _like(inputs: Any, values: list[Any]) -> Any:
    """Return all values for a list of inputs, else the only one."""
    return values if isinstance(inputs, list) else values[0]


async def _masks(model: ModelReference, body: Any, parameters: _MaskFields) -> Reply:
    targets = tuple(as_list(parameters.targets or []))
    options = model.options("inputs", top=parameters.top_k, targets=targets)
    response = await model.host.fill_mask(model.name, as_list(body.inputs), options)
    return _like(body.inputs, [_holes(holes) for holes in response.values]), [response]


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
    embeddings, response = await embeddings_of(
        model,
        as_list(body.inputs),
        field="inputs",
        truncate=body.cuts,
        normalize=bool(body.normalize),
        dimensions=body.dimensions,
        prompt_name=body.prompt_name,
    )
    return [plain_embedding(e, body.encoding_format) for e in embeddings], [response]


async def _similarities(model: ModelReference, body: Any, parameters: _Fields) -> Reply:
    source, texts = body.inputs.source_sentence, body.inputs.sentences
    similarities, response = await similarities_to(
        model, source, texts, field="inputs", truncate=parameters.cuts
    )
    return similarities, [response]


async def _classes(model: ModelReference, body: Any, parameters: _ClassFields) -> Reply:
    """Return a list of classes for each text, also for a single text."""
    texts, function = as_list(body.inputs), parameters.function_to_apply
    truncate, raw = parameters.cuts, function is not None
    response = await class_scores(model, texts, field="inputs", truncate=truncate, raw=raw)
    scores = response.values
    if function is not None:
        scores = [apply_function(logits, function) for logits in scores]
    return [classes(model.labels, logits, parameters.top_k) for logits in scores], [response]


async def _predictions(
    model: ModelReference,
    body: Any,
    parameters: _Fields,
    top: int | None = None,
    task_options: Mapping[str, Any] | None = None,
) -> Reply:
    """Return a list of the predictions of the task, also for a single input."""
    rows = [
        row.model_dump() if isinstance(row, LenientBody) else row for row in as_list(body.inputs)
    ]
    options = model.options(
        "inputs", truncate=parameters.cuts, top=top, task_options=task_options or {}
    )
    response = await model.host.predict(model.name, rows, options)
    return response.values, [response]


async def _written_texts(
    task: str, model: ModelReference, body: Any, parameters: _TextFields
) -> Reply:
    """Return the texts that a model writes, by the settings that its folder has for the task."""
    task_type, changes = model.task(), parameters.generate_parameters or {}
    if choices.TASKS in task_type.options:
        languages = [parameters.src_lang, parameters.tgt_lang]
        name = "_to_".join(filter(None, languages))
        try:
            task_type = for_task(task_type, f"{task}_{name}" if name else task)
        except UsageError as error:
            field = "parameters.src_lang" if name or task == "translation" else "parameters"
            raise of_error(error, field) from error
    elif parameters.src_lang or parameters.tgt_lang:
        reason = "the model was trained for one pair of languages; leave it out"
        raise Refusal("validation", reason, field="parameters.src_lang")
    field = "parameters.generate_parameters"
    if unknown := [key for key in changes if key not in folders.FOLLOWED]:
        reason = f"only {', '.join(folders.FOLLOWED)} are supported, not {', '.join(unknown)}"
        raise Refusal("validation", reason, field=field)
    try:
        options = folders.followed_options(changes, model.tokenizer.vocabulary_size)
    except CheckpointError as error:
        key = (error.where or "").rpartition(" ")[2]
        reason = f"{key}: {error.found} is not {error.wanted}"
        raise Refusal("validation", reason, field=field) from error
    if parameters.truncation in ("longest_first", "only_first"):
        parameters = parameters.model_copy(update={"truncate": True})
    task_options = {**task_type.options, **options}
    return await _predictions(model, body, parameters, task_options=task_options)


async def _tagged_words(model: ModelReference, body: Any, parameters: _TagFields) -> Reply:
    strategy, ignored = parameters.aggregation_strategy, parameters.ignore_labels
    task_options: dict[str, Any] = {}
    if strategy is not None:
        task_options |= {choices.AGGREGATION: strategy}
        task_options |= {} if ignored is None else {choices.IGNORED_LABELS: ignored}
    predictions, responses = await _predictions(model, body, parameters, task_options=task_options)
    if strategy is None:
        predictions = [
            [e for e in entities if e.get("entity_group", e.get("entity")) not in (ignored or ())]
            for entities in predictions
        ]
    return _like(body.inputs, predictions), responses


async def _answers(model: ModelReference, body: Any, parameters: _AnswerFields) -> Reply:
    top = parameters.top_k if (parameters.top_k or 1) > 1 else None
    options = parameters.task_options
    predictions, responses = await _predictions(model, body, parameters, top, options)
    return _like(body.inputs, predictions), responses


async def _zero_shot(model: ModelReference, body: Any, parameters: _LabelFields) -> Reply:
    """Score arbitrary labels by entailment: each label is a hypothesis about the text."""
    names = model.labels if model.scores_whole_texts and model.takes_pairs else ()
    texts, labels = as_list(body.inputs), parameters.candidate_labels
    several = bool(parameters.multi_label) or len(labels) == 1
    template = parameters.hypothesis_template or HYPOTHESIS
    try:
        # Refused before the texts are scored if no class of the model means entailment.
        label_logits(np.zeros((1, 1, len(names))), names, several=several)
        statements = hypotheses(labels, template)
    except IncompatibleError as error:
        raise model.unable(error.wanted or "") from None
    except UsageError as error:
        field = "parameters.hypothesis_template"
        raise Refusal("validation", error.what, field=field) from None
    model.host.budget().require_inputs(len(texts) * len(labels), "parameters.candidate_labels")
    rows = [(text, statement) for text in texts for statement in statements]
    response = await class_scores(model, rows, field="inputs", truncate=parameters.cuts, raw=True)
    logits = np.array(response.values, np.float64).reshape(len(texts), len(labels), -1)
    function: ScoreFunction = "sigmoid" if several else "softmax"
    probs = [apply_function(row, function) for row in label_logits(logits, names, several=several)]
    return _like(body.inputs, [classes(labels, row) for row in probs]), [response]


def _generation_options(
    model: ModelReference, parameters: _GenerationFields, streams: bool
) -> GenerationOptions:
    if "generate" not in model.engine.abilities:
        raise model.unable("a model that writes")
    # As in text-generation-inference, settings of sampling turn it on, and 1 is no temperature.
    shares = (parameters.temperature, parameters.top_p, parameters.typical_p)
    samples = bool(parameters.do_sample or parameters.top_k)
    samples = samples or any(share not in (None, 1) for share in shares)
    seed = parameters.seed
    if seed is None:
        seed = secrets.randbelow(SEEDS) if samples else 0
    return GenerationOptions(
        tokens=parameters.max_new_tokens or TOKENS,
        temperature=(parameters.temperature or 1.0) if samples else 0.0,
        seed=seed,
        stop=tuple(parameters.stop or ()),
        logprobs=0 if parameters.details or streams else None,
        **parameters.model_dump(include=SETTINGS, exclude_none=True),
    )


async def _generated_texts(
    model: ModelReference, body: Any, parameters: _GenerationFields
) -> Reply:
    """Return a list of continuations, also for a single text."""
    generation = _generation_options(model, parameters, streams=False)
    texts, options = as_list(body.inputs), model.options("inputs")
    response = await model.host.generate(model.name, texts, generation, options)
    values = []
    for text, generated in zip(texts, response.values, strict=True):
        prefix = text if parameters.return_full_text else ""
        value: dict[str, Any] = {"generated_text": prefix + generated.text}
        if parameters.details:
            value["details"] = {
                "finish_reason": FINISHED[generated.finished],
                "generated_tokens": len(generated.ids),
                "seed": generation.seed,
                "prefill": [],
                "tokens": [_token(model, p) for p in generated.pieces if p.id is not None],
            }
        values.append(value)
    return values, [response]


async def _streamed_text(
    model: ModelReference, body: Any, parameters: _GenerationFields
) -> Response:
    generation, text = _generation_options(model, parameters, streams=True), body.inputs
    if not isinstance(text, str):
        raise Refusal("validation", "one text is streamed at a time", field="stream", limit=1)
    prefix = text if parameters.return_full_text else ""
    lengths: list[int] = []
    pieces = model.host.stream(
        model.name, text, generation, model.options("inputs"), lengths.append
    )

    def events(stream: AsyncIterator[Piece]) -> AsyncIterator[Any]:
        return _events(model, stream, prefix, lengths, generation.seed)

    return await event_stream(pieces, events, failure, {"x-windows": "1"})


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


Handler = Callable[[ModelReference, Any, Any], Awaitable[Reply]]
# The schema of the body, that of its parameters, and the function that answers.
Task = tuple[type[LenientBody], type[LenientBody], Handler]


def _task(inputs: Any, parameters: type[LenientBody], handler: Handler) -> Task:
    """Create the schema of a body from the type of `inputs` and the schema of `parameters`."""
    is_required = any(field.is_required() for field in parameters.model_fields.values())
    fields: dict[str, Any] = {
        "inputs": (inputs, ...),
        "parameters": (parameters, ...) if is_required else (parameters | None, None),
        "options": (dict[str, Any] | None, None),
        "stream": (bool | None, None),
    }
    body_type = create_model(f"{parameters.__name__}Body", __base__=LenientBody, **fields)
    return body_type, parameters, handler


# Tasks whose answers are texts that a model writes.
WRITING = ("summarization", "translation", "text2text-generation")
# Tasks that require an ability, and tasks that a model must have been trained for.
TASKS: dict[str, Task] = {
    "fill-mask": _task(Many, _MaskFields, _masks),
    "feature-extraction": (_FeatureBody, LenientBody, _embeddings),
    "sentence-similarity": _task(_SentenceInputs, _Fields, _similarities),
    "zero-shot-classification": _task(Many, _LabelFields, _zero_shot),
    "text-generation": _task(Many, _GenerationFields, _generated_texts),
}
TRAINED_TASKS: dict[str, Task] = {
    "text-classification": _task(Many, _ClassFields, _classes),
    "token-classification": _task(Many, _TagFields, _tagged_words),
    "question-answering": _task(_QuestionInputs | list[_QuestionInputs], _AnswerFields, _answers),
    **{task: _task(Many, _TextFields, partial(_written_texts, task)) for task in WRITING},
}
