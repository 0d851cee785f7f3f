"""Settings in folders of other libraries: a changed key changes both programs in the same way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

import maskwright
from maskwright.ask.predict.language_model import SettingWarning
from maskwright.ask.predict.predictor import load
from maskwright.base import catalogue
from maskwright.base.errors import CheckpointError, IncompatibleError, MaskwrightError
from maskwright.cli.show import show
from maskwright.model.checkpoint.folder_keys import TABLE
from maskwright.model.families.base.family import family
from predict.test_foreign_heads import SIZES
from tokenizer.toy_tokenizers import prose, trained

st = pytest.importorskip("sentence_transformers")

TEXTS = [prose()[0].strip()[:40], " ".join(prose()[2:6])[:600], "[MASK] Un [SEP] re"]
PAIRS = [(TEXTS[0], text) for text in TEXTS]
Numbers = NDArray[np.floating[Any]]


def bert(kind: str, out: Path, **settings: Any) -> Path:
    tokenizer = trained("wordpiece", "bert")
    tokenizer.save(out)
    (out / "MANIFEST.json").unlink()
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=tokenizer.vocabulary_size, **SIZES, **settings)
    getattr(transformers, kind)(config).save_pretrained(out)
    return out


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A classifier, a cross-encoder, and an embedding model with a dense module and prompts."""
    home = tmp_path_factory.mktemp("originals")
    bert("BertForSequenceClassification", home / "one", num_labels=1)
    st.CrossEncoder(str(home / "one"), device="cpu", max_length=24).save(str(home / "pairs"))
    modules = st.sentence_transformer.modules
    reader = modules.Transformer(str(bert("BertModel", home / "bare")), max_seq_length=20)
    torch.manual_seed(1)
    parts = [reader, modules.Pooling(16, "mean"), modules.Dense(16, 8), modules.Normalize()]
    prompts = {"query": "un red ", "document": ""}
    model = st.SentenceTransformer(modules=parts, prompts=prompts, device="cpu")
    model.save(str(home / "vectors"))
    bert("BertForSequenceClassification", home / "classes", num_labels=3)
    return {name: home / name for name in ("classes", "pairs", "vectors")}


def classes_of_theirs(folder: Path) -> Numbers:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32
    )
    longest = min(tokenizer.model_max_length, SIZES["max_position_embeddings"])
    pipe = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
    answers = pipe(TEXTS, truncation=True, max_length=longest, top_k=None)
    names = list(model.config.id2label.values())
    return np.array([[{a["label"]: a["score"] for a in row}[n] for n in names] for row in answers])


def vectors_of_theirs(folder: Path) -> Numbers:
    model = st.SentenceTransformer(str(folder), device="cpu")
    vectors = model.encode(TEXTS, batch_size=1)
    return np.hstack([vectors, np.asarray(model.similarity(vectors, vectors[:1]))])


def vectors_of_ours(folder: Path) -> Numbers:
    embedder: Any = maskwright.load(folder, precision="float32").opened().embedder(None)
    vectors = embedder.vectors(TEXTS)
    scores = embedder.task_type.compared(vectors, vectors[:1])
    return np.hstack([vectors, scores[:, None]])


def ours(folder: Path) -> Any:
    return maskwright.load(folder, precision="float32").predictor


Read = Callable[[Path], Numbers]
PROGRAMS: dict[str, tuple[Read, Read]] = {
    "classes": (lambda f: ours(f).predict_proba(TEXTS), classes_of_theirs),
    "pairs": (
        lambda f: np.array([answer["score"] for answer in ours(f).predict(PAIRS)]),
        lambda f: st.CrossEncoder(str(f), device="cpu").predict(PAIRS, batch_size=1),
    ),
    "vectors": (vectors_of_ours, vectors_of_theirs),
}

CONFIG, WORDS = "config.json", "tokenizer_config.json"
READING, ABOUT = "sentence_bert_config.json", "config_sentence_transformers.json"
IDENTITY = "torch.nn.modules.linear.Identity"
CHANGED: list[tuple[str, str, dict[str, Any]]] = [
    ("classes", CONFIG, {"hidden_act": "relu"}),
    ("classes", CONFIG, {"layer_norm_eps": 0.1}),
    ("classes", CONFIG, {"problem_type": "multi_label_classification"}),
    ("classes", WORDS, {"truncation_side": "left"}),
    ("classes", WORDS, {"model_max_length": 12}),
    ("classes", WORDS, {"split_special_tokens": True}),
    ("pairs", ABOUT, {"activation_fn": IDENTITY}),
    ("pairs", READING, {"max_seq_length": 8}),
    ("pairs", WORDS, {"truncation_side": "left"}),
    ("pairs", WORDS, {"model_max_length": 10}),
    ("pairs", WORDS, {"model_input_names": ["input_ids", "attention_mask"]}),
    ("vectors", ABOUT, {"similarity_fn_name": "euclidean"}),
    ("vectors", ABOUT, {"truncate_dim": 4}),
    ("vectors", ABOUT, {"default_prompt_name": "query"}),
    ("vectors", READING, {"max_seq_length": 8}),
    ("vectors", READING, {"do_lower_case": True}),
    ("vectors", WORDS, {"truncation_side": "left"}),
    ("vectors", WORDS, {"model_max_length": 9}),
    ("vectors", "1_Pooling/config.json", {"pooling_mode": ["max"]}),
    ("vectors", "2_Dense/config.json", {"activation_function": IDENTITY}),
]
SAME: list[tuple[str, str, dict[str, Any]]] = [
    ("classes", CONFIG, {"hidden_dropout_prob": 0.5, "use_cache": False, "pad_token_id": 5}),
    ("classes", CONFIG, {"tie_word_embeddings": False, "dtype": "bfloat16", "pruned_heads": {}}),
    ("classes", CONFIG, {"torch_dtype": "float16", "output_hidden_states": True}),
    ("classes", WORDS, {"padding_side": "left", "model_max_length": 10**30, "stride": 3}),
    ("classes", WORDS, {"additional_special_tokens": ["Un"], "max_length": 10}),
    ("pairs", WORDS, {"padding_side": "left"}),
    ("vectors", READING, {"query_length": 6, "unpad_inputs": True}),
    ("vectors", "1_Pooling/config.json", {"include_prompt": False}),
    ("vectors", ABOUT, {"similarity_fn_name": None, "__version__": {"pytorch": "0"}}),
]


