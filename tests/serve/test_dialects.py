"""Each route of each dialect: the fields of its answers, and that they say what the model says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
    first, second = own.embed(TEXTS)
    ids = own.model.tokenizer.encode(TEXTS[0])
    plain = {"inputs": TEXTS, "truncate": False, "truncation_direction": "Right"}
    plain |= {"prompt_name": None, "normalize": True, "dimensions": None}
    for body, vectors in (
        ({"inputs": TEXTS[0]}, [first]),
        ({"inputs": TEXTS}, [first, second]),
        (plain, [first, second]),
        ({"inputs": ids, "tokenizer": "vectors"}, [first]),
        ({"inputs": [ids, ids], "tokenizer": "vectors"}, [first, first]),
    ):
        assert close(tasks_server.post("/vectors/embed", body), vectors), body
    assert not close(first, second), "the control"
    (states,) = tasks_server.post("/masks/embed_all", {"inputs": TEXTS[0]})
    mean = np.mean(states, axis=0)
    assert close(mean / np.linalg.norm(mean), tasks_server.opened("masks").embed(TEXTS[0]))
    sentences = {"source_sentence": TEXTS[0], "sentences": TEXTS}
    similarities = tasks_server.post("/vectors/similarity", {"inputs": sentences})
    assert close(similarities, [1.0, float(first @ second)])


def test_windows_are_told_and_nothing_is_cut_unsaid(tasks_server: TasksServer) -> None:
    own = tasks_server.opened("vectors")
    (many,) = own.windows([LONG])
    _, headers, whole = tasks_server.ask("POST", "/vectors/embed", {"inputs": [LONG, TEXTS[0]]})
    assert headers["x-windows"] == f"{many},1" and many > 1 and headers["x-truncated"] == "none"
    assert close(whole, own.embed([LONG, TEXTS[0]], long="windows"))
    body = {"inputs": [TEXTS[0], LONG], "truncate": True}
    _, headers, cut = tasks_server.ask("POST", "/vectors/embed", body)
    assert headers["x-windows"] == "1,1" and headers["x-truncated"] == "1"
    assert not close(cut[1], whole[0]), "the control"
    assert all(value.isdigit() for name, value in headers.items() if name.endswith("-time"))
    assert headers["x-compute-characters"] == str(len(TEXTS[0]) + len(LONG))


def test_classes(tasks_server: TasksServer) -> None:
    def ask(name: str, inputs: Any, **options: Any) -> Any:
        return tasks_server.post(f"/{name}/predict", {"inputs": inputs, **options})

    def scores(answer: list[dict[str, Any]]) -> Any:
        return np.array([each["score"] for each in answer])

    (wanted,) = tasks_server.opened("classes").predict([TEXTS[0]], top=3)
    single = ask("classes", TEXTS[0])
    assert single == wanted and list(single[0]) == ["score", "label"]
    first, second = ask("classes", [[TEXTS[0]], [TEXTS[1]]])
    assert first == single != second
    shares = np.exp(scores(ask("classes", TEXTS[0], raw_scores=True)))
    assert close(shares / shares.sum(), scores(single))
    sigmoid = 1 / (1 + np.exp(-scores(ask("labels", TEXTS[0], raw_scores=True))))
    assert close(scores(ask("labels", TEXTS[0])), sigmoid)
    assert abs(sum(sigmoid) - 1) > 1e-3, "the control: no softmax"
    pair = ask("entailment", TEXTS)
    (wanted,) = tasks_server.opened("entailment").predict([tuple(TEXTS)], top=3)
    assert [each["label"] for each in pair] == [each["label"] for each in wanted]
    assert ask("entailment", [TEXTS]) == [pair]


def test_reranking(tasks_server: TasksServer) -> None:
    texts = ["a dog", "the cat sat", "a dog ran on the mat"]
    body = {"query": "the cat", "texts": texts, "return_text": True}
    ranked = tasks_server.post("/alike/rerank", body)
    own = tasks_server.opened("alike").predict([("the cat", text) for text in texts])
    assert [list(each) for each in ranked] == [["index", "text", "score"]] * 3
    scores = {each["index"]: each["score"] for each in ranked}
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    assert close([scores[n] for n in range(3)], [each["score"] for each in own])
    plain = tasks_server.post("/alike/rerank", {**body, "return_text": False})
    assert [list(each) for each in plain] == [["index", "score"]] * 3


def test_requests_of_a_cloud_are_those_that_the_model_is_for(tasks_server: TasksServer) -> None:
    one, pairs = {"inputs": TEXTS[0]}, [{"inputs": TEXTS}, {"inputs": [TEXTS]}]
    answers = tasks_server.post("/entailment/vertex", {"instances": pairs})
    first, second = answers.pop("predictions")
    assert second == [first] and not answers
    for name, route in (("vectors", "embed"), ("classes", "predict")):
        wanted = tasks_server.post(f"/{name}/{route}", one)
        assert tasks_server.post(f"/{name}/invocations", one) == wanted


def test_reranking_as_cohere_and_jina_are_asked(tasks_server: TasksServer) -> None:
    texts = ["the dog ran", "the cat sat on the mat", "a cat"]
    plain = tasks_server.post("/alike/rerank", {"query": "a cat", "texts": texts})
    body = {"model": "alike", "query": "a cat", "documents": texts, "top_n": 2}
    for path in ("/v1/rerank", "/v2/rerank", "/rerank", "/alike/rerank"):
        answer = tasks_server.post(path, body)
        assert answer["model"] == "alike" and answer["usage"]["total_tokens"] > 6
        assert answer["results"] == [
            {"index": each["index"], "relevance_score": each["score"]} for each in plain[:2]
        ]
    body |= {"documents": [{"text": text} for text in texts], "return_documents": True, "top_n": 9}
    for each in tasks_server.post("/v1/rerank", body)["results"]:
        assert each["document"] == {"text": texts[each["index"]]}
    named = tasks_server.post("/alike/vertex", {"instances": [body]})["predictions"][0]
    assert [each["index"] for each in named["results"]] == [each["index"] for each in plain]
    for path, wrong, status in (
        ("/v1/rerank", {"texts": texts}, 422),
        ("/v1/rerank", {"documents": None}, 422),
        ("/v1/rerank", {"top_n": 0}, 422),
        ("/v1/rerank", {"rank_fields": ["title"]}, 422),
        ("/vectors/rerank", {}, 422),  # two models are named
        ("/v1/rerank", {"documents": []}, 400),
        ("/v1/rerank", {"model": "nobody"}, 404),
    ):
        assert tasks_server.ask("POST", path, body | wrong)[0] == status, wrong


def test_tokens_and_back(tasks_server: TasksServer) -> None:
    text = "the cat sat"
    (tokens,) = tasks_server.post("/vectors/tokenize", {"inputs": text})
    assert [list(each) for each in tokens] == [["id", "text", "special", "start", "stop"]] * 5
    assert [each["text"] for each in tokens] == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    spans = [(each["start"], each["stop"]) for each in tokens]
    assert spans == [(None, None), (0, 3), (4, 7), (8, 11), (None, None)]
    ids = [each["id"] for each in tokens]
    assert tasks_server.post("/vectors/decode", {"ids": ids}) == [text]
    both = tasks_server.post("/vectors/decode", {"ids": [ids, ids], "skip_special_tokens": False})
    assert [each.replace(" ", "") for each in both] == ["[CLS]thecatsat[SEP]"] * 2
    plain = {"inputs": [text], "add_special_tokens": False}
    (bare,) = tasks_server.post("/vectors/tokenize", plain)
    assert [each["id"] for each in bare] == ids[1:-1]


def test_what_is_served(tasks_server: TasksServer) -> None:
    def info(name: str) -> Any:
        return tasks_server.ask("GET", f"/{name}/info")[2]

    names = {"0": "meow", "1": "woof", "2": "other"}
    assert info("classes")["model_type"]["classifier"]["id2label"] == names
    assert info("vectors")["model_type"] == {"embedding": {"pooling": "mean"}}
    assert "reranker" in info("alike")["model_type"]
    for path in ("/health", "/ping", "/"):
        assert tasks_server.ask("GET", path)[0] == 200


# ------------------------------------------------------------------------------------- OpenAI
def test_openai_texts(tasks_server: TasksServer) -> None:
    own = tasks_server.opened("writer")
    body = {"model": "writer", "prompt": TEXTS[0], "max_tokens": 5, "temperature": 0}

    def ask(**options: Any) -> Any:
        return tasks_server.post("/v1/completions", {**body, **options})["choices"]

    written = own.generate(TEXTS, tokens=5, temperature=0)
    choices = ask(prompt=TEXTS)
    assert [t + each["text"] for t, each in zip(TEXTS, choices, strict=True)] == written
    assert {each["finish_reason"] for each in choices} <= {"length", "stop"}
    seeded = {"temperature": 1.0, "seed": 3, "n": 2, "echo": True}
    one, two = ask(**seeded)
    assert [one, two] == ask(**seeded) and one["text"] != two["text"]
    assert one["text"] == own.generate(TEXTS[0], tokens=5, temperature=1.0, seed=3)
    (logged,) = ask(logprobs=2)
    logprobs = logged["logprobs"]
    for log, best in zip(logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True):
        assert log == pytest.approx(max(best.values())), "greedy takes the likeliest"
    text = logged["text"]
    stop = text[len(text) // 2 :][:2]
    (short,) = ask(stop=stop)
    assert short["text"] == text[: text.index(stop)] and short["finish_reason"] == "stop"


# ------------------------------------------------------------------------------- Hugging Face
def test_pipelines(tasks_server: TasksServer) -> None:
    opened, text = tasks_server.opened, "the cat sat in Rome ."

    def ask(name: str, task: str, inputs: Any, **parameters: Any) -> Any:
        body = {"inputs": inputs, "parameters": parameters} if parameters else {"inputs": inputs}
        return tasks_server.post(f"/models/{name}/pipeline/{task}", body)

    candidates = ask("masks", "fill-mask", "the [MASK] sat", top_k=3)
    assert [list(each) for each in candidates] == [["score", "token", "token_str", "sequence"]] * 3
    (hole,) = opened("masks").fill_mask("the [MASK] sat", top=3)
    assert [each["token"] for each in candidates] == [each.id for each in hole.candidates]
    (nested,) = ask("classes", "text-classification", TEXTS[0], top_k=2)
    assert len(nested) == 2 and [nested[0]] == opened("classes").predict([TEXTS[0]])
    (applied,) = ask("labels", "text-classification", TEXTS[0], function_to_apply="softmax")
    assert sum(each["score"] for each in applied) == pytest.approx(1, abs=1e-5)
    spans = ask("tags", "token-classification", text)
    assert [spans] == opened("tags").predict([text]) and spans
    asked = {"question": "who sat", "context": text}
    answer = ask("answers", "question-answering", asked)
    assert [answer] == opened("answers").predict([asked])
    assert set(answer) == {"answer", "score", "start", "end"}
    assert len(ask("answers", "question-answering", asked, top_k=2)) == 2
    sentences = {"source_sentence": TEXTS[0], "sentences": TEXTS}
    alike = ask("vectors", "sentence-similarity", sentences)
    assert close(alike[0], 1) and len(alike) == 2
    assert close(ask("vectors", "feature-extraction", TEXTS), opened("vectors").embed(TEXTS))
    assert ask("rewrites", "text2text-generation", TEXTS) == opened("rewrites").predict(TEXTS)


def test_the_zero_shot_pipeline(tasks_server: TasksServer) -> None:
    def ask(**parameters: Any) -> dict[str, float]:
        path = "/models/entailment/pipeline/zero-shot-classification"
        body = {"inputs": TEXTS[0], "parameters": {"candidate_labels": labels, **parameters}}
        return {each["label"]: each["score"] for each in tasks_server.post(path, body)}

    labels = ["cat", "dog"]
    assert sum(ask().values()) == pytest.approx(1, abs=1e-5)
    many = ask(multi_label=True)
    rows = [(TEXTS[0], f"This example is {label}.") for label in labels]
    answers = tasks_server.opened("entailment").predict(rows, top=3)
    for label, row in zip(labels, answers, strict=True):
        shares = {each["label"]: each["score"] for each in row}
        wanted = shares["entailment"] / (shares["entailment"] + shares["contradiction"])
        assert many[label] == pytest.approx(wanted, abs=1e-4)
