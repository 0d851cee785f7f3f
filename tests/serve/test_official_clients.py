"""The clients that people have, as they come: openai, huggingface_hub, curl."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from finetune.test_command import table
from maskwright.learn.finetune.command import finetune_file
from maskwright.ship.serve.command import serve
from serve.clients import TasksServer

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
    embeddings = tasks_server.opened("vectors").embed(TEXTS)
    for more in ({}, {"encoding_format": "float"}):  # the first asks for base64
        response = openai_client.embeddings.create(model="vectors", input=TEXTS, **more)
        assert np.allclose([row.embedding for row in response.data], embeddings, atol=1e-6)
    body = {"model": "writer", "prompt": TEXTS[0], "max_tokens": 6, "temperature": 0}
    whole = openai_client.completions.create(**body, logprobs=1)
    assert len(whole.choices[0].logprobs.tokens) == whole.usage.completion_tokens == 6
    options = {"include_usage": True}
    chunks = list(openai_client.completions.create(**body, stream=True, stream_options=options))
    text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].text and chunks[-1].usage == whole.usage
    with pytest.raises(openai.NotFoundError):
        openai_client.embeddings.create(model="nobody", input="a")
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client.embeddings.create(model="vectors", input="a", dimensions=4)
    assert caught.value.param == "dimensions"


def test_openai_scores_prompts(tasks_server: TasksServer, openai_client: Any) -> None:
    """As evaluation harnesses ask: the figures of a prompt are those of the network."""
    own = tasks_server.opened("writer").model
    wanted = []
    for text in TEXTS:
        ids = torch.tensor([own.tokenizer.encode(text)])
        with torch.inference_mode():
            logs = own.network.logits(own.network.decode(ids))[0].log_softmax(-1)
        wanted.append(logs)
    asked = {"model": "writer", "echo": True, "logprobs": 2, "temperature": 0}
    made = openai_client.completions.create(**asked, prompt=TEXTS, max_tokens=0)
    assert made.usage.completion_tokens == 0
    assert made.usage.prompt_tokens == sum(len(logs) for logs in wanted)
    for text, logs, choice in zip(TEXTS, wanted, made.choices, strict=True):
        ids, found = own.tokenizer.encode(text), choice.logprobs
        assert choice.text == text and choice.finish_reason == "length"
        assert found.token_logprobs[0] is found.top_logprobs[0] is None
        expected = [float(logs[n, token]) for n, token in enumerate(ids[1:])]
        assert found.token_logprobs[1:] == pytest.approx(expected, abs=1e-4)
        # The control: one place further on the scores are others.
        further = [float(logs[n + 1, token]) for n, token in enumerate(ids[1:])]
        assert found.token_logprobs[1:] != pytest.approx(further, abs=1e-3)
        for n, best in enumerate(found.top_logprobs[1:]):
            assert list(best.values()) == pytest.approx(logs[n].topk(2).values.tolist(), abs=1e-4)
        assert [
            text[place:].strip().startswith(token.strip().removeprefix("##"))
            for token, place in zip(found.tokens, found.text_offset, strict=True)
        ] == [True] * len(ids)
    # What is written stands behind it, as without the prompt.
    longer = openai_client.completions.create(**asked, prompt=TEXTS, max_tokens=3)
    alone = openai_client.completions.create(**{**asked, "echo": False}, prompt=TEXTS, max_tokens=3)
    for text, whole, before, after in zip(
        TEXTS, longer.choices, made.choices, alone.choices, strict=True
    ):
        assert whole.text == text + after.text
        assert whole.logprobs.tokens == before.logprobs.tokens + after.logprobs.tokens
        logs = (before.logprobs.token_logprobs + after.logprobs.token_logprobs)[1:]
        assert whole.logprobs.token_logprobs[1:] == pytest.approx(logs, abs=1e-6)
        assert len(whole.logprobs.top_logprobs) == len(whole.logprobs.tokens)
        places = [len(text) + place for place in after.logprobs.text_offset]
        assert whole.logprobs.text_offset == before.logprobs.text_offset + places
    for count, reference in ((0, made), (3, longer)):
        chunks = [
            chunk.choices[0]
            for chunk in openai_client.completions.create(
                **asked, prompt=TEXTS[0], max_tokens=count, stream=True
            )
        ]
        assert chunks[0].logprobs.tokens[: len(wanted[0])] == made.choices[0].logprobs.tokens
        (wanted_choice, *_) = reference.choices
        assert "".join(chunk.text for chunk in chunks) == wanted_choice.text
        assert chunks[-1].finish_reason == wanted_choice.finish_reason
        joined = [log for chunk in chunks for log in chunk.logprobs.token_logprobs]
        assert joined[0] is None
        assert joined[1:] == pytest.approx(wanted_choice.logprobs.token_logprobs[1:], abs=1e-6)
    twice = openai_client.completions.create(**asked, prompt=TEXTS[0], max_tokens=0, n=2)
    assert twice.choices[0].logprobs == twice.choices[1].logprobs
    assert twice.choices[0].logprobs.tokens == made.choices[0].logprobs.tokens


def test_hugging_face(tasks_server: TasksServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each method reads its response; what these say is in test_dialects."""
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it asks this machine
    client, text = hub.InferenceClient(), "the cat sat in Rome ."

    def at(name: str, task: str) -> str:
        return f"{tasks_server.url}/models/{name}/pipeline/{task}"

    (best, *_) = client.fill_mask("the [MASK] sat", model=at("masks", "fill-mask"))
    assert best.sequence and best.token_str
    classes = client.text_classification(text, model=at("classes", "text-classification"))
    assert len(classes) == 3 and classes[0].label
    words = client.token_classification(text, model=at("tags", "token-classification"))
    assert all(text[word.start : word.end] == word.word for word in words)
    answer = client.question_answering(
        question="who sat", context=text, model=at("answers", "question-answering")
    )
    assert text[answer.start : answer.end] == answer.answer
    labels = client.zero_shot_classification(
        text, candidate_labels=["cat", "dog"], model=at("entailment", "zero-shot-classification")
    )
    assert {label.label for label in labels} == {"cat", "dog"}
    similarities = client.sentence_similarity(
        TEXTS[0], other_sentences=TEXTS, model=at("vectors", "sentence-similarity")
    )
    assert similarities[0] == pytest.approx(1, abs=1e-6)
    embedding = client.feature_extraction(TEXTS[0], model=at("vectors", "feature-extraction"))
    assert embedding.shape == (1, 16)
    options = {"model": at("writer", "text-generation"), "max_new_tokens": 5}
    whole = client.text_generation(TEXTS[0], **options)
    assert "".join(client.text_generation(TEXTS[0], stream=True, **options)) == whole
    pieces = list(client.text_generation(TEXTS[0], stream=True, details=True, **options))
    assert pieces[-1].generated_text == whole and pieces[-1].details.generated_tokens == 5
    with pytest.raises(hub.errors.ValidationError, match="watermark"):
        client.text_generation(TEXTS[0], watermark=True, **options)
    with pytest.raises(hub.errors.HfHubHTTPError, match="424"):
        client.summarization(TEXTS[0], model=at("rewrites", "summarization"))


