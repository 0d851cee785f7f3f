"""Clients of other servers, at their defaults, against a server of ours.

Each skips where its package is missing. All that are named here:

    pip install litellm langchain-openai langchain-huggingface llama-index-embeddings-openai \
        llama-index-embeddings-text-embeddings-inference haystack-ai huggingface-api-haystack \
        chromadb cohere lm-eval mteb
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.clients import TasksServer

pytestmark = [
    pytest.mark.interop,
    pytest.mark.loopback,
    pytest.mark.filterwarnings("ignore"),  # of the clients
]
TEXTS = ["the cat sat", "a dog"]
DOCUMENTS = ["the dog ran", "the cat sat on the mat", "a cat"]
KEY = "none"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "ANONYMIZED_TELEMETRY": "False",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        "OPENAI_API_KEY": KEY,
        "HF_DATASETS_OFFLINE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it asks this machine


def litellm_embeddings(url: str, provider: str, path: str) -> Any:
    litellm = pytest.importorskip("litellm")
    answer = litellm.embedding(
        model=f"{provider}/vectors", input=TEXTS, api_base=url + path, api_key=KEY
    )
    return [row["embedding"] for row in answer.data]


def langchain_embeddings(url: str) -> Any:
    langchain = pytest.importorskip("langchain_openai")
    return langchain.OpenAIEmbeddings(
        model="vectors", base_url=f"{url}/v1", api_key=KEY, check_embedding_ctx_length=False
    ).embed_documents(TEXTS)


def llama_index_embeddings(url: str) -> Any:
    module = pytest.importorskip("llama_index.embeddings.openai")
    model = module.OpenAIEmbedding(model_name="vectors", api_base=f"{url}/v1", api_key=KEY)
    return model.get_text_embedding_batch(TEXTS)


def llama_index_tei_embeddings(url: str) -> Any:
    module = pytest.importorskip("llama_index.embeddings.text_embeddings_inference")
    model = module.TextEmbeddingsInference(model_name="vectors", base_url=f"{url}/vectors")
    return model.get_text_embedding_batch(TEXTS)


def haystack_embeddings(url: str) -> Any:
    module = pytest.importorskip("haystack.components.embedders")
    embedder = module.OpenAITextEmbedder(model="vectors", api_base_url=f"{url}/v1")
    return [embedder.run(text)["embedding"] for text in TEXTS]


def haystack_tei_embeddings(url: str) -> Any:
    module = pytest.importorskip("haystack_integrations.components.embedders.huggingface_api")
    secret = pytest.importorskip("haystack.utils").Secret.from_token(KEY)
    embedder = module.HuggingFaceAPITextEmbedder(
        api_type="text_embeddings_inference",
        api_params={"url": f"{url}/vectors/embed"},
        token=secret,
    )
    return [embedder.run(text)["embedding"] for text in TEXTS]


def chroma_openai_embeddings(url: str) -> Any:
    module = pytest.importorskip("chromadb.utils.embedding_functions")
    embed = module.OpenAIEmbeddingFunction(api_key=KEY, api_base=f"{url}/v1", model_name="vectors")
    return embed(TEXTS)


def chroma_tei_embeddings(url: str) -> Any:
    module = pytest.importorskip("chromadb.utils.embedding_functions")
    return module.HuggingFaceEmbeddingServer(url=f"{url}/vectors/embed")(TEXTS)


EMBEDDINGS: dict[str, Callable[[str], Any]] = {
    "litellm openai": lambda url: litellm_embeddings(url, "openai", "/v1"),
    "litellm hosted_vllm": lambda url: litellm_embeddings(url, "hosted_vllm", "/v1"),
    "litellm infinity": lambda url: litellm_embeddings(url, "infinity", ""),
    "langchain-openai": langchain_embeddings,
    "llama-index openai": llama_index_embeddings,
    "llama-index TEI": llama_index_tei_embeddings,
    "haystack openai": haystack_embeddings,
    "haystack TEI": haystack_tei_embeddings,
    "chromadb openai": chroma_openai_embeddings,
    "chromadb TEI": chroma_tei_embeddings,
}


@pytest.mark.parametrize("client", EMBEDDINGS)
def test_embeddings(tasks_server: TasksServer, client: str) -> None:
    vectors = tasks_server.opened("vectors").embed(TEXTS)
    received = np.array(EMBEDDINGS[client](tasks_server.url))
    assert np.allclose(received, vectors, atol=1e-6)
    assert not np.allclose(received[::-1], vectors, atol=1e-3), "the control"


def test_token_ids_of_openai_are_refused(tasks_server: TasksServer) -> None:
    """As langchain-openai sends them by default; with the tokenizer of the model they are read."""
    openai = pytest.importorskip("openai")
    options = {"model": "vectors", "input": [[791, 8415, 7731]]}
    with openai.OpenAI(base_url=f"{tasks_server.url}/v1", api_key=KEY, max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(**options)
        assert caught.value.param == "input"
        ids = [tasks_server.opened("vectors").model.tokenizer.encode(TEXTS[0])]
        declared = {"model": "vectors", "input": ids, "extra_body": {"tokenizer": "vectors"}}
        (answer,) = client.embeddings.create(**declared).data
    assert np.allclose(answer.embedding, tasks_server.opened("vectors").embed(TEXTS[0]), atol=1e-6)


def litellm_ranking(url: str, provider: str, path: str, **options: Any) -> Any:
    litellm = pytest.importorskip("litellm")
    return litellm.rerank(
        model=f"{provider}/alike",
        query="a cat",
        documents=DOCUMENTS,
        top_n=2,
        api_base=url + path,
        api_key=KEY,
        **options,
    ).results


def cohere_ranking(url: str, client: str) -> Any:
    cohere = pytest.importorskip("cohere")
    ranking = getattr(cohere, client)(KEY, base_url=url).rerank(
        model="alike", query="a cat", documents=DOCUMENTS, top_n=2
    )
    return [vars(result) for result in ranking.results]


RANKINGS: dict[str, Callable[[str], Any]] = {
    "litellm hosted_vllm": lambda url: litellm_ranking(url, "hosted_vllm", ""),
    "litellm cohere": lambda url: litellm_ranking(url, "cohere", ""),
    "litellm jina_ai": lambda url: litellm_ranking(url, "jina_ai", "/v1"),
    # Of vLLM and infinity, which answer at the same path, only the first has documents as objects.
    "litellm infinity": lambda url: litellm_ranking(url, "infinity", "", return_documents=False),
    "cohere v1": lambda url: cohere_ranking(url, "Client"),
    "cohere v2": lambda url: cohere_ranking(url, "ClientV2"),
}


@pytest.mark.parametrize("client", RANKINGS)
def test_rankings(tasks_server: TasksServer, client: str) -> None:
    pairs = [("a cat", document) for document in DOCUMENTS]
    scores = [row["score"] for row in tasks_server.opened("alike").predict(pairs)]
    order = sorted(range(len(scores)), key=lambda number: -scores[number])[:2]
    ranking = RANKINGS[client](tasks_server.url)
    assert [row["index"] for row in ranking] == order
    assert [row["relevance_score"] for row in ranking] == pytest.approx(
        [scores[number] for number in order], abs=1e-5
    )


def test_langchain_writes(tasks_server: TasksServer) -> None:
    """Its defaults have `typical_p` and `do_sample` beside a temperature."""
    langchain = pytest.importorskip("langchain_huggingface")
    url = f"{tasks_server.url}/models/writer/pipeline/text-generation"
    model = langchain.HuggingFaceEndpoint(endpoint_url=url, huggingfacehub_api_token=KEY)
    assert model.invoke(TEXTS[0])


def test_lm_evaluation_harness(tasks_server: TasksServer, tmp_path: Path) -> None:
    """Rolling perplexity, whose requests begin with the end-of-text token, and multiple choice:
    the figures of the harness's own network."""
    lm_eval = pytest.importorskip("lm_eval")
    rows = [
        {"text": "the cat sat on the mat", "question": "the cat", "choices": ["sat", "a dog"]},
        {"text": "a dog ran", "question": "a dog", "choices": ["mat", "ran on"]},
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps({**row, "gold": 0}) + "\n" for row in rows))
    common = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
    }
    rolling = {
        "task": "rolling",
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "byte_perplexity"}],
        **common,
    }
    choices = {
        "task": "choices",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "gold",
        "metric_list": [{"metric": "acc"}],
        **common,
    }
    folder = tasks_server.opened("writer").model.path
    url = f"{tasks_server.url}/v1/completions"
    figures = []
    for model, arguments in (
        ("local-completions", f"model=writer,base_url={url},tokenizer={folder}"),
        ("hf", f"pretrained={folder},dtype=float32,device=cpu"),
    ):
        results = lm_eval.simple_evaluate(
            model=model,
            model_args=arguments,
            tasks=[dict(rolling), dict(choices)],
            bootstrap_iters=0,
        )["results"]
        figures.append([results["rolling"]["byte_perplexity,none"], results["choices"]["acc,none"]])
    assert figures[0] == pytest.approx(figures[1], rel=1e-2)