def edited(folder: Path, out: Path, file: str, settings: dict[str, Any]) -> Path:
    shutil.copytree(folder, out)
    content = json.loads((out / file).read_text())
    (out / file).write_text(json.dumps(content | settings))
    return out


@pytest.fixture(scope="module")
def unchanged(originals: dict[str, Path]) -> dict[str, Numbers]:
    numbers = {name: PROGRAMS[name][1](folder) for name, folder in originals.items()}
    for name, folder in originals.items():
        np.testing.assert_allclose(PROGRAMS[name][0](folder), numbers[name], atol=1e-5)
    return numbers


@pytest.mark.parametrize(("kind", "file", "settings"), [*CHANGED, *SAME])
def test_a_changed_key_has_the_same_effect_in_both(
    kind: str,
    file: str,
    settings: dict[str, Any],
    originals: dict[str, Path],
    unchanged: dict[str, Numbers],
    tmp_path: Path,
) -> None:
    folder = edited(originals[kind], tmp_path / "m", file, settings)
    mine, theirs = (read(folder) for read in PROGRAMS[kind])
    np.testing.assert_allclose(mine, theirs, atol=1e-5)
    before = unchanged[kind]
    is_same = mine.shape == before.shape and bool(np.allclose(mine, before, atol=1e-4))
    assert is_same == ((kind, file, settings) in SAME), "the control: the key has this effect"


@pytest.mark.parametrize(
    ("kind", "file", "settings", "error"),
    [
        ("classes", CONFIG, {"quantization_config": {"quant_method": "gptq"}}, IncompatibleError),
        ("pairs", ABOUT, {"default_prompt_name": "query"}, CheckpointError),
        ("pairs", WORDS, {"truncation_side": "middle"}, CheckpointError),
        ("vectors", READING, {"processing_kwargs": {"text": {"max_length": 6}}}, IncompatibleError),
        ("vectors", READING, {"model_args": {"x": 1}}, IncompatibleError),
        ("vectors", ABOUT, {"query_prefix": "[Q]"}, IncompatibleError),
        ("vectors", ABOUT, {"model_type": "Other"}, IncompatibleError),
    ],
)
def test_a_key_that_is_not_applied_is_refused_and_never_pooled_otherwise(
    kind: str,
    file: str,
    settings: dict[str, Any],
    error: type[MaskwrightError],
    originals: dict[str, Path],
    tmp_path: Path,
) -> None:
    folder = edited(originals[kind], tmp_path / "m", file, settings)
    (key,) = settings
    with pytest.raises(error) as caught:
        PROGRAMS[kind][0](folder)
    assert key in str(caught.value.where)
    if kind == "vectors":
        with pytest.raises(error):
            maskwright.export(folder, tmp_path / "out", to="onnx")


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("classes", CONFIG),
        ("classes", WORDS),
        ("vectors", READING),
        ("vectors", ABOUT),
        ("vectors", "1_Pooling/config.json"),
        ("vectors", "2_Dense/config.json"),
    ],
)
def test_an_unknown_key_is_reported_once(
    kind: str, file: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    folder = edited(originals[kind], tmp_path / "m", file, {"surprise": 3, "unset": None})
    with pytest.warns(SettingWarning, match="surprise"):
        model = maskwright.load(folder)
    (finding,) = [f for f in load(folder).findings if f.name == "unknown-settings"]
    assert finding in model.findings
    assert "surprise 3" in finding.what and "unset" not in finding.what
    assert "surprise" in show(str(folder), []) and "surprise" not in show(str(originals[kind]), [])
    assert not [f for f in load(originals[kind]).findings if f.name == "unknown-settings"]


def test_code_of_a_folder_is_reported(originals: dict[str, Path], tmp_path: Path) -> None:
    code = {"auto_map": {"AutoModel": "modeling_x.Model"}}
    folder = edited(originals["classes"], tmp_path / "m", CONFIG, code)
    assert [finding.name for finding in load(folder).findings] == ["settings-not-applied"]


@pytest.mark.parametrize("name", catalogue.names("families"))
def test_no_key_that_transformers_writes_is_unknown(name: str) -> None:
    member = family(name)
    if not member.in_transformers:
        return
    config = transformers.AutoConfig.for_model(name)
    for architecture in member.architectures:
        hf = json.loads(config.to_json_string()) | {"architectures": [architecture]}
        known = member.known_keys(hf)
        rules = TABLE[CONFIG]
        unknown = {k for k in hf if k not in known and not any(rule.covers(k) for rule in rules)}
        assert not unknown
    generated = set(transformers.GenerationConfig().to_dict())
    assert generated and not any(rule.covers("surprise") for rule in rules)
