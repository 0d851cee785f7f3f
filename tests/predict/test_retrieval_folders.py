"""Sparse and multi-vector encoders of sentence-transformers: its numbers, served and exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import maskwright
from maskwright.base.errors import CheckpointError, IncompatibleError, MaskwrightError, UsageError
from predict.test_folder_keys import ABOUT, READING, WORDS, bert, edited
from serve.clients import TasksServer
from tokenizer.toy_tokenizers import prose

st = pytest.importorskip("sentence_transformers")

TEXTS = [prose()[0].strip()[:40], " ".join(prose()[2:6])[:600], "[MASK] Un [SEP] re"]


def ours(folder: Path) -> Any:
    return maskwright.load(folder, precision="float32")


# ------------------------------------------------------------------------------- sparse
@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("sparse")
    model = st.SparseEncoder(str(bert("BertForMaskedLM", home / "words")), device="cpu")
    model.save(str(home / "m"))
    return home / "m"


SPLADE = "1_SpladePooling/config.json"


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        (SPLADE, {}),
        (SPLADE, {"pooling_strategy": "sum"}),
        (SPLADE, {"activation_function": "log1p_relu"}),
        (ABOUT, {"max_active_dims": 8}),
        (ABOUT, {"similarity_fn_name": "cosine"}),
        (READING, {"max_seq_length": 9}),
    ],
)
def test_sparse_weights(file: str, settings: dict[str, Any], sparse: Path, tmp_path: Path) -> None:
    theirs = st.SparseEncoder(str(edited(sparse, tmp_path / "m", file, settings)), device="cpu")
    weights = theirs.encode(TEXTS, batch_size=1).to_dense().numpy()
    model = ours(tmp_path / "m")
    mine = model.predictor.vectors(TEXTS)
    np.testing.assert_allclose(mine, weights, rtol=1e-5, atol=1e-5)
    answers = model.predictor.predict([(TEXTS[0], text) for text in TEXTS[::2]])
    scores = [row["score"] for row in answers]
    expected = theirs.similarity(weights[:1], weights[::2])[0]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    (row,) = model.predict(TEXTS[:1])
    dense = np.zeros(mine.shape[1])
    for weight in row["sparse"]:
        dense[weight["index"]] = weight["value"]
    np.testing.assert_allclose(dense, mine[0], rtol=1e-6)
    before = ours(sparse).predictor.vectors(TEXTS)
    is_same = np.allclose(mine, before) and settings.keys() != {"similarity_fn_name"}
    assert is_same == (settings == {}) or "similarity_fn_name" in settings, "the control"


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        (SPLADE, {"pooling_strategy": "mean"}),
        (SPLADE, {"activation_function": "gelu"}),
        (READING, {"transformer_task": "feature-extraction"}),
        (ABOUT, {"max_active_dims": -1}),
        (ABOUT, {"model_type": "SentenceTransformer"}),
    ],
)
def test_sparse_settings_that_are_refused(
    file: str, settings: dict[str, Any], sparse: Path, tmp_path: Path
) -> None:
    folder = edited(sparse, tmp_path / "m", file, settings)
    with pytest.raises((CheckpointError, IncompatibleError)):
        _ = ours(folder).predictor


# ------------------------------------------------------------------------------- multi-vector
@pytest.fixture(scope="module")
def multi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("multi")
    bare = str(bert("BertModel", home / "bare"))
    torch.manual_seed(0)
    prompts = {"query": "un ", "document": "re "}
    st.MultiVectorEncoder(bare, device="cpu", prompts=prompts).save(str(home / "m"))
    return home / "m"


MASK = "2_MultiVectorMask/config.json"
SKIPPED = ["un", "re", ".", "[SEP]"]
EXPANDED = {"strategy": "fixed", "length": 14}


def vectors_of(folder: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    opened = ours(folder).opened()
    queries, documents = (
        opened.token_vectors(TEXTS, role, lambda finding: None) for role in ("query", "document")
    )
    return queries, documents


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        (READING, {}),
        (READING, {"query_length": 6, "document_length": 9}),
        (READING, {"query_expansion": EXPANDED}),
        (READING, {"query_expansion": {**EXPANDED, "attend": True}}),
        (READING, {"query_expansion": {"strategy": "min", "length": 12}}),
        (READING, {"query_expansion": {**EXPANDED, "token": "[UNK]"}}),
        (READING, {"do_lower_case": True}),
        (MASK, {"skiplist_words": SKIPPED}),
        (MASK, {"skiplist_words": SKIPPED, "skiplist_tasks": ["query", "document"]}),
        (MASK, {"keep_only_token_ids": [2, 3, 40, 50, 60]}),
        (ABOUT, {"similarity_fn_name": "meanmaxsim"}),
        (ABOUT, {"prompts": {"document": "wes ", "passage": "un "}}),
        (WORDS, {"truncation_side": "left"}),
    ],
)
def test_vectors_of_tokens(
    file: str, settings: dict[str, Any], multi: Path, tmp_path: Path
) -> None:
    folder = edited(multi, tmp_path / "m", file, settings)
    theirs = st.MultiVectorEncoder(str(folder), device="cpu")
    queries = theirs.encode_query(TEXTS, batch_size=1)
    documents = theirs.encode_document(TEXTS, batch_size=1)
    mine = vectors_of(folder)
    for expected, actual in zip([*queries, *documents], [*mine[0], *mine[1]], strict=True):
        np.testing.assert_allclose(actual, expected.numpy(), atol=1e-5)
    late = ours(folder).opened().late
    assert late is not None
    scores = [[late.score(query, document) for document in mine[1]] for query in mine[0]]
    np.testing.assert_allclose(scores, theirs.similarity(queries, documents), rtol=1e-5)
    before = vectors_of(multi)
    is_same = all(
        a.shape == b.shape and np.allclose(a, b, atol=1e-4)
        for a, b in zip([*mine[0], *mine[1]], [*before[0], *before[1]], strict=True)
    )
    assert is_same == (not settings or "similarity_fn_name" in settings), "the control"


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        (READING, {"query_expansion": {"strategy": "fixed"}}),
        (READING, {"query_expansion": {**EXPANDED, "token": "no such token"}}),
        (READING, {"document_length": "9"}),
        (ABOUT, {"similarity_fn_name": "cosine"}),
        ("3_Normalize/config.json", {"module_input_name": "sentence_embedding"}),
        ("1_Dense/config.json", {"in_features": 3}),
    ],
)
def test_multi_vector_settings_that_are_refused(
    file: str, settings: dict[str, Any], multi: Path, tmp_path: Path
) -> None:
    model = ours(edited(multi, tmp_path / "m", file, settings))
    with pytest.raises(MaskwrightError):
        model.opened().token_vectors(TEXTS, "query", lambda finding: None)
    assert "embed_all" not in model.abilities and "embed_all" in ours(multi).abilities


def test_public_methods(multi: Path, sparse: Path) -> None:
    short = [TEXTS[0], TEXTS[1][:20]]
    model = ours(multi)
    documents = vectors_of(multi)[1]
    np.testing.assert_array_equal(model.embed_all(TEXTS[0]), documents[0])
    late, queries = model.opened().late, model.embed_all(short, role="query")
    expected = [late.score(queries[0], document) for document in model.embed_all(short)]
    assert model.similarity(short[0], short).tolist() == expected
    with pytest.raises(IncompatibleError) as caught:
        model.embed(short)
    assert "embed_all" in str(caught.value.do)
    with pytest.raises(UsageError):
        model.embed_all(short, role="other")
    with pytest.raises(IncompatibleError):
        ours(sparse).embed_all(short)
    weights = ours(sparse).predictor.vectors(short)
    np.testing.assert_allclose(
        ours(sparse).similarity(short[0], short), weights @ weights[0], rtol=1e-5
    )


@pytest.mark.loopback
def test_served(multi: Path, sparse: Path) -> None:
    short = [TEXTS[0], TEXTS[1][:20]]
    running = maskwright.serve(names={"multi": multi, "sparse": sparse}, port=0, background=True)
    assert running is not None
    with running as server:

        def post(path: str, body: Any, *, status: int = 200) -> Any:
            actual, _, value = TasksServer(server.url, {}).ask("POST", f"/{path}", body)
            assert actual == status, value
            return value

        model, weights = maskwright.load(multi), maskwright.load(sparse)
        (row,) = post("sparse/embed_sparse", {"inputs": short[0]})
        expected = weights.predict([short[0]])[0]["sparse"]
        assert [w["index"] for w in row] == [w["index"] for w in expected]
        assert [w["value"] for w in row] == pytest.approx([w["value"] for w in expected], rel=1e-2)
        for name in ("query", "document"):
            got = post("multi/embed_all", {"inputs": short, "prompt_name": name})
            for mine, theirs in zip(model.embed_all(short, role=name), got, strict=True):  # type: ignore[arg-type]
                np.testing.assert_allclose(mine, theirs, atol=2e-2)
        long = {"inputs": TEXTS[1]}
        post("multi/embed_all", long, status=422)
        assert len(post("multi/embed_all", {**long, "truncate": True})[0]) == 32
        for path in ("multi/embed", "multi/embed_sparse"):
            assert post(path, {"inputs": short}, status=424)
        sentences = {"source_sentence": short[0], "sentences": short}
        for folder, opened in (("multi", model), ("sparse", weights)):
            scores = opened.similarity(short[0], short)
            got = post(f"{folder}/similarity", {"inputs": sentences})
            np.testing.assert_allclose(got, scores, rtol=1e-2)
            ranked = post(f"{folder}/rerank", {"query": short[0], "texts": short})
            assert [r["score"] for r in ranked] == pytest.approx(sorted(got, reverse=True))


def test_exports(multi: Path, sparse: Path, tmp_path: Path) -> None:
    for folder in (multi, sparse):
        out = tmp_path / folder.parent.name
        maskwright.export(folder, out, to="sentence-transformers")
        modules = json.loads((out / "modules.json").read_text())
        assert modules == json.loads((folder / "modules.json").read_text())
        (out / "MANIFEST.json").unlink()
        if folder is multi:
            for mine, again in zip(vectors_of(folder)[1], vectors_of(out)[1], strict=True):
                np.testing.assert_allclose(mine, again, atol=1e-6)
            theirs = st.MultiVectorEncoder(str(out), device="cpu").encode_document(TEXTS[:1])
            np.testing.assert_allclose(vectors_of(folder)[1][0], theirs[0], atol=1e-5)
        else:
            theirs = st.SparseEncoder(str(out), device="cpu").encode(TEXTS).to_dense()
            np.testing.assert_allclose(
                ours(folder).predictor.vectors(TEXTS), theirs, rtol=1e-5, atol=1e-5
            )
