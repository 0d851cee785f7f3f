"""The targets beside onnx: each is opened again and compared before there is a folder, and each
comparison fails where something else was written."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint.small import model_of, small
from finetune.test_command import table
from maskwright.ask.predict.language_model import load
from maskwright.base.errors import CheckpointError, ConfigError, IncompatibleError, UsageError
from maskwright.base.storage.commit import verify
from maskwright.model.checkpoint import pretrained
from maskwright.model.families.base.family import family
from maskwright.model.graph.engines import openvino as openvino_engine
from maskwright.model.opening.open import BASE, open_merged, open_model
from maskwright.ship.export.folder import as_folder, documents, predictor_of
from maskwright.ship.export.run import export_model
from maskwright.ship.export.target import Report
from maskwright.ship.export.targets import openvino
from maskwright.text.tokenizer.tokenizer import Tokenizer
from small_tasks import finetuned

METHODS = ("full", "lora", "probe", "head")
TEXTS = ["the cat sat on the mat.", "the dog", "a big dog saw the old cat."]


@pytest.fixture(scope="module")
def tuned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Classifiers: of all weights, by an adapter that is merged, and of heads alone."""
    folder = tmp_path_factory.mktemp("tuned")
    data = table(folder / "rows.csv", "classification")
    for method in METHODS:
        finetuned(model, data, folder / method, method=method, epochs=1, batch=16, least_steps=0)
    return {method: folder / method for method in METHODS}


