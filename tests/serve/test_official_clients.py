"""The clients that people have, as they come: openai, huggingface_hub, curl."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from finetune.test_command import table
from maskwright.model.opening.special_tokens import end_of_text
from maskwright.ship.serve.command import serve
from serve.clients import TasksServer
from small_tasks import finetuned

pytestmark = pytest.mark.loopback
TEXTS = ["the cat sat", "a dog"]


@pytest.fixture
def openai_client(tasks_server: TasksServer) -> Any:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{tasks_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_openai(tasks_server: TasksServer, openai_client: Any) -> None:
    openai = pytest.importorskip("openai")
    assert [model.id for model in openai_client.models.list()] == list(tasks_server.folders)
    assert openai_client.models.retrieve("writer").id == "writer"
    embeddings = tasks_server.opened("vectors").embed(TEXTS)
    for more in ({}, {"encoding_format": "float"}):  # the first asks for base64
        response = openai_client.embeddings.create(model="vectors", input=TEXTS, **more)
        assert np.allclose([row.embedding for row in response.data], embeddings, atol=1e-6)
        assert response.usage.prompt_tokens == response.usage.total_tokens == 9
    body = {"model": "writer", "prompt": TEXTS[0], "max_tokens": 6, "temperature": 0}
    whole = openai_client.completions.create(**body, logprobs=1)
    assert len(whole.choices[0].logprobs.tokens) == whole.usage.completion_tokens == 6
    options = {"include_usage": True}
    chunks = list(openai_client.completions.create(**body, stream=True, stream_options=options))
    text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].text and chunks[-1].usage == whole.usage
    with pytest.raises(openai.NotFoundError) as missing:
        openai_client.models.retrieve("nobody")
    assert missing.value.code == "model_not_found"
    assert missing.value.response.headers["x-should-retry"] == "false"
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client.embeddings.create(model="vectors", input="a", dimensions=4)
    assert caught.value.param == "dimensions"


def test_openai_scores_prompts(tasks_server: TasksServer, openai_client: Any) -> None:
    """As evaluation harnesses ask: the figures of a prompt are those of the network."""
    own = tasks_server.opened("writer").model

    def ask(**options: Any) -> Any:
        body = {"model": "writer", "logprobs": 2, "temperature": 0, "echo": True, "prompt": TEXTS}
        return openai_client.completions.create(**{**body, **options})

    scored = ask(max_tokens=0)
    ids_of_texts = [own.tokenizer.encode(text) for text in TEXTS]
    assert scored.usage.completion_tokens == 0
    assert scored.usage.prompt_tokens == sum(map(len, ids_of_texts))
    for text, ids, choice in zip(TEXTS, ids_of_texts, scored.choices, strict=True):
        with torch.inference_mode():
            logs = own.network.logits(own.network.decode(torch.tensor([ids])))[0].log_softmax(-1)
        assert choice.text == text and choice.finish_reason == "length"
        first, *others = choice.logprobs.token_logprobs
        assert first is choice.logprobs.top_logprobs[0] is None
        expected = [float(logs[n, token]) for n, token in enumerate(ids[1:])]
        assert others == pytest.approx(expected, abs=1e-4)
        # The control: one place further on the scores are others.
        further = [float(logs[n + 1, token]) for n, token in enumerate(ids[1:])]
        assert others != pytest.approx(further, abs=1e-3)
        for n, best in enumerate(choice.logprobs.top_logprobs[1:]):
            assert list(best.values()) == pytest.approx(logs[n].topk(2).values.tolist(), abs=1e-4)
        for token, offset in zip(choice.logprobs.tokens, choice.logprobs.text_offset, strict=True):
            assert text[offset:].strip().startswith(token.strip().removeprefix("##"))
    # What is written stands behind it, as without the prompt.
    longer, alone = ask(max_tokens=3), ask(max_tokens=3, echo=False)
    for text, whole, before, after in zip(
        TEXTS, longer.choices, scored.choices, alone.choices, strict=True
    ):
        assert whole.text == text + after.text
        assert whole.logprobs.tokens == before.logprobs.tokens + after.logprobs.tokens
        logs = (before.logprobs.token_logprobs + after.logprobs.token_logprobs)[1:]
        assert whole.logprobs.token_logprobs[1:] == pytest.approx(logs, abs=1e-6)
        assert len(whole.logprobs.top_logprobs) == len(whole.logprobs.tokens)
        offsets = [len(text) + offset for offset in after.logprobs.text_offset]
        assert whole.logprobs.text_offset == before.logprobs.text_offset + offsets
    tokens = scored.choices[0].logprobs.tokens
    for count, reference in ((0, scored), (3, longer)):
        stream = ask(prompt=TEXTS[0], max_tokens=count, stream=True)
        chunks, wanted = [chunk.choices[0] for chunk in stream], reference.choices[0]
        assert chunks[0].logprobs.tokens[: len(tokens)] == tokens
        assert "".join(chunk.text for chunk in chunks) == wanted.text
        assert chunks[-1].finish_reason == wanted.finish_reason
        first, *others = [log for chunk in chunks for log in chunk.logprobs.token_logprobs]
        assert first is None
        assert others == pytest.approx(wanted.logprobs.token_logprobs[1:], abs=1e-6)
    # Token ids are the prompt as it is: harnesses begin with the end-of-text token.
    end = end_of_text(own.tokenizer)
    ids = [end, *ids_of_texts[0]]
    with torch.inference_mode():
        logs = own.network.logits(own.network.decode(torch.tensor([ids])))[0].log_softmax(-1)
    (choice,) = ask(prompt=[ids], max_tokens=1).choices
    first, *others, _ = choice.logprobs.token_logprobs
    expected = [float(logs[n, token]) for n, token in enumerate(ids[1:])]
    assert first is None and others == pytest.approx(expected, abs=1e-4)
    assert others != pytest.approx([0.0, *scored.choices[0].logprobs.token_logprobs[1:]], abs=1e-3)
    offsets = choice.logprobs.text_offset
    assert [choice.text[a:b] for a, b in pairwise(offsets)] == choice.logprobs.tokens[:-1]
    one, two = ask(prompt=TEXTS[0], max_tokens=0, n=2).choices
    assert one.logprobs == two.logprobs and one.logprobs.tokens == tokens


def test_hugging_face(tasks_server: TasksServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each method reads its response; what these say is in test_dialects."""
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it asks this machine
    client, text = hub.InferenceClient(), "the cat sat in Rome ."

    def ask(method: str, name: str, task: str, *inputs: Any, **options: Any) -> Any:
        url = f"{tasks_server.url}/models/{name}/pipeline/{task}"
        return getattr(client, method)(*inputs, model=url, **options)

    best, *_ = ask("fill_mask", "masks", "fill-mask", "the [MASK] sat")
    assert best.sequence and best.token_str
    classes = ask("text_classification", "classes", "text-classification", text)
    assert len(classes) == 3 and classes[0].label
    words = ask("token_classification", "tags", "token-classification", text)
    assert words and all(text[word.start : word.end] == word.word for word in words)
    question = {"question": "who sat", "context": text}
    answer = ask("question_answering", "answers", "question-answering", **question)
    assert text[answer.start : answer.end] == answer.answer
    zero_shot = "zero_shot_classification", "entailment", "zero-shot-classification", text
    labels = ask(*zero_shot, candidate_labels=["cat", "dog"])
    assert {label.label for label in labels} == {"cat", "dog"}
    alike = "sentence_similarity", "vectors", "sentence-similarity", TEXTS[0]
    assert ask(*alike, other_sentences=TEXTS)[0] == pytest.approx(1, abs=1e-6)
    embedding = ask("feature_extraction", "vectors", "feature-extraction", TEXTS[0])
    assert embedding.shape == (1, 16)
    write = "text_generation", "writer", "text-generation", TEXTS[0]
    whole = ask(*write, max_new_tokens=5)
    pieces = list(ask(*write, max_new_tokens=5, stream=True, details=True))
    assert "".join(piece.token.text for piece in pieces) == pieces[-1].generated_text == whole
    assert [piece.generated_text for piece in pieces[:-1]] == [None] * 4
    assert pieces[-1].details.generated_tokens == 5
    assert pieces[-1].details.finish_reason == "length"
    sampled = {"do_sample": False, "temperature": 0.8, "typical_p": 0.95, "seed": 1}
    drawn = ask(*write, max_new_tokens=9, **sampled)
    assert drawn == ask(*write, max_new_tokens=9, **sampled)
    assert drawn != ask(*write, max_new_tokens=9), "the control: not greedy"
    with pytest.raises(hub.errors.ValidationError):
        ask(*write, watermark=True)
    with pytest.raises(hub.errors.HfHubHTTPError, match="424"):
        ask("summarization", "rewrites", "summarization", TEXTS[0])