def test_mteb(tasks_server: TasksServer) -> None:
    """Similarity and classification from local rows: over HTTP as from the folder."""
    mteb = pytest.importorskip("mteb")
    openai = pytest.importorskip("openai")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    datasets = pytest.importorskip("datasets")
    from mteb.abstasks import AbsTaskClassification, AbsTaskSTS
    from mteb.models.abs_encoder import AbsEncoder

    words = ["cat", "dog", "mat", "sat", "ran", "the cat", "a dog"]
    pairs = [(a, b) for a in words for b in words if a < b]

    def described(name: str, task: str, score: str) -> Any:
        return mteb.TaskMetadata(
            name=name,
            description=name,
            type=task,
            eval_langs=["eng-Latn"],
            main_score=score,
            dataset={"path": "local", "revision": "1"},
        )

    class Similarity(AbsTaskSTS):  # type: ignore[misc]
        metadata = described("LocalSimilarity", "STS", "cosine_spearman")

        def load_data(self, **options: Any) -> None:
            rows = {"sentence1": [a for a, _ in pairs], "sentence2": [b for _, b in pairs]}
            rows["score"] = [len({*a} & {*b}) for a, b in pairs]  # type: ignore[misc]
            self.dataset = {"test": datasets.Dataset.from_dict(rows)}
            self.data_loaded = True

    class Classification(AbsTaskClassification):  # type: ignore[misc]
        metadata = described("LocalClassification", "Classification", "accuracy")

        def load_data(self, **options: Any) -> None:
            rows = {"text": [f"{a} {b}" for a, b in pairs], "label": ["cat" in a for a, _ in pairs]}
            rows["label"] = list(map(int, rows["label"]))  # type: ignore[arg-type]
            both = datasets.Dataset.from_dict(rows)
            self.dataset = datasets.DatasetDict({"train": both, "test": both})
            self.data_loaded = True

    class Client(AbsEncoder):  # type: ignore[misc]
        mteb_model_meta = None

        def __init__(self) -> None:
            self.client = openai.OpenAI(base_url=f"{tasks_server.url}/v1", api_key=KEY)

        def encode(self, inputs: Any, **options: Any) -> Any:
            texts = [text for batch in inputs for text in batch["text"]]
            answer = self.client.embeddings.create(model="vectors", input=texts)
            return np.array([row.embedding for row in answer.data])

    folder = tasks_server.opened("vectors").model.path
    scores = []
    for model in (Client(), sentence_transformers.SentenceTransformer(str(folder), device="cpu")):
        results = mteb.evaluate(model, [Similarity(), Classification()], cache=None)
        scores.append([result.get_score() for result in results])
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    assert len({*scores[0]}) == 2