@pytest.fixture(scope="module")
def vectors(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without vectors of its own, written for sentence-transformers."""
    out = tmp_path_factory.mktemp("vectors") / "out"
    exported(model, out, "sentence-transformers", query_prompt="search: ", text_length=24)
    return out


def exported(model: Path, out: Path, to: str, **options: Any) -> Report:
    return export_model(model, out, to=to, options=options, stream=io.StringIO())


# ------------------------------------------------------------------------ sentence-transformers
def test_a_folder_of_sentence_transformers_is_the_classic_one(model: Path, vectors: Path) -> None:
    def read(name: str) -> Any:
        return json.loads((vectors / name).read_text())

    verify(vectors)
    modules = {(m["type"].rpartition(".")[2], m["path"]) for m in read("modules.json")}
    assert modules == {("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")}
    pooling = read("1_Pooling/config.json")
    assert pooling["pooling_mode_mean_tokens"] and not pooling["pooling_mode_cls_token"]
    assert read("sentence_bert_config.json")["max_seq_length"] == 24
    about = read("config_sentence_transformers.json")
    assert about["prompts"] == {"query": "search: "} and about["similarity_fn_name"] == "cosine"
    assert read("config.json")["architectures"] == ["BertModel"] and not list(vectors.rglob("*.py"))
    ours, theirs = load(model, precision="float32"), load(vectors, precision="float32")
    assert np.allclose(ours.embed(TEXTS), theirs.embed(TEXTS), atol=1e-6)


def test_vectors_that_were_trained_keep_their_pooling(
    small_task: Callable[..., Path], tmp_path: Path
) -> None:
    trained = small_task("matching", pooling="cls")
    exported(trained, tmp_path / "out", "sentence-transformers")
    # A folder of that library is written anew as well.
    exported(tmp_path / "out", tmp_path / "again", "sentence-transformers")
    ours, theirs, again = (
        load(folder).embed(TEXTS) for folder in (trained, tmp_path / "out", tmp_path / "again")
    )
    assert np.allclose(ours, theirs, atol=1e-6) and np.allclose(theirs, again, atol=1e-6)
    pooling = json.loads((tmp_path / "out" / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_cls_token"] is True
    with pytest.raises(UsageError, match="--pooling"):
        exported(trained, tmp_path / "no", "sentence-transformers", pooling="mean")


@pytest.mark.interop
@pytest.mark.proof
def test_the_library_itself_gives_the_same_vectors(vectors: Path, models: dict[str, Path]) -> None:
    library = pytest.importorskip("sentence_transformers")
    out = vectors.parent / "decoder"
    exported(models["gpt2"], out, "sentence-transformers")
    for folder in (out, vectors):
        read = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        ours = load(folder, precision="float32").embed(TEXTS)
        alone = np.stack([read.encode(text) for text in TEXTS])  # GPT-2 has no padding token
        assert np.allclose(alone, ours, atol=1e-5), folder
    query = read.encode(TEXTS[0], prompt="search: ")
    assert not np.allclose(query, ours[0], atol=1e-5), "the control"


@pytest.mark.parametrize(
    ("name", "to", "options", "error"),
    [
        ("t5", "sentence-transformers", {}, IncompatibleError),
        ("t5", "sentence-transformers", {"pooling": "median"}, ConfigError),
        ("gpt2", "sentence-transformers", {"text_length": 4000}, UsageError),
        ("t5", "merged", {}, UsageError),
    ],
)
def test_what_is_no_such_folder_is_refused(
    name: str, to: str, options: Any, error: type, models: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(error):
        exported(models[name], tmp_path / "out", to, **options)
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------ weights and adapters
def test_bfloat16_halves_the_weights_and_says_what_changed(
    tuned: dict[str, Path], models: dict[str, Path], tmp_path: Path
) -> None:
    for name, folder in {"class": tuned["full"], "t5": models["t5"]}.items():
        masters = open_model(folder)
        report = exported(folder, tmp_path / name, "safetensors-bf16")
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert config["dtype"] == config["torch_dtype"] == "bfloat16"
        read = open_model(tmp_path / name).network.state_dict()
        for weight, tensor in masters.network.state_dict().items():
            assert torch.equal(read[weight], tensor.bfloat16().float()), weight
        size = (tmp_path / name / "model.safetensors").stat().st_size
        assert size < 0.7 * (masters.path / "model.safetensors").stat().st_size
        assert 0 < report.about["largest_weight_difference"] < 0.02
        assert all(0 < each["difference"] < 0.1 for each in report.about["graphs"])
        assert json.loads((tmp_path / name / "export.json").read_text()) == report.about
    ours, theirs = load(tuned["full"]).predict(TEXTS), load(tmp_path / "class").predict(TEXTS)
    for a, b in zip(ours, theirs, strict=True):
        assert set(a) == set(b) and abs(a["score"] - b["score"]) < 0.01


def test_an_adapter_is_merged_in_float32(
    model: Path, tuned: dict[str, Path], tmp_path: Path
) -> None:
    report = exported(tuned["lora"], tmp_path / "out", "merged")
    moved = report.about["merged"]
    assert 0 < moved["largest"] < 1 and 0 < moved["count"] < moved["of"]
    assert report.about["largest_weight_difference"] == 0
    assert load(tuned["lora"]).predict(TEXTS) == load(tmp_path / "out").predict(TEXTS)
    # The adapter by itself, on the base that it names.
    alone = tmp_path / "adapter"
    shutil.copytree(tuned["lora"] / "adapter", alone)
    config = json.loads((alone / "adapter_config.json").read_text())
    (alone / "MANIFEST.json").unlink()
    (alone / "adapter_config.json").write_text(
        json.dumps({**config, BASE: str(open_model(model).path.resolve())})
    )
    half = exported(alone, tmp_path / "half", "merged", weights="bfloat16")
    assert half.about["merged"]["largest"] == pytest.approx(moved["largest"], rel=1e-3)
    assert half.about["largest_weight_difference"] > 0 and half.about["dtype"] == "bfloat16"
    scores = [a["score"] for a in load(tuned["lora"], precision="float32").predict(TEXTS)]
    merged = [a["score"] for a in load(tmp_path / "half", precision="float32").predict(TEXTS)]
    assert np.allclose(scores, merged, atol=0.01)


@pytest.mark.parametrize("method", ["probe", "head"])
def test_a_head_that_was_saved_alone_is_written_with_what_it_stands_on(
    method: str, tuned: dict[str, Path], tmp_path: Path
) -> None:
    """It lies in a folder without a config.json, and may be one that its family has no name for."""
    whole = exported(tuned[method], tmp_path / "out", "merged")
    assert whole.about["merged"]["largest"] == 0 and whole.about["merged"]["of"] > 10
    ours = load(tuned[method], precision="float32").predict(TEXTS)
    assert load(tmp_path / "out", precision="float32").predict(TEXTS) == ours
    model = as_folder(open_merged(tuned[method]))
    config = json.loads(documents(model, predictor_of(model))["config.json"])
    assert config["id2label"] == {"0": "meow", "1": "woof"}
    assert config["problem_type"] == "single_label_classification"
    assert (config["model_type"] == "bert") is (method == "head")
    with pytest.raises(IncompatibleError):
        exported(tuned[method], tmp_path / "vectors", "sentence-transformers")
    opened = load(tuned[method])
    folder = opened.model.base or opened.model.path
    assert Tokenizer.load(folder).vocabulary_size


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bert", "BertForMaskedLM"),
        ("bert", "BertForQuestionAnswering"),
        ("bert", "BertForSequenceClassification"),
        ("roberta", "RobertaModel"),
        ("roberta", "RobertaForSequenceClassification"),
        ("roberta", "RobertaForMultipleChoice"),
        ("bart", "BartForConditionalGeneration"),
        ("bart", "BartForQuestionAnswering"),
    ],
)
def test_a_short_model_reads_long_texts(name: str, kind: str, tmp_path: Path) -> None:
    """Every head; short texts get the same states, long ones a family that has windows."""
    pretrained.save(model_of(small(family(name), kind)), None, tmp_path / "short")
    out = exported(tmp_path / "short", tmp_path / "long", "long", window=24, length=100).folder
    long, short = pretrained.load(out), pretrained.load(tmp_path / "short")
    assert long.config.encoder.longest == 100
    assert long.model_type == ("led" if name == "bart" else "longformer")
    head = {"Sequence": "first", "Question": "question", "Multiple": "answer"}
    head |= {"Conditional": "first"}
    wanted = next((rule for word, rule in head.items() if word in kind), "none")
    assert long.config.encoder.global_tokens.which == wanted
    ids = torch.randint(3, 60, (2, 100), generator=torch.Generator().manual_seed(0))
    ids[:, 5] = 2
    theirs, ours = short.model.encode(ids[:, :12]), long.model.encode(ids[:, :12])
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    if "Sequence" in kind:  # a pooler is now part of the head
        scores = (m.model.head("classifier", x[:, 0]) for m, x in ((long, ours), (short, theirs)))
        torch.testing.assert_close(*scores)
    assert long.model.encode(ids).isfinite().all()
    if name == "bart":
        theirs, ours = (m.model.decode(ids[:, :9], memory=theirs) for m in (short, long))
        torch.testing.assert_close(ours, theirs)
    again = tmp_path / "again"
    with pytest.raises(IncompatibleError):
        exported(out, again, "long")
    with pytest.raises(ConfigError):
        exported(tmp_path / "short", again, "long", window=25)
    assert not again.exists()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bert", "BertModel"),
        ("bert", "BertForMaskedLM"),
        ("bert", "BertForPreTraining"),
        ("bert", "BertForTokenClassification"),
        ("roberta", "RobertaForMaskedLM"),
    ],
)
def test_a_short_model_reads_blocks(name: str, kind: str, tmp_path: Path) -> None:
    """What BigBird has no class for is refused, and a window beside blocks."""
    pretrained.save(model_of(small(family(name), kind)), None, tmp_path / "short")
    out = exported(tmp_path / "short", tmp_path / "long", "long", block=2, length=100).folder
    long, short = pretrained.load(out), pretrained.load(tmp_path / "short")
    assert (long.model_type, long.config.encoder.longest) == ("big_bird", 100)
    ids = torch.randint(3, 60, (2, 100), generator=torch.Generator().manual_seed(0))
    theirs, ours = short.model.encode(ids[:, :22]), long.model.encode(ids[:, :22])
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    if short.model.vocabulary_head is not None:
        torch.testing.assert_close(long.model.logits(ours), short.model.logits(theirs))
    assert long.model.encode(ids).isfinite().all()
    again = tmp_path / "again"
    with pytest.raises(ConfigError):
        exported(tmp_path / "short", again, "long", block=2, window=4)
    tuned = model_of(small(family("bert"), "BertForSequenceClassification"))
    pretrained.save(tuned, None, tmp_path / "tuned")
    with pytest.raises(IncompatibleError):
        exported(tmp_path / "tuned", again, "long", block=2)
    assert not again.exists()


# ------------------------------------------------------------------------ GGUF
def test_a_gguf_file_is_read_back(
    model: Path,
    models: dict[str, Path],
    small_task: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = pytest.importorskip("gguf")
    sources = {"encoder": model, "decoder": models["gpt2"], "vectors": small_task("matching")}
    for name, source in sources.items():
        about = exported(source, tmp_path / name, "gguf", half=name == "decoder").about
        reader = library.GGUFReader(tmp_path / name / "model.gguf")
        tensors = {tensor.name: tensor.data for tensor in reader.tensors}
        opened = open_model(source)
        expected = opened.network.tokens.weight.detach().numpy()
        assert np.allclose(tensors["token_embd.weight"], expected, atol=1e-3), name
        settings = {key: field.contents() for key, field in reader.fields.items()}
        assert settings["general.architecture"] == about["architecture"]
        tokens = settings["tokenizer.ggml.tokens"]
        assert len(tokens) == len(set(tokens)) == len(expected)
        pooling = {"encoder": "NONE", "decoder": None, "vectors": "MEAN"}[name]
        assert about["pooling"] == pooling
    qkv = [opened_layer.weight for opened_layer in _projections(models["gpt2"])]
    reader = library.GGUFReader(tmp_path / "decoder/model.gguf")
    fused = next(t.data for t in reader.tensors if t.name == "blk.0.attn_qkv.weight")
    assert fused.dtype == np.float16
    assert np.allclose(fused, torch.cat(qkv).detach().numpy(), atol=1e-3)
    with monkeypatch.context() as patch, pytest.raises(CheckpointError):
        right = library.GGUFWriter.add_tensor
        wrong = lambda self, name, array: right(self, name, array + 1)  # noqa: E731
        patch.setattr(library.GGUFWriter, "add_tensor", wrong)
        exported(model, tmp_path / "no", "gguf")
    for source in (models["t5"], small_task("tagging")):
        with pytest.raises(IncompatibleError):
            exported(source, tmp_path / "no", "gguf")
    assert not (tmp_path / "no").exists()


def _projections(source: Path) -> list[Any]:
    attention = open_model(source).network.decoder.blocks["0"].attention  # type: ignore[union-attr]
    return [attention.query, attention.key, attention.value]


# ------------------------------------------------------------------------ OpenVINO
@pytest.mark.usefixtures("rewritten")
def test_graphs_of_openvino_are_compiled_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openvino")
    report = exported(model, tmp_path / "out", "openvino", half=True)
    (graph,) = report.about["graphs"]
    assert graph["relative"] <= openvino.HALF and graph["milliseconds"]
    compiled = openvino_engine.compiled(tmp_path / "out/openvino/openvino_model.xml", 1, "float32")
    names = [each.get_any_name() for each in compiled.inputs]
    logits = compiled({name: np.ones((1, 5), np.int64) for name in names})[0]
    assert logits.shape[:2] == (1, 5)

    right = openvino._runner

    def wrong(*given: Any) -> Any:
        run = right(*given)
        return lambda inputs: {name: found + 1 for name, found in run(inputs).items()}

    with monkeypatch.context() as patch, pytest.raises(CheckpointError, match="other numbers"):
        patch.setattr(openvino, "_runner", wrong)
        exported(model, tmp_path / "no", "openvino")
    monkeypatch.setattr(openvino_engine, "NEEDS", ("no_such_package",))
    with pytest.raises(UsageError, match="no-such-package"):
        exported(model, tmp_path / "no", "openvino")
    assert not (tmp_path / "no").exists()