@pytest.fixture(scope="module")
def adapted(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TasksServer]:
    """One model, and two heads on it that are named as models are."""
    folder, heads = tmp_path_factory.mktemp("heads"), {}
    for name in ("sound", "colour"):
        data = table(folder / f"{name}.csv", "classification", 60)
        if name == "colour":
            text = data.read_text().replace("meow", "red").replace("woof", "blue")
            data.write_text(text)
        heads[name] = finetune_file(
            model,
            data,
            folder / name,
            method="probe",
            seeds=1,
            epochs=1,
            batch=16,
            least_steps=0,
            stream=io.StringIO(),
        )
    heads = {name: folder / name for name in heads}
    running = serve(names={"base": model}, adapters=heads, port=0, background=True)
    assert running is not None
    with running as server:
        yield TasksServer(server.url, {"base": model, **heads})


def test_an_adapter_is_named_as_a_model_is(adapted: TasksServer) -> None:
    _, _, found = adapted.ask("GET", "/v1/models")
    assert [each["id"] for each in found["data"]] == ["base", "sound", "colour"]
    text = {"inputs": TEXTS[0]}
    for name, labels in (("sound", {"meow", "woof"}), ("colour", {"red", "blue"})):
        (best, other) = adapted.post(f"/{name}/predict", text)
        assert {best["label"], other["label"]} == labels
        assert best == adapted.opened(name).predict([TEXTS[0]])[0]
        path = "/models/base/pipeline/text-classification"
        chosen = adapted.post(path, {**text, "parameters": {"adapter_id": name}})
        assert chosen[0] == [best, other]
        rows = adapted.post("/v1/predict", {"model": name, "rows": [TEXTS[0]]})
        assert rows["answers"] == [best] and rows["model"] == name
        _, _, info = adapted.ask("GET", f"/{name}/info")
        assert info["model_id"] == name and len(info["model_sha"]) == 64
        _, _, described = adapted.ask("GET", f"/v1/models/{name}/task")
        assert described["labels"] == sorted(labels, key=described["labels"].index)
    status, _, refused = adapted.ask("POST", "/base/predict", text)
    assert status == 424 and "fine-tuned" not in refused["error_type"]
    body = {**text, "parameters": {"adapter_id": "nobody"}}
    status, _, refused = adapted.ask("POST", path, body)
    assert status == 404 and "sound" in refused["error"]
    assert len(adapted.post("/base/embed", text)[0]) == 16
