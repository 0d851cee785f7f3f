"""Each route of each dialect: the fields of its answers, and that they say what the model says."""

from __future__ import annotations

import asyncio
import base64
import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest

from maskwright.model.opening.special_tokens import end_of_text
from maskwright.ship.serve.dialects.base import messages
from maskwright.ship.serve.dialects.openai import CompletionsRequest, _CompletionsResponse
from maskwright.ship.serve.host import Piece
from serve.clients import TasksServer

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.filterwarnings("ignore::maskwright.ask.predict.language_model.CutWarning"),
]
LONG = "the cat sat on the mat and then one big red dog ran under a tall old tree . " * 4
TEXTS = ["the cat sat", "a dog"]
PRECISE = 1e-6


def close(one: Any, other: Any) -> bool:
    return bool(np.allclose(np.asarray(one, np.float64), np.asarray(other), atol=PRECISE))


# ------------------------------------------------------------------ text-embeddings-inference
def test_vectors(tasks_server: TasksServer) -> None:
    own = tasks_server.opened("vectors")
    one = tasks_server.post("/vectors/embed", {"inputs": TEXTS[0]})
    assert len(one) == 1 and close(one[0], own.embed(TEXTS[0]))
    assert close(tasks_server.post("/vectors/embed", {"inputs": TEXTS}), own.embed(TEXTS))
    assert not close(one[0], own.embed(TEXTS[1])), "the control"
    plain = {"inputs": TEXTS, "truncate": False, "truncation_direction": "Right"}
    plain |= {"prompt_name": None, "normalize": True, "dimensions": None}
    assert close(tasks_server.post("/vectors/embed", plain), own.embed(TEXTS))
    ids = own.model.tokenizer.encode(TEXTS[0])
    assert close(tasks_server.post("/vectors/embed", {"inputs": ids}), one)
    assert close(tasks_server.post("/vectors/embed", {"inputs": [ids, ids]}), [one[0]] * 2)
    (states,) = tasks_server.post("/masks/embed_all", {"inputs": TEXTS[0]})
    mean = np.mean(states, axis=0)
    assert close(mean / np.linalg.norm(mean), tasks_server.opened("masks").embed(TEXTS[0]))
    sentences = {"source_sentence": TEXTS[0], "sentences": [TEXTS[0], TEXTS[1]]}
    first, second = own.embed(TEXTS)
    found = tasks_server.post("/vectors/similarity", {"inputs": sentences})
    assert close(found, [1.0, float(first @ second)])


def test_a_task_without_a_measure_compares_by_angle(monkeypatch: pytest.MonkeyPatch) -> None:
    found = np.array([[1, 0], [2, 0], [0, 3]], np.float32), None
    monkeypatch.setattr(messages, "embeddings_of", AsyncMock(return_value=found))
    model = Mock(task_type=Mock(decoding={}))
    assert asyncio.run(messages.similarities_to(model, "a", ["b", "c"], field="x"))[0] == [1.0, 0.0]


def test_windows_are_told_and_nothing_is_cut_unsaid(tasks_server: TasksServer) -> None:
    own = tasks_server.opened("vectors")
    status, headers, found = tasks_server.ask(
        "POST", "/vectors/embed", {"inputs": [LONG, TEXTS[0]]}
    )
    many = own.windows([LONG])[0]
    assert status == 200 and headers["x-windows"] == f"{many},1" and many > 1
    assert headers["x-truncated"] == "none"
    assert close(found, own.embed([LONG, TEXTS[0]], long="windows"))
    body = {"inputs": [TEXTS[0], LONG], "truncate": True}
    _, headers, cut = tasks_server.ask("POST", "/vectors/embed", body)
    assert headers["x-windows"] == "1,1" and headers["x-truncated"] == "1"
    assert not close(cut[1], found[0]), "the control"
    for name, value in headers.items():
        if name.endswith("-time"):
            assert value.isdigit()
    assert headers["x-compute-type"] == "cpu" and headers["x-compute-characters"] == str(
        len(TEXTS[0]) + len(LONG)
    )


