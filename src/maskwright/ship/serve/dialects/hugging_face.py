"""The paths that huggingface_hub's InferenceClient is given: /models/NAME/pipeline/TASK.

    InferenceClient().text_classification(text, model="http://…/models/reviews/pipeline/text-classification")

TASK is what the hub calls a task. Bodies are {"inputs", "parameters"}, answers those of the hub; an
answer to a list of inputs is a list of answers. Parameters that are not done are refused by name.
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
from maskwright.ship.serve.dialects.base.bodies import Body, Many, Text, refuse_set
from maskwright.ship.serve.dialects.base.chosen import Chosen, choose
from maskwright.ship.serve.dialects.base.classes import applied, classes, scored
from maskwright.ship.serve.dialects.base.headers import headers_of
from maskwright.ship.serve.dialects.base.streams import streaming
from maskwright.ship.serve.dialects.base.vectors import alike, vectors
from maskwright.ship.serve.errors import Refusal
from maskwright.ship.serve.host import Answered, Host, Piece, Writing, Written

ENTAILMENT, CONTRADICTION = "entail", "contradict"
TEMPLATE = "This example is {}."
FINISHED = {"end": "eos_token", "stop": "stop_sequence", "length": "length"}
TOKENS = 100
# Seeds that are drawn where none is given, as many as other servers have.
SEEDS = 2**31
WITHIN = "parameters."
Number = Annotated[float, Field(allow_inf_nan=False)]
Answer = tuple[Any, list[Answered]]


def render(refusal: Refusal) -> Response:
    """{"error", "error_type"}."""
    return JSONResponse(failure(refusal), refusal.status, headers=refusal.headers)


def failure(refusal: Refusal) -> dict[str, str]:
    kinds = dict.fromkeys(("overloaded", "unready"), "overloaded")
    kinds |= dict.fromkeys(("backend", "weights"), "generation")
    return {"error": refusal.message, "error_type": kinds.get(refusal.kind, "validation")}


class _Any(Body):
    """Parameters that every task takes."""

    adapter_id: Text | None = None
    truncate: bool | None = Field(
        default=None, description="Cut a text that is too long at its end."
    )


class _Classes(_Any):
    top_k: int | None = Field(default=None, ge=1)
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None


class _Masks(_Any):
    top_k: int | None = Field(default=None, ge=1, le=1000)
    targets: list[Text] | None = None


class _Words(_Any):
    aggregation_strategy: Text | None = None
    ignore_labels: list[Text] | None = None
    stride: int | None = None


class _Answers(_Any):
    top_k: int | None = Field(default=None, ge=1, le=100)
    doc_stride: int | None = None
    max_answer_len: int | None = None
    max_seq_len: int | None = None
    max_question_len: int | None = None
    handle_impossible_answer: bool | None = None
    align_to_words: bool | None = None


class _Labels(_Any):
    candidate_labels: list[Text] = Field(min_length=1)
    multi_label: bool | None = None
    hypothesis_template: Text | None = None


class _Writes(_Any):
    src_lang: Text | None = None
    tgt_lang: Text | None = None
    clean_up_tokenization_spaces: bool | None = None
    truncation: Text | None = None
    generate_parameters: dict[str, Any] | None = None


class _Generation(Body):
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


class _Question(Body):
    question: Text
    context: Text


class _Sentences(Body):
    source_sentence: Text
    sentences: list[Text] = Field(min_length=1)


class _Vectors(Body):
    """Of vectors the parameters stand beside the texts."""

    inputs: Many
    normalize: bool | None = None
    prompt_name: Text | None = None
    truncate: bool | None = None
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = None
    dimensions: int | None = Field(default=None, ge=1)
    encoding_format: Literal["float", "base64"] | None = None


def _body(inputs: Any, parameters: type[Body]) -> type[Body]:
    """A body with these inputs and parameters."""
    from pydantic import create_model

    needs = any(field.is_required() for field in parameters.model_fields.values())
    fields: dict[str, Any] = {"inputs": (inputs, ...)}
    fields["parameters"] = (parameters, ...) if needs else (parameters | None, None)
    fields["options"] = (dict[str, Any] | None, None)
    fields["stream"] = (bool | None, None)
    return create_model(f"{parameters.__name__}Body", __base__=Body, **fields)


def routes(host: Host) -> APIRouter:
    router = APIRouter(tags=["Hugging Face"])
    own = [*TASKS, *(OF_TASK)]

    @router.post("/models/{model}/pipeline/{task}", response_model=None)
    async def pipeline(model: str, task: str, body: dict[str, Any]) -> Response:
        """The answer of a model to `inputs`, as the hub's pipeline of that name gives it."""
        if task not in own:
            raise Refusal("not_found", f"no such task; there are: {', '.join(own)}", field="task")
        kind, answer = TASKS.get(task) or OF_TASK[task]
        made: Any = _checked(kind, body)
        parameters = getattr(made, "parameters", None)
        if parameters is None and kind is not _Vectors:
            parameters = kind.model_fields["parameters"].annotation.__args__[0]()  # type: ignore[union-attr]
        if getattr(made, "stream", None) and answer is not _written:
            raise Refusal("validation", "such an answer does not come in pieces", field="stream")
        chosen = choose(host, model, getattr(parameters, "adapter_id", None))
        if task in OF_TASK and chosen.task().pipeline != task:
            raise chosen.unable(f"a model for {task}")
        if answer is _written:
            assert isinstance(parameters, _Generation)
            return await _written(chosen, made, parameters)
        value, answers = await answer(chosen, made, parameters)
        return JSONResponse(value, headers=headers_of(chosen, answers))

    return router


