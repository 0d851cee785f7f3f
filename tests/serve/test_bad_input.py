"""What is wrong with a body is said with its field: 4xx, short, and no neighbour is touched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import torch
from safetensors.torch import load_file, save_file

from maskwright.ask.predict.language_model import load
from maskwright.base.errors import CheckpointError
from maskwright.ship.serve.command import serve
from maskwright.ship.serve.dialects import openai
from maskwright.ship.serve.errors import Limits, Refusal, RequestBudget, of_error
from maskwright.ship.serve.host import Host
from maskwright.ship.serve.metrics import MOST_FIELDS, Metrics
from serve.clients import TasksServer

pytestmark = pytest.mark.loopback
PIPELINE = "/models/{}/pipeline/{}"
MASKS = PIPELINE.format("masks", "fill-mask")
ZERO_SHOT = PIPELINE.format("entailment", "zero-shot-classification")
ANSWERS = PIPELINE.format("answers", "question-answering")
COMPLETIONS = "/v1/completions"
WRITER = {"model": "writer", "prompt": "a"}
COPIES = WRITER | {"n": 4, "max_tokens": 1}
SCORED = WRITER | {"echo": True, "logprobs": 1}
CUT = {"inputs": "a", "truncate": True}
OWN_IDS = {"tokenizer": "vectors"}
TOP_NINE = {"parameters": {"top_k": 9}}
PAIR = ["a", "b"]
QUESTION = {"question": "who", "context": "the cat sat"}
LONG = "the cat " * 99
TOO_LONG = 'say long=\\"as_trained\\"", "kind": "validation", "field": "rows[1]"'


def rows(model: str, *values: Any) -> dict[str, Any]:
    return {"model": model, "rows": values}


def labelled(texts: Any, labels: int) -> dict[str, Any]:
    return {"inputs": texts, "parameters": {"candidate_labels": ["b"] * labels}}


def instances(count: int, inputs: Any) -> dict[str, Any]:
    return {"instances": [{"inputs": inputs}] * count}


# path -> a good body, the field of its texts
GOOD: dict[str, tuple[dict[str, Any], str]] = {
    "/vectors/embed": ({"inputs": "the cat"}, "inputs"),
    "/masks/embed_all": ({"inputs": ["the cat"]}, "inputs"),
    "/classes/predict": ({"inputs": "the cat"}, "inputs"),
    "/alike/rerank": ({"query": "a cat", "texts": ["the cat"]}, "texts"),
    "/vectors/tokenize": ({"inputs": "the cat"}, "inputs"),
    "/v1/embeddings": ({"model": "vectors", "input": "the cat"}, "input"),
    "/v1/completions": ({"model": "writer", "prompt": "the cat", "max_tokens": 2}, "prompt"),
    "/v1/predict": ({"model": "classes", "rows": ["the cat"]}, "rows"),
    PIPELINE.format("classes", "text-classification"): ({"inputs": "the cat"}, "inputs"),
    MASKS: ({"inputs": "the [MASK]"}, "inputs"),
    PIPELINE.format("writer", "text-generation"): (
        {"inputs": "the cat", "parameters": {"max_new_tokens": 2}},
        "inputs",
    ),
}


def faults(path: str) -> dict[str, tuple[bytes, str]]:
    """Bodies that are wrong, and what the refusal names."""
    body, field = GOOD[path]

    def put(value: Any, name: str = field) -> bytes:
        return json.dumps({**body, name: value}).encode()

    def text(value: str) -> bytes:
        return put([value] if isinstance(body[field], list) else value)

    missing = {name: value for name, value in body.items() if name != field}
    bodies = {
        "missing": (json.dumps(missing).encode(), field),
        "extra": (put(1, "colour"), "colour"),
        "null": (put(None), field),
        "number": (put(7), field),
        "object": (put({"text": "a"}), field),
        "mixed": (put(["the cat", 5, None]), field),
        "nul": (text("a\0b"), "NUL"),
        "surrogate": (text("\ud800 the cat"), ""),
        "empty list": (put([]), field),
        "too many": (put(["the [MASK]"] * 200), "128"),
        "too long": (text("x " * 150_000), "200000"),
        "not an object": (b'["the cat"]', ""),
    }
    if path == "/classes/predict":  # a list of texts is a pair there
        bodies["too many"] = (put([["a"]] * 200), "128")
    if path != "/v1/predict":  # the servers of these protocols ignore unknown fields
        del bodies["extra"]
    else:  # rows may be of any shape; what they are is said by their number
        del bodies["nul"]  # as of a model that was opened here
        bodies["mixed"] = (put(["the cat", 5]), "rows[1]")
    return bodies


@pytest.mark.parametrize("path", GOOD)
def test_what_is_wrong_is_said(tasks_server: TasksServer, path: str) -> None:
    for name, (raw, named) in faults(path).items():
        status, headers, refusal = tasks_server.ask("POST", path, raw=raw)
        text = json.dumps(refusal)
        assert 400 <= status < 500 and named in text, (name, status, text)
        assert len(text) <= 4096 and headers["content-type"].startswith("application/json"), name
        assert "Traceback" not in text and "/site-packages/" not in text
    tasks_server.post(path, GOOD[path][0])
    if path != "/v1/predict":
        field, counted = (
            f"colour_{list(GOOD).index(path)}",
            tasks_server.running.host.metrics.ignored,
        )
        tasks_server.post(path, GOOD[path][0] | {field: 1})
        assert [name for _, name in counted].count(field) == 1


def test_names_of_ignored_fields_are_bounded() -> None:
    counters = Metrics()
    for number in range(MOST_FIELDS + 50):
        counters.ignored_fields("/embed", {f"field_{number}"})
    counters.ignored_fields("/embed", {'"} 7\n'})
    lines = [line for line in counters.render().splitlines() if line.startswith("mw_ignored")]
    assert len(lines) <= MOST_FIELDS + 1 and 'field="other"} 51' in lines[-1]


@pytest.mark.parametrize(
    ("path", "body", "status", "named"),
    [
        ("/embed", {"inputs": "a"}, 422, "several models"),
        ("/nobody/embed", {"inputs": "a"}, 404, "no model"),
        ("/classes/embed", {"inputs": "a"}, 424, "vectors"),
        ("/vectors/predict", {"inputs": "a"}, 424, "classes"),
        ("/number/rerank", {"query": "a", "texts": ["b"]}, 424, "reranker"),
        ("/vectors/embed_sparse", {"inputs": "a"}, 424, "SPLADE"),
        ("/v1/predict", rows("x" * 40_000, "a"), 404, "no model"),
        ("/vectors/embed", {"inputs": ""}, 422, "inputs[0]"),
        ("/vectors/embed", {"inputs": ["a", " \n"]}, 422, "inputs[1]"),
        ("/vectors/embed", {"inputs": []}, 400, "Empty"),
        ("/classes/predict", {"inputs": []}, 400, "Empty"),
        ("/classes/predict", {"inputs": ["a", "b", "c"]}, 422, "pair"),
        ("/vectors/embed", {"colour": 1}, 422, '"inputs: Field required'),
        ("/vectors/embed", {"inputs": "a", "truncate": "x" * 40_000}, 422, "truncate"),
        ("/vectors/embed", {"inputs": "a", "dimensions": 99}, 422, "dimensions"),
        ("/vectors/embed", {"inputs": "a", "prompt_name": "query"}, 422, "prompt_name"),
        ("/vectors/embed", {"inputs": [42, 65]}, 422, "check_embedding_ctx_length"),
        ("/vectors/embed", {"inputs": [42, 65], "tokenizer": "classes"}, 422, "tokenizer"),
        ("/vectors/embed", OWN_IDS | {"inputs": [999_999]}, 422, "vocabulary"),
        ("/vectors/embed", OWN_IDS | {"inputs": [2, 2, 3]}, 422, "no text"),
        ("/vectors/embed", CUT | {"truncation_direction": "Up"}, 422, "truncation_direction"),
        ("/v1/chat/completions", {"messages": []}, 400, "/v1/completions"),
        (COMPLETIONS, WRITER | {"prompt": [999_999]}, 400, "vocabulary"),
        (COMPLETIONS, WRITER | {"frequency_penalty": 3}, 400, "frequency_penalty"),
        ("/vectors/decode", {"ids": [[2], 3]}, 422, "ids: wanted token ids"),
        ("/vectors/decode", {"ids": [999_999]}, 422, "vocabulary"),
        ("/entailment/vertex", {"instances": [{"inputs": ["a", "b"]}, {}]}, 422, "instances[1]"),
        (COMPLETIONS, WRITER | {"best_of": 3}, 400, "best_of"),
        (COMPLETIONS, WRITER | {"suffix": "b"}, 400, "suffix"),
        (COMPLETIONS, WRITER | {"max_tokens": 0}, 400, "max_tokens"),
        (COMPLETIONS, WRITER | {"stop": [""]}, 400, "stop"),
        (COMPLETIONS, WRITER | {"n": 2, "stream": True}, 400, "one"),
        (COMPLETIONS, WRITER | {"model": "classes"}, 400, "writes"),
        (COMPLETIONS, WRITER | {"prompt": LONG * 5}, 400, "prompt[0]"),
        (COMPLETIONS, SCORED | {"prompt": LONG * 5, "max_tokens": 0}, 400, "prompt[0]"),
        (PIPELINE.format("classes", "tagging"), {"inputs": "a"}, 404, "no such task"),
        (MASKS, {"inputs": "a"}, 422, "inputs[0]"),
        (MASKS, {"inputs": "[MASK]", "parameters": {"targets": [""]}}, 422, "target"),
        (ANSWERS, {"inputs": {"question": "who"}}, 422, "inputs.context"),
        (PIPELINE.format("classes", "zero-shot-classification"), labelled("a", 1), 424, "entail"),
        (ZERO_SHOT, labelled("a", 0), 422, "labels"),
        ("/v1/predict", rows("masks", "a"), 424, "fine-tuned"),
        ("/v1/predict", rows("classes", ["a", "b"]), 422, "rows[0]"),
        ("/v1/predict", rows("classes", "a", LONG) | {"long": "refuse"}, 422, TOO_LONG),
        ("/v1/predict", rows("number", "a") | {"top": 2}, 422, "one answer"),
    ],
)
def test_what_cannot_be_done_is_said(
    tasks_server: TasksServer, path: str, body: Any, status: int, named: str
) -> None:
    code, _, refusal = tasks_server.ask("POST", path, body)
    text = json.dumps(refusal)
    assert (code, named in text, len(text) <= 4096) == (status, True, True), (code, text)


@pytest.mark.parametrize(
    ("path", "body", "larger"),
    [
        ("/masks/embed_all", {"inputs": "the cat"}, {"inputs": ["the cat sat"] * 9}),
        ("/masks/tokenize", {"inputs": "the cat"}, {"inputs": ["the cat sat"] * 9}),
        (MASKS, TOP_NINE | {"inputs": "a [MASK]"}, TOP_NINE | {"inputs": "a [MASK] [MASK] [MASK]"}),
    ],
)
def test_an_answer_is_not_larger_than_a_server_can_tell(
    tasks_server: TasksServer, path: str, body: Any, larger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maskwright.ship.serve.errors.MOST_ANSWER_BYTES", 1_800)
    assert tasks_server.ask("POST", path, body)[0] == 200
    status, _, refusal = tasks_server.ask("POST", path, larger)
    assert status == 413 and "limit: 1800" in refusal["error"]


@pytest.mark.parametrize(
    ("path", "body", "larger", "status"),
    [
        ("/vectors/vertex", instances(2, ["a"] * 64), instances(2, ["a"] * 65), 422),
        ("/entailment/vertex", instances(128, PAIR), instances(3, [PAIR] * 43), 422),
        (ZERO_SHOT, labelled(["a"] * 8, 16), labelled(["a"] * 8, 17), 422),
        (
            COMPLETIONS,
            COPIES | {"prompt": ["a"] * 32},
            COPIES | {"prompt": ["a"] * 33},
            400,
        ),
        ("/v1/predict", rows("classes", *["a"] * 128), rows("classes", *["a"] * 129), 422),
        ("/vectors/tokenize", {"inputs": ["a"] * 128}, {"inputs": ["a"] * 129}, 422),
    ],
)
def test_the_inputs_of_a_request_are_counted_together(
    tasks_server: TasksServer, path: str, body: Any, larger: Any, status: int
) -> None:
    """However the body multiplies them; the control is as many as may be."""
    assert tasks_server.ask("POST", path, body)[0] == 200
    code, _, refusal = tasks_server.ask("POST", path, larger)
    assert code == status and "128" in json.dumps(refusal), refusal


def test_prompts_that_are_read_twice_are_refused_before_the_first_time(
    tasks_server: TasksServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = AsyncMock(side_effect=ValueError)
    monkeypatch.setattr(Host, "prompt_scores", scores)
    body = SCORED | {"prompt": ["a b"] * 65}
    assert tasks_server.ask("POST", COMPLETIONS, body)[0] == 400
    assert not scores.called


def test_texts_that_are_read_again_count_again(tasks_server: TasksServer) -> None:
    """A text beside each label, as many characters as no body holds; few are the control."""
    tasks_server.post(ZERO_SHOT, labelled("the", 100))
    copies = WRITER | {"prompt": "a " * 70_000, "n": 8}
    for path, body in ((ZERO_SHOT, labelled("the cat " * 2_000, 100)), (COMPLETIONS, copies)):
        assert tasks_server.ask("POST", path, body)[0] == 413


def test_a_budget_is_that_of_the_whole_request() -> None:
    limits = Limits(max_items=3, max_queue_tokens=100, max_batch_tokens=10)
    budget = RequestBudget(limits)
    budget.take_rows(["a", ["b", "c"]], "inputs")
    budget.take_tokens(60)
    budget.require_inputs(1, "inputs")
    for call in (
        lambda: budget.require_inputs(2, "inputs"),
        lambda: budget.take_tokens(41),
        lambda: budget.take_rows(["a", "b"], "inputs"),
    ):
        with pytest.raises(Refusal):
            call()
    RequestBudget(limits).take_tokens(100)  # the control: of another request


def overflowing(folder: Path, out: Path, tensor: str) -> Path:
    """A copy of a model in which a matrix is finite, and its products are not."""
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("MANIFEST.json"))
    weights = load_file(out / "model.safetensors")
    weights[tensor] = torch.full_like(weights[tensor], 3e38)
    save_file(weights, out / "model.safetensors")
    return out


def test_numbers_that_are_not_finite_are_the_models_fault(
    small_task: Callable[..., Path], tmp_path: Path
) -> None:
    """Of a head when it is asked, by the model's name; the control is the same model as it was."""
    heads = {"classification": "classifier.weight", "question-answering": "qa_outputs.weight"}
    folders = {
        task: overflowing(small_task(task) / "model", tmp_path / task, tensor)
        for task, tensor in heads.items()
    }
    folders["sound"] = small_task("classification") / "model"
    running = serve(names=folders, port=0, background=True)
    assert running is not None
    with running as started:
        server = TasksServer(started.url, folders)
        server.post("/sound/predict", {"inputs": "the cat"})
        for name, path, body in [
            ("classification", "/{}/predict", {"inputs": "the cat"}),
            ("classification", PIPELINE.format("{}", "text-classification"), {"inputs": "the"}),
            ("classification", "/v1/predict", rows("classification", "the cat")),
            ("question-answering", PIPELINE.format(*["{}"] * 2), {"inputs": QUESTION}),
        ]:
            status, _, refusal = server.ask("POST", path.format(*[name] * 2), body)
            assert status == 424 and refusal["error"].startswith(f"{name}: "), refusal
    fault = of_error(CheckpointError("no number"), model="writer")
    assert openai.render(fault).status_code == 424 and "writer" in fault.reason


def test_a_model_that_computes_no_numbers_is_not_served(
    small_task: Callable[..., Path], tmp_path: Path
) -> None:
    name = "bert.encoder.layer.0.intermediate.dense.weight"
    folder = overflowing(small_task("classification") / "model", tmp_path / "body", name)
    running = serve(folder, port=0, background=True)
    assert running is not None
    with pytest.raises(CheckpointError) as error, running:
        pass
    assert error.value.where == str(folder)
    with pytest.raises(CheckpointError):
        load(folder).predict("the cat")