def test_classes(tasks_server: TasksServer) -> None:
    own = tasks_server.opened("classes")
    (wanted,) = own.predict([TEXTS[0]], top=3)
    single = tasks_server.post("/classes/predict", {"inputs": TEXTS[0]})
    assert single == [{"score": each["score"], "label": each["label"]} for each in wanted]
    assert list(single[0]) == ["score", "label"]
    batch = tasks_server.post("/classes/predict", {"inputs": [[TEXTS[0]], [TEXTS[1]]]})
    assert batch[0] == single and len(batch) == 2 and batch[1] != single
    raw = tasks_server.post("/classes/predict", {"inputs": TEXTS[0], "raw_scores": True})
    shares = np.exp([each["score"] for each in raw])
    assert close(shares / shares.sum(), [each["score"] for each in single])
    several = tasks_server.post("/labels/predict", {"inputs": TEXTS[0]})
    logits = tasks_server.post("/labels/predict", {"inputs": TEXTS[0], "raw_scores": True})
    sigmoid = 1 / (1 + np.exp(-np.array([each["score"] for each in logits])))
    assert close([each["score"] for each in several], sigmoid)
    assert abs(sum(sigmoid) - 1) > 1e-3, "the control: no softmax"
    pair = tasks_server.post("/entailment/predict", {"inputs": TEXTS})
    assert [each["label"] for each in pair] == [
        each["label"]
        for each in tasks_server.opened("entailment").predict([tuple(TEXTS)], top=3)[0]
    ]
    assert tasks_server.post("/entailment/predict", {"inputs": [TEXTS]}) == [pair]


def test_reranking_and_what_a_model_is_for(tasks_server: TasksServer) -> None:
    texts = ["a dog", "the cat sat", "a dog ran on the mat"]
    body = {"query": "the cat", "texts": texts, "return_text": True}
    found = tasks_server.post("/alike/rerank", body)
    own = tasks_server.opened("alike").predict([("the cat", text) for text in texts])
    assert [list(each) for each in found] == [["index", "text", "score"]] * 3
    assert found == sorted(found, key=lambda each: -each["score"])
    assert {each["index"]: each["score"] for each in found} == {
        n: pytest.approx(each["score"], abs=PRECISE) for n, each in enumerate(own)
    }
    plain = tasks_server.post("/alike/rerank", {**body, "return_text": False})
    assert [list(each) for each in plain] == [["index", "score"]] * 3
    one, other = {"inputs": TEXTS[0]}, {"inputs": [TEXTS]}
    answers = tasks_server.post("/entailment/vertex", {"instances": [{"inputs": TEXTS}, other]})
    assert list(answers) == ["predictions"] and answers["predictions"][1] == [
        answers["predictions"][0]
    ]
    for path in ("/vectors/invocations", "/vectors/embed"):
        assert close(tasks_server.post(path, one), [tasks_server.opened("vectors").embed(TEXTS[0])])
    assert tasks_server.post("/classes/invocations", one) == tasks_server.post(
        "/classes/predict", one
    )


def test_reranking_as_cohere_and_jina_are_asked(tasks_server: TasksServer) -> None:
    texts = ["the dog ran", "the cat sat on the mat", "a cat"]
    plain = tasks_server.post("/alike/rerank", {"query": "a cat", "texts": texts})
    body = {"model": "alike", "query": "a cat", "documents": texts, "top_n": 2}
    for path in ("/v1/rerank", "/v2/rerank", "/rerank", "/alike/rerank"):
        found = tasks_server.post(path, body)
        assert found["model"] == "alike" and found["usage"]["total_tokens"] > 6
        told = [(each["index"], each["relevance_score"]) for each in found["results"]]
        assert told == [(each["index"], each["score"]) for each in plain[:2]] != []
        assert "document" not in found["results"][0]
    body |= {"documents": [{"text": each} for each in texts], "return_documents": True, "top_n": 9}
    for each in tasks_server.post("/v1/rerank", body)["results"]:
        assert each["document"] == {"text": texts[each["index"]]}
    named = tasks_server.post("/alike/vertex", {"instances": [body]})["predictions"][0]
    assert [each["index"] for each in named["results"]] == [each["index"] for each in plain]
    for wrong in ({"texts": texts}, {"documents": None}, {"top_n": 0}, {"rank_fields": ["text"]}):
        assert tasks_server.ask("POST", "/v1/rerank", body | wrong)[0] == 422
    assert tasks_server.ask("POST", "/vectors/rerank", body)[0] == 422, "two models are named"
    assert tasks_server.ask("POST", "/v1/rerank", body | {"documents": []})[0] == 400
    assert tasks_server.ask("POST", "/v1/rerank", body | {"model": "nobody"})[0] == 404