def _checked(kind: type[Body], body: dict[str, Any]) -> Body:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        faults = error.errors()
        # Of a field that is one of several shapes their names stand among the parts of its place.
        parts = [str(part) for part in faults[0]["loc"]]
        where = ".".join(part for part in parts if not part.startswith("_") and "[" not in part)
        raise Refusal("validation", faults[0]["msg"], field=where or "body") from None


# ---------------------------------------------------------------------------- masks, vectors
async def _masks(model: Chosen, body: Any, parameters: _Masks) -> Answer:
    refuse_set(parameters, {"targets": []}, "only the likeliest tokens are told", WITHIN)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    options = model.options("inputs", top=parameters.top_k)
    answered = await model.host.fill_mask(model.name, texts, options)
    found = [_holes(each) for each in answered.values]
    return found[0] if isinstance(body.inputs, str) else found, [answered]


def _holes(holes: Sequence[Any]) -> Any:
    """The candidates of the only hole, or those of each."""
    each = [
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
    return each[0] if len(each) == 1 else each


async def _features(model: Chosen, body: _Vectors, parameters: Any) -> Answer:
    if (body.truncation_direction or "right").lower() == "left":
        raise Refusal("validation", "a text can only lose its end", field="truncation_direction")
    found, answered = await vectors(
        model,
        [body.inputs] if isinstance(body.inputs, str) else body.inputs,
        field="inputs",
        truncate=bool(body.truncate),
        normalize=bool(body.normalize),
        dimensions=body.dimensions,
        prompt=body.prompt_name,
    )
    if body.encoding_format == "base64":
        coded = [base64.b64encode(each.astype("<f4").tobytes()).decode() for each in found]
        return coded, [answered]
    return [each.tolist() for each in found], [answered]


async def _alike(model: Chosen, body: Any, parameters: _Any) -> Answer:
    source, texts = body.inputs.source_sentence, body.inputs.sentences
    truncate = bool(parameters.truncate)
    found, answered = await alike(model, source, texts, field="inputs", truncate=truncate)
    return found, [answered]


# ---------------------------------------------------------------------------- tasks with a head
async def _classes(model: Chosen, body: Any, parameters: _Classes) -> Answer:
    """A list of classes for each text; of one text a list of one such list."""
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    function = parameters.function_to_apply
    raw = function is not None
    answered = await scored(
        model, texts, field="inputs", truncate=bool(parameters.truncate), raw=raw
    )
    scores = answered.values
    if function is not None:
        scores = [applied(each, function) for each in scores]
    return [classes(model.labels, each, parameters.top_k) for each in scores], [answered]


async def _words(model: Chosen, body: Any, parameters: _Words) -> Answer:
    if parameters.aggregation_strategy not in (None, "simple", "first"):
        what = "words are told, each by its first token"
        raise Refusal(
            "validation", what, field="parameters.aggregation_strategy", limit="simple, first"
        )
    refuse_set(parameters, {"stride": None}, "windows overlap by half", WITHIN)
    value, answered = await _of_task(model, body.inputs, parameters)
    ignored = set(parameters.ignore_labels or ())

    def wanted(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            each for each in found if each.get("entity_group", each.get("entity")) not in ignored
        ]

    alone = isinstance(body.inputs, str)
    return wanted(value) if alone else [wanted(each) for each in value], answered


async def _answers(model: Chosen, body: Any, parameters: _Answers) -> Answer:
    own = dict.fromkeys(("doc_stride", "max_answer_len", "max_seq_len", "max_question_len"))
    own |= {"align_to_words": True, "handle_impossible_answer": True}
    refuse_set(parameters, own, "the model keeps what it was trained with", WITHIN)
    many = isinstance(body.inputs, list)
    rows = [each.model_dump() for each in (body.inputs if many else [body.inputs])]
    top = parameters.top_k if (parameters.top_k or 1) > 1 else None
    options = model.options("inputs", truncate=bool(parameters.truncate), top=top)
    answered = await model.host.predict(model.name, rows, options)
    return answered.values if many else answered.values[0], [answered]


async def _zero_shot(model: Chosen, body: Any, parameters: _Labels) -> Answer:
    """Labels of the user's own, each a hypothesis that follows from the text or does not."""
    names = [label.lower() for label in model.labels] if model.scores_whole_texts else []
    yes = [n for n, name in enumerate(names) if name.startswith(ENTAILMENT)]
    no = [n for n, name in enumerate(names) if name.startswith(CONTRADICTION)]
    if not model.takes_pairs or len(yes) != 1:
        raise model.unable(f"a model of two texts with a label that begins with {ENTAILMENT}")
    template = parameters.hypothesis_template or TEMPLATE
    if "{}" not in template:
        what = "the template has no place for a label: {}"
        raise Refusal("validation", what, field="parameters.hypothesis_template")
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    labels = parameters.candidate_labels
    model.host.budget().require_inputs(len(texts) * len(labels), "parameters.candidate_labels")
    rows = [(text, template.replace("{}", label)) for text in texts for label in labels]
    answered = await scored(
        model, rows, field="inputs", truncate=bool(parameters.truncate), raw=True
    )
    logits = np.array(answered.values, np.float64).reshape(len(texts), len(labels), -1)
    found = []
    for each in logits:  # (labels, classes)
        if parameters.multi_label or len(labels) == 1:
            other = no[0] if no else 1 - yes[0] if each.shape[1] == 2 else None
            if other is None:
                raise model.unable(f"a label that begins with {CONTRADICTION}")
            shares = np.array([applied(row[[other, yes[0]]], "softmax")[1] for row in each])
        else:
            shares = applied(each[:, yes[0]], "softmax")
        found.append(classes(labels, shares))
    return found[0] if isinstance(body.inputs, str) else found, [answered]


async def _rewritten(model: Chosen, body: Any, parameters: _Writes) -> Answer:
    own: dict[str, Any] = {"clean_up_tokenization_spaces": False, "truncation": "do_not_truncate"}
    own |= {"src_lang": None, "tgt_lang": None, "generate_parameters": {}}
    refuse_set(parameters, own, "the model keeps what it was trained with", WITHIN)
    value, answered = await _of_task(model, body.inputs, parameters)
    return [value] if isinstance(body.inputs, str) else value, answered


async def _of_task(model: Chosen, inputs: Any, parameters: _Any) -> Answer:
    """As the task type answers: one answer, or a list of them."""
    rows = inputs if isinstance(inputs, list) else [inputs]
    options = model.options("inputs", truncate=bool(parameters.truncate))
    answered = await model.host.predict(model.name, rows, options)
    return answered.values if isinstance(inputs, list) else answered.values[0], [answered]


# ---------------------------------------------------------------------------- writing
async def _written(model: Chosen, body: Any, parameters: _Generation) -> Response:
    if "generate" not in model.opened.abilities:
        raise model.unable("a model that writes")
    usual: dict[str, Any] = {"best_of": 1, "decoder_input_details": False, "watermark": False}
    usual |= {"frequency_penalty": 0, "repetition_penalty": 1, "typical_p": 1, "top_n_tokens": 0}
    refuse_set(
        parameters, usual | {"grammar": {}, "truncate": None}, "this is not done here", WITHIN
    )
    sampling = (parameters.temperature, parameters.top_k, parameters.top_p)
    draws = parameters.do_sample or any(each is not None for each in sampling)
    if parameters.do_sample is False and draws:
        what = "nothing is drawn, and how is said beside it"
        raise Refusal("validation", what, field="parameters.do_sample")
    writing = Writing(
        tokens=parameters.max_new_tokens or TOKENS,
        temperature=(parameters.temperature or 1.0) if draws else 0.0,
        top_k=parameters.top_k or 0,
        top_p=parameters.top_p or 1.0,
        seed=_seed(parameters, draws),
        stop=tuple(parameters.stop or ()),
        logprobs=0 if parameters.details or body.stream else None,
    )
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    full = bool(parameters.return_full_text)
    options = model.options("inputs")
    if body.stream:
        if not isinstance(body.inputs, str):
            raise Refusal("validation", "one text is streamed at a time", field="stream", limit=1)
        read: list[int] = []
        pieces = model.host.stream(model.name, texts[0], writing, options, read.append)
        before = texts[0] if full else ""

        def events(found: AsyncIterator[Piece]) -> AsyncIterator[Any]:
            return _events(model, found, before, read, writing.seed)

        return await streaming(pieces, events, failure, {"x-windows": "1"})
    answered = await model.host.generate(model.name, texts, writing, options)
    values = []
    for text, found in zip(texts, answered.values, strict=True):
        value: dict[str, Any] = {"generated_text": (text if full else "") + found.text}
        if parameters.details:
            value["details"] = _details(model, found, writing.seed)
        values.append(value)
    return JSONResponse(values, headers=headers_of(model, [answered]))


def _seed(parameters: _Generation, draws: bool) -> int:
    """The seed; where one is needed and none is given another each time, which `details` tell."""
    if parameters.seed is not None:
        return parameters.seed
    return secrets.randbelow(SEEDS) if draws else 0


def _details(model: Chosen, found: Written, seed: int) -> dict[str, Any]:
    return {
        "finish_reason": FINISHED[found.finished],
        "generated_tokens": len(found.ids),
        "seed": seed,
        "prefill": [],
        "tokens": [_token(model, each) for each in found.pieces if each.id is not None],
    }


def _token(model: Chosen, piece: Piece, text: str | None = None) -> dict[str, Any]:
    """A token of the text; the end token has no text."""
    end = model.tokenizer.end if piece.id is None else piece.id
    shown = "" if piece.id is None else model.tokenizer.decode([piece.id])
    return {
        "id": -1 if end is None else end,
        "text": shown if text is None else text,
        "logprob": piece.logprob,
        "special": piece.id is None,
    }


async def _events(
    model: Chosen, pieces: AsyncIterator[Piece], before: str, read: list[int], seed: int
) -> AsyncIterator[Any]:
    """A token each, with the text that it shows; the last with all of it, and with how many tokens
    were `read`."""
    text, count, index = before, 0, 0
    async for piece in pieces:
        index += 1
        count += piece.id is not None
        text += piece.text
        details = None
        if piece.finished is not None:
            details = {
                "finish_reason": FINISHED[piece.finished],
                "generated_tokens": count,
                "input_length": sum(read),
                "seed": seed,
            }
        yield {
            "index": index,
            "token": _token(model, piece, piece.text),
            "generated_text": text if details is not None else None,
            "details": details,
        }


Make = Callable[[Chosen, Any, Any], Awaitable[Any]]
# What can be asked of a model by what it is; and of one that was trained for that very task.
TASKS: dict[str, tuple[type[Body], Make]] = {
    "fill-mask": (_body(Many, _Masks), _masks),
    "feature-extraction": (_Vectors, _features),
    "sentence-similarity": (_body(_Sentences, _Any), _alike),
    "zero-shot-classification": (_body(Many, _Labels), _zero_shot),
    "text-generation": (_body(Many, _Generation), _written),
}
OF_TASK: dict[str, tuple[type[Body], Make]] = {
    "text-classification": (_body(Many, _Classes), _classes),
    "token-classification": (_body(Many, _Words), _words),
    "question-answering": (_body(_Question | list[_Question], _Answers), _answers),
    "summarization": (_body(Many, _Writes), _rewritten),
    "translation": (_body(Many, _Writes), _rewritten),
    "text2text-generation": (_body(Many, _Writes), _rewritten),
}