@pytest.fixture(scope="module")
def adapted(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TasksServer]:
    """One model, and two heads on it that are named as models are, one with an adapter of its
    own."""
    folder, heads = tmp_path_factory.mktemp("heads"), {}
    for name, method in (("sound", "probe"), ("colour", "lora")):
        data = table(folder / f"{name}.csv", "classification", 60)
        if name == "colour":
            data.write_text(data.read_text().replace("meow", "red").replace("woof", "blue"))
        options = {"method": method, "epochs": 1, "batch": 16, "least_steps": 0}
        heads[name] = finetuned(model, data, folder / name, **options)
    running = serve(names={"base": model}, adapters=heads, port=0, background=True)
    assert running is not None
    with running as server:
        yield TasksServer(server.url, {"base": model, **heads})


def test_an_adapter_is_named_as_a_model_is(adapted: TasksServer) -> None:
    _, _, listed = adapted.ask("GET", "/v1/models")
    _, _, page = adapted.ask("GET", "/docs")
    assert re.findall("<strong>(.*)</strong>", page) == [m["id"] for m in listed["data"]]
    assert "<code>/v1/embeddings</code>" in page
    assert "<code>/v1/chat/completions</code>" not in page  # refused by every model
    assert [each["id"] for each in listed["data"]] == ["base", "sound", "colour"]
    text, path = {"inputs": TEXTS[0]}, "/models/base/pipeline/text-classification"
    for name, labels in (("sound", {"meow", "woof"}), ("colour", {"red", "blue"})):
        both = adapted.post(f"/{name}/predict", text)
        assert {each["label"] for each in both} == labels
        assert both[:1] == adapted.opened(name).predict([TEXTS[0]])
        assert adapted.post(path, {**text, "parameters": {"adapter_id": name}}) == [both]
        rows = adapted.post("/v1/predict", {"model": name, "rows": [TEXTS[0]]})
        assert rows["answers"] == both[:1] and rows["model"] == name
        _, _, info = adapted.ask("GET", f"/{name}/info")
        assert info["model_id"] == name and len(info["model_sha"]) == 64
        _, _, described = adapted.ask("GET", f"/v1/models/{name}/task")
        assert {*described["labels"]} == labels
    status, _, refused = adapted.ask("POST", "/base/predict", text)
    assert status == 424 and "fine-tuned" not in refused["error_type"]
    body = {**text, "parameters": {"adapter_id": "nobody"}}
    status, _, refused = adapted.ask("POST", path, body)
    assert status == 404 and "sound" in refused["error"]
    assert len(adapted.post("/base/embed", text)[0]) == 16