def test_tokens_and_back(tasks_server: TasksServer) -> None:
    (tokens,) = tasks_server.post("/vectors/tokenize", {"inputs": "the cat sat"})
    assert [list(each) for each in tokens] == [["id", "text", "special", "start", "stop"]] * 5
    assert [each["text"] for each in tokens] == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    spans = [(each["start"], each["stop"]) for each in tokens]
    assert spans == [(None, None), (0, 3), (4, 7), (8, 11), (None, None)]
    ids = [each["id"] for each in tokens]
    assert tasks_server.post("/vectors/decode", {"ids": ids}) == ["the cat sat"]
    both = tasks_server.post("/vectors/decode", {"ids": [ids, ids], "skip_special_tokens": False})
    assert both == ["[CLS]the cat sat [SEP]"] * 2 or both == ["[CLS] the cat sat [SEP]"] * 2
    bare = tasks_server.post(
        "/vectors/tokenize", {"inputs": ["the cat sat"], "add_special_tokens": False}
    )
    assert [each["id"] for each in bare[0]] == ids[1:-1]


def test_what_is_served(tasks_server: TasksServer) -> None:
    _, _, info = tasks_server.ask("GET", "/classes/info")
    assert " ".join(info) == (
        "model_id model_sha model_dtype served_model_name model_type max_concurrent_requests "
        "max_input_length max_batch_tokens max_batch_requests max_client_batch_size auto_truncate "
        "tokenization_workers version sha docker_label"
    )
    names = {"0": "meow", "1": "woof", "2": "other"}
    assert info["model_type"]["classifier"]["id2label"] == names
    assert tasks_server.ask("GET", "/vectors/info")[2]["model_type"] == {
        "embedding": {"pooling": "mean"}
    }
    assert "reranker" in tasks_server.ask("GET", "/alike/info")[2]["model_type"]
    for path in ("/health", "/ping", "/"):
        assert tasks_server.ask("GET", path)[0] == 200


# ------------------------------------------------------------------------------------- OpenAI
def test_openai_vectors(tasks_server: TasksServer) -> None:
    body = {"model": "vectors", "input": TEXTS}
    found = tasks_server.post("/v1/embeddings", body)
    assert list(found) == ["object", "data", "model", "usage"] and found["object"] == "list"
    assert [list(each) for each in found["data"]] == [["object", "embedding", "index"]] * 2
    assert found["usage"] == {"prompt_tokens": 9, "total_tokens": 9}
    own = tasks_server.opened("vectors").embed(TEXTS)
    assert close([each["embedding"] for each in found["data"]], own)
    plain = tasks_server.post("/embeddings", {**body, "encoding_format": None})
    assert plain["data"] == found["data"]
    coded = tasks_server.post("/embeddings", {**body, "encoding_format": "base64"})
    read = [np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in coded["data"]]
    assert close(read, own)


