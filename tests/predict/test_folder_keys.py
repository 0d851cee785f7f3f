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
from safetensors.torch import load_file, save_file

import maskwright
from maskwright.ask.predict.language_model import CutWarning
from maskwright.ask.predict.predictor import load
from maskwright.base import catalogue
from maskwright.base.errors import CheckpointError, ConfigError, IncompatibleError, MaskwrightError
from maskwright.cli.verbs.show import show
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


# ------------------------------------------------------------------------------- unusual folders
def changing(file: str, **settings: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / file).read_text()) | settings
        (folder / file).write_text(json.dumps({k: v for k, v in content.items() if v != "none"}))

    return change


def several(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda folder: [change(folder) for change in changes] and None  # type: ignore[func-returns-value]


def pooled(*modes: str, **settings: Any) -> Callable[[Path], None]:
    """These poolings, concatenated, and a dense module that fits."""

    def change(folder: Path) -> None:
        changing("1_Pooling/config.json", pooling_mode=list(modes), **settings)(folder)
        width = 16 * len(modes)
        generator = torch.Generator().manual_seed(0)
        weights = {"linear.weight": torch.randn(8, width, generator=generator)}
        weights["linear.bias"] = torch.zeros(8)
        save_file(weights, folder / "2_Dense" / "model.safetensors")
        changing("2_Dense/config.json", in_features=width)(folder)

    return change


def with_classic_pooling(folder: Path) -> None:
    """The keys of releases before 6, two of them on."""
    pooled("mean", "max")(folder)
    modes = {f"pooling_mode_{name}_tokens": True for name in ("max", "mean")}
    modes |= {"pooling_mode_cls_token": False, "word_embedding_dimension": 16}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))


def residual(folder: Path) -> None:
    changing("2_Dense/config.json", use_residual=True)(folder)
    weights = load_file(folder / "2_Dense" / "model.safetensors")
    weights["residual.weight"] = torch.linspace(-1, 1, 8 * 16).view(8, 16)
    save_file(weights, folder / "2_Dense" / "model.safetensors")


def layer_norm(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    name = "sentence_transformers.sentence_transformer.modules.layer_norm.LayerNorm"
    modules[-1] = {"idx": 3, "name": "3", "path": "3_LayerNorm", "type": name}
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "3_LayerNorm").mkdir()
    (folder / "3_LayerNorm" / "config.json").write_text(json.dumps({"dimension": 8}))
    weights = {"norm.weight": torch.linspace(0, 2, 8), "norm.bias": torch.linspace(-1, 1, 8)}
    save_file(weights, folder / "3_LayerNorm" / "model.safetensors")


def without_normalize(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:-1]))


def in_a_subfolder(folder: Path) -> None:
    (folder / "0_Transformer").mkdir()
    for name in (CONFIG, "model.safetensors", WORDS, "tokenizer.json", READING):
        (folder / name).rename(folder / "0_Transformer" / name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))


def in_dtype(dtype: torch.dtype) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        weights = {name: tensor.to(dtype) for name, tensor in weights.items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return change


def in_shards(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = {name: f"model-0000{1 + n % 2}-of-00002.safetensors" for n, name in enumerate(weights)}
    for file in set(names.values()):
        part = {name: weights[name] for name in weights if names[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 0}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def with_vocabulary_file_alone(folder: Path) -> None:
    plain = json.loads((folder / "tokenizer.json").read_text())
    tokens = sorted(plain["model"]["vocab"], key=plain["model"]["vocab"].__getitem__)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    (folder / "tokenizer.json").unlink()
    changing(WORDS, tokenizer_class="BertTokenizer", do_lower_case=False)(folder)


def without_settings(folder: Path) -> None:
    (folder / WORDS).unlink()
    roles = {"mask_token": "[MASK]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    roles |= {"cls_token": "[CLS]", "sep_token": {"content": "[SEP]", "lstrip": False}}
    (folder / "special_tokens_map.json").write_text(json.dumps(roles))


def with_more_tokens(folder: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["Un", "<e1>"]})
    tokenizer.add_tokens(["re ing"])
    tokenizer.save_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    torch.manual_seed(2)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)


PROMPTED = changing(ABOUT, default_prompt_name="query")
UNUSUAL: dict[str, tuple[str, Callable[[Path], None]]] = {
    "first and mean": ("vectors", pooled("cls", "mean")),
    "four poolings": ("vectors", pooled("mean", "cls", "max", "mean_sqrt_len_tokens")),
    "weighted and last": ("vectors", pooled("weightedmean", "lasttoken")),
    "old pooling keys": ("vectors", with_classic_pooling),
    "prompt not pooled": (
        "vectors",
        several(PROMPTED, pooled("mean", "max", include_prompt=False)),
    ),
    "prompt in lower case": ("vectors", several(PROMPTED, changing(READING, do_lower_case=True))),
    "residual": ("vectors", residual),
    "layer norm": ("vectors", layer_norm),
    "of any length, dot": (
        "vectors",
        several(without_normalize, changing(ABOUT, similarity_fn_name="dot")),
    ),
    "subfolder": ("vectors", in_a_subfolder),
    "shorter than positions": ("vectors", changing(READING, max_seq_length=7)),
    "no length": ("vectors", changing(READING, max_seq_length="none")),
    "shards": ("vectors", in_shards),
    "bfloat16": ("classes", in_dtype(torch.bfloat16)),
    "float16": ("pairs", in_dtype(torch.float16)),
    "vocabulary file": ("classes", with_vocabulary_file_alone),
    "special tokens map": ("classes", without_settings),
    "more tokens": ("classes", with_more_tokens),
    "several labels": (
        "classes",
        changing(
            CONFIG,
            problem_type="multi_label_classification",
            id2label={"0": "0", "1": "good", "2": "1"},
        ),
    ),
    "left and endless": (
        "pairs",
        changing(WORDS, truncation_side="left", padding_side="left", model_max_length=10**30),
    ),
    "untied, old keys": (
        "classes",
        changing(
            CONFIG,
            tie_word_embeddings=False,
            torch_dtype="float16",
            directionality="bidi",
            pooler_type="first_token_transform",
            _num_labels=3,
        ),
    ),
    "identity": (
        "pairs",
        several(changing(ABOUT, activation_fn=IDENTITY), changing(READING, max_seq_length=9)),
    ),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_folders(
    name: str, originals: dict[str, Path], unchanged: dict[str, Numbers], tmp_path: Path
) -> None:
    kind, change = UNUSUAL[name]
    folder = tmp_path / "m"
    shutil.copytree(originals[kind], folder)
    change(folder)
    mine, theirs = (read(folder) for read in PROGRAMS[kind])
    np.testing.assert_allclose(mine, theirs, atol=1e-5)
    assert not [f for f in maskwright.load(folder).findings if f.name == "unknown-settings"]


def test_gaps_between_classes_are_refused_by_both(
    originals: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    shutil.copytree(originals["classes"], folder)
    changing(CONFIG, id2label={"0": "a", "2": "b", "3": "c"}, label2id="none")(folder)
    mine, theirs = PROGRAMS["classes"]
    with pytest.raises(ConfigError):
        mine(folder)
    with pytest.raises(KeyError):
        theirs(folder)


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
    with pytest.warns(CutWarning, match="surprise"):
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