def test_openai_texts(tasks_server: TasksServer) -> None:
    own = tasks_server.opened("writer")
    body = {"model": "writer", "prompt": TEXTS, "max_tokens": 5, "temperature": 0}
    found = tasks_server.post("/v1/completions", body)
    names = "id object created model system_fingerprint choices usage"
    assert set(found) == {*names.split()}
    assert [list(each) for each in found["choices"]] == [
        ["index", "text", "logprobs", "finish_reason"]
    ] * 2
    wanted = own.generate(TEXTS, tokens=5, temperature=0)
    assert [t + each["text"] for t, each in zip(TEXTS, found["choices"], strict=True)] == wanted
    assert {each["finish_reason"] for each in found["choices"]} <= {"length", "stop"}
    assert found["usage"]["total_tokens"] == sum(
        found["usage"][name] for name in ("prompt_tokens", "completion_tokens")
    )
    seeded = {**body, "prompt": TEXTS[0], "temperature": 1.0, "seed": 3, "n": 2, "echo": True}
    one, two = tasks_server.post("/v1/completions", seeded)["choices"]
    assert (one, two) == tuple(tasks_server.post("/v1/completions", seeded)["choices"])
    assert one["text"] != two["text"] and one["text"].startswith(TEXTS[0])
    assert one["text"] == own.generate(TEXTS[0], tokens=5, temperature=1.0, seed=3)
    logged = tasks_server.post("/v1/completions", {**body, "prompt": TEXTS[0], "logprobs": 2})
    logprobs = logged["choices"][0]["logprobs"]
    assert list(logprobs) == ["tokens", "token_logprobs", "top_logprobs", "text_offset"]
    assert len({len(value) for value in logprobs.values()}) == 1
    for own_log, best in zip(logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True):
        assert own_log == pytest.approx(max(best.values())), "greedy takes the likeliest"
    text = logged["choices"][0]["text"]
    stop = text[len(text) // 2 :][:2]
    short = tasks_server.post("/v1/completions", {**body, "prompt": TEXTS[0], "stop": stop})
    assert short["choices"][0]["text"] == text[: text.index(stop)]
    assert short["choices"][0]["finish_reason"] == "stop"


def test_openai_counts_the_end_token_among_the_logprobs(tasks_server: TasksServer) -> None:
    """Harnesses leave the last token of a list out: it must be the written one, whatever it is."""
    tokenizer = tasks_server.opened("writer").model.tokenizer
    chosen: Any = SimpleNamespace(tokenizer=tokenizer, called="writer", fingerprint="f" * 16)
    shape = _CompletionsResponse(chosen, CompletionsRequest(prompt="a", logprobs=0), ["a"], 1, None)
    pieces = [Piece(0, 5, "xy", None, -1.0), Piece(0, None, "", "end", -0.5)]
    found = shape._logprobs(pieces, 3)
    assert found is not None and found["token_logprobs"] == [-1.0, -0.5]
    assert found["text_offset"] == [3, 5]
    assert found["tokens"][1] == tokenizer.tokens([end_of_text(tokenizer) or 0])[0]


def events(text: str) -> list[Any]:
    """The values of a stream's events."""
    parts = [part.removeprefix("data: ") for part in text.split("\n\n") if part]
    return [part if part == "[DONE]" else json.loads(part) for part in parts]


def test_openai_streams(tasks_server: TasksServer) -> None:
    body = {"model": "writer", "prompt": TEXTS[0], "max_tokens": 6, "temperature": 0}
    whole = tasks_server.post("/v1/completions", body)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    status, headers, text = tasks_server.ask("POST", "/v1/completions", {**body, **options})
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    *chunks, usage, done = events(text)
    assert done == "[DONE]" and usage["choices"] == [] and usage["usage"] == whole["usage"]
    (shown,) = {len(each["choices"]) for each in chunks}
    assert shown == 1 and {each["usage"] for each in chunks} == {None}
    joined = "".join(each["choices"][0]["text"] for each in chunks)
    assert joined == whole["choices"][0]["text"]
    reasons = [each["choices"][0]["finish_reason"] for each in chunks]
    assert reasons[:-1] == [None] * (len(chunks) - 1) and reasons[-1] in ("length", "stop")
    for model, prompt in (("writer", ""), ("rewrites", TEXTS[0])):  # special tokens count
        other = {**body, "model": model, "prompt": prompt, "max_tokens": 2}
        wanted = tasks_server.post("/v1/completions", other)["usage"]
        told = events(tasks_server.ask("POST", "/v1/completions", {**other, **options})[2])
        assert told[-2]["usage"] == wanted and wanted["prompt_tokens"] > 0
        path = f"/models/{model}/pipeline/text-generation"
        asked = {"inputs": prompt, "stream": True, "parameters": {"max_new_tokens": 2}}
        last = events(tasks_server.ask("POST", path, asked)[2])[-1]
        assert last["details"]["input_length"] == wanted["prompt_tokens"]
    plain = events(tasks_server.ask("POST", "/v1/completions", {**body, "stream": True})[2])
    assert plain[-1] == "[DONE]" and all(each["choices"] for each in plain[:-1])


def test_openai_names_what_there_is(tasks_server: TasksServer) -> None:
    _, _, found = tasks_server.ask("GET", "/v1/models")
    assert found["object"] == "list"
    assert [each["id"] for each in found["data"]] == list(tasks_server.folders)
    assert list(found["data"][0]) == ["id", "object", "created", "owned_by"]
    assert tasks_server.ask("GET", "/v1/models/writer")[2]["id"] == "writer"
    status, headers, body = tasks_server.ask("GET", "/v1/models/nobody")
    assert status == 404 and body["error"]["code"] == "model_not_found"
    assert list(body["error"]) == ["message", "type", "param", "code"]
    assert headers["x-should-retry"] == "false" and body["message"] == body["error"]["message"]


# ------------------------------------------------------------------------------- Hugging Face
def test_pipelines(tasks_server: TasksServer) -> None:
    def ask(name: str, task: str, inputs: Any, **parameters: Any) -> Any:
        body = {"inputs": inputs, "parameters": parameters} if parameters else {"inputs": inputs}
        return tasks_server.post(f"/models/{name}/pipeline/{task}", body)

    opened = tasks_server.opened
    found = ask("masks", "fill-mask", "the [MASK] sat", top_k=3)
    assert [list(each) for each in found] == [["score", "token", "token_str", "sequence"]] * 3
    (hole,) = opened("masks").fill_mask("the [MASK] sat", top=3)
    assert [each["token"] for each in found] == [each.id for each in hole.candidates]
    nested = ask("classes", "text-classification", TEXTS[0], top_k=2)
    assert len(nested) == 1 and len(nested[0]) == 2, "a list of a list"
    (best,) = opened("classes").predict([TEXTS[0]])
    assert nested[0][0] == best
    applied = ask("labels", "text-classification", TEXTS[0], function_to_apply="softmax")
    assert sum(each["score"] for each in applied[0]) == pytest.approx(1, abs=1e-5)
    text = "the cat sat in Rome ."
    spans = ask("tags", "token-classification", text)
    assert spans == opened("tags").predict([text])[0] and spans
    assert {text[each["start"] : each["end"]] == each["word"] for each in spans} == {True}
    asked = {"question": "who sat", "context": text}
    answer = ask("answers", "question-answering", asked)
    assert answer == opened("answers").predict([asked])[0]
    assert set(answer) == {"answer", "score", "start", "end"}
    assert len(ask("answers", "question-answering", asked, top_k=2)) == 2
    zero = ask("entailment", "zero-shot-classification", text, candidate_labels=["cat", "dog"])
    assert [set(each) for each in zero] == [{"label", "score"}] * 2
    assert sum(each["score"] for each in zero) == pytest.approx(1, abs=1e-5)
    both = {"candidate_labels": ["cat", "dog"], "multi_label": True}
    many = ask("entailment", "zero-shot-classification", text, **both)
    rows = [(text, f"This example is {label}.") for label in ("cat", "dog")]
    shares = opened("entailment").predict(rows, top=3)
    for label, row in zip(("cat", "dog"), shares, strict=True):
        by = {each["label"]: each["score"] for each in row}
        wanted = by["entailment"] / (by["entailment"] + by["contradiction"])
        (score,) = (each["score"] for each in many if each["label"] == label)
        assert score == pytest.approx(wanted, abs=1e-4)
    sentences = {"source_sentence": TEXTS[0], "sentences": TEXTS}
    alike = ask("vectors", "sentence-similarity", sentences)
    assert close(alike[0], 1) and len(alike) == 2
    assert close(ask("vectors", "feature-extraction", TEXTS), opened("vectors").embed(TEXTS))
    assert ask("rewrites", "text2text-generation", TEXTS) == opened("rewrites").predict(TEXTS)
    made = ask("writer", "text-generation", TEXTS[0], max_new_tokens=4, details=True)
    assert list(made[0]) == ["generated_text", "details"]
    wanted_text = opened("writer").generate(TEXTS[0], tokens=4, temperature=0)
    assert TEXTS[0] + made[0]["generated_text"] == wanted_text
    drawn = {"max_new_tokens": 4, "do_sample": True, "details": True}
    seeds = [
        ask("writer", "text-generation", TEXTS[0], **drawn)[0]["details"]["seed"] for _ in range(2)
    ]
    assert seeds[0] != seeds[1], "no seed is another each time"
    again = [ask("writer", "text-generation", TEXTS[0], **drawn, seed=seeds[0]) for _ in range(2)]
    assert again[0] == again[1] and again[0][0]["details"]["seed"] == seeds[0]
    full = ask("writer", "text-generation", TEXTS[0], max_new_tokens=4, return_full_text=True)
    assert full[0]["generated_text"] == wanted_text


def test_a_generation_that_streams(tasks_server: TasksServer) -> None:
    path = "/models/writer/pipeline/text-generation"
    body = {"inputs": TEXTS[0], "stream": True, "parameters": {"max_new_tokens": 4}}
    status, _, text = tasks_server.ask("POST", path, body)
    found = events(text)
    assert status == 200 and [each["index"] for each in found] == [1, 2, 3, 4]
    assert {tuple(each) for each in found} == {("index", "token", "generated_text", "details")}
    assert {tuple(each["token"]) for each in found} == {("id", "text", "logprob", "special")}
    assert [each["generated_text"] for each in found[:-1]] == [None] * 3
    assert found[-1]["generated_text"] == "".join(each["token"]["text"] for each in found)
    assert found[-1]["details"]["finish_reason"] == "length"
    assert found[-1]["details"]["generated_tokens"] == 4
