"""F87: a config.json that asks for the impossible is refused before anything is allocated.

Every case starts from a folder that loads, changes one thing, and must end in a refusal that names
the file; that no model was built meanwhile is asserted, not timed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint.small import SMALL, THEIRS, model_of, saved, small, twin
from maskwright.base.errors import CheckpointError, ConfigError, ResourceError, UsageError
from maskwright.model.checkpoint import layout, matching, pretrained
from maskwright.model.families.base.family import family
from maskwright.model.nn.config import Head
from maskwright.model.nn.transformer import Transformer

SIZES = {
    "bert": "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
    "max_position_embeddings type_vocab_size",
    "gpt2": "vocab_size n_embd n_layer n_head n_inner n_positions",
    "openai-gpt": "vocab_size n_embd n_layer n_head n_positions",
    "modernbert": "vocab_size hidden_size num_attention_heads intermediate_size",
    "llama": "vocab_size hidden_size num_attention_heads num_key_value_heads head_dim "
    "intermediate_size num_hidden_layers",
    "t5": "vocab_size d_model d_kv d_ff num_layers num_decoder_layers num_heads "
    "relative_attention_num_buckets",
    "bart": "vocab_size d_model encoder_layers encoder_attention_heads encoder_ffn_dim "
    "decoder_layers decoder_attention_heads decoder_ffn_dim max_position_embeddings",
    "distilbert": "vocab_size dim n_layers n_heads hidden_dim max_position_embeddings",
}
SIZES["vit"] = "hidden_size num_hidden_layers num_attention_heads intermediate_size image_size "
SIZES["vit"] += "patch_size num_channels"
SIZES["led"] = SIZES["bart"].replace("max_position", "max_encoder_position")
SIZES |= {"roberta": SIZES["bert"], "longformer": SIZES["bert"], "big_bird": SIZES["bert"]}
SIZES |= dict.fromkeys(("electra", "albert"), SIZES["bert"] + " embedding_size")
RATES = {
    "bert": "hidden_dropout_prob attention_probs_dropout_prob layer_norm_eps classifier_dropout",
    "gpt2": "resid_pdrop attn_pdrop embd_pdrop layer_norm_epsilon",
    "openai-gpt": "resid_pdrop attn_pdrop embd_pdrop layer_norm_epsilon",
    "modernbert": "attention_dropout embedding_dropout mlp_dropout classifier_dropout norm_eps",
    "llama": "attention_dropout rms_norm_eps classifier_dropout",
    "t5": "dropout_rate layer_norm_epsilon",
    "bart": "dropout attention_dropout activation_dropout classifier_dropout",
    "distilbert": "dropout attention_dropout seq_classif_dropout qa_dropout",
}
RATES |= {
    "vit": "hidden_dropout_prob attention_probs_dropout_prob layer_norm_eps",
    "roberta": RATES["bert"],
    "big_bird": RATES["bert"],
    "led": "dropout attention_dropout activation_dropout",
    "longformer": RATES["bert"].replace(" classifier_dropout", ""),
    "electra": RATES["bert"] + " summary_last_dropout",
    "albert": RATES["bert"].replace("classifier_dropout", "classifier_dropout_prob"),
}
NO_SIZES: list[Any] = [0, -1, -(1 << 63), 1 << 31, 10**9, 10**30, True, False, 2.0, 2.5]
NO_SIZES += ["2", "", [], [2], {}]
NO_RATES: list[Any] = [-0.1, 1.0, 1.5, 1e308, True, "0.1", [], {}, 10**400]
OTHERS: dict[str, dict[str, list[Any]]] = {
    "bert": {
        "hidden_size": [25],
        "num_attention_heads": [5, 25],
        "hidden_act": ["os.system", 3, ["gelu"], {"gelu": 1}],
        "position_embedding_type": ["relative_key"],
        "is_decoder": [True],
        "add_cross_attention": [True],
        "tie_word_embeddings": ["yes", 1],
        "architectures": ["BertModel", {"0": "BertModel"}, ["BertForEverything"], [3], [[]]],
        "id2label": [{"0": "a", "2": "b"}, ["a", "b"], {}, "ab"]
        + [{"0": "a", "1": "b", "2": third} for third in (["c"], None)],
        "model_type": ["bret", None, 3, ["bert"], "../bert", "family", "weights", "bert.config"],
    },
    "openai-gpt": {
        "n_embd": [25],
        "n_head": [5],
        "afn": ["gelu_new"],
        "architectures": [["OpenAIGPTDoubleHeadsModel"]],
    },
    "modernbert": {
        "num_hidden_layers": [6, 1 << 30],
        "local_attention": [0, 1],
        "rope_parameters": [{"full_attention": 3}],
        "global_rope_theta": [float("inf")],
        "local_rope_theta": [10**400],
        "layer_types": [["x"] * 9],
        "decoder_bias": [1],
        "classifier_activation": ["exec"],
    },
    "llama": {
        "hidden_size": [25],
        "num_key_value_heads": [3, 8],
        "head_dim": [9],
        "rope_parameters": [{"rope_type": "llama3", "rope_theta": 50.0}, {"rope_theta": 60.0}],
        "rope_scaling": [{"type": "linear", "factor": 2.0}],
        "pretraining_tp": [2],
        "hidden_act": ["exec"],
        "architectures": [["LlamaForMaskedLM"]],
    },
    "t5": {
        "relative_attention_max_distance": [4, 1 << 30],
        "relative_attention_num_buckets": [3],
        "feed_forward_proj": ["gated-exec", "gated-gelu"],
        "dense_act_fn": ["exec"],
        "is_gated_act": [True],
        "is_decoder": [True],
        "is_encoder_decoder": [False],
        "tie_word_embeddings": [0],
        "scale_decoder_outputs": ["no"],
    },
    "bart": {
        "d_model": [25],
        "decoder_attention_heads": [5],
        "normalize_before": [True],
        "tie_word_embeddings": [False],
        "scale_embedding": [1],
        "is_encoder_decoder": [False],
        "architectures": [["BartForCausalLM"]],
    },
    "gpt2": {
        "n_embd": [25],
        "n_head": [5],
        "activation_function": ["exec"],
        "scale_attn_weights": ["no"],
        "scale_attn_by_inverse_layer_idx": [True],
        "add_cross_attention": [True],
        "tie_word_embeddings": ["NoneType"],
        "architectures": [["GPT2DoubleHeadsModel"]],
    },
    "roberta": {
        "pad_token_id": [-1, 33, 1 << 30, "1"],
        "max_position_embeddings": [1],
        "architectures": [["RobertaForCausalLM"]],
    },
    "led": {"attention_window": [7], "global_attention": [2], "is_encoder_decoder": [False]},
    "longformer": {
        "attention_window": [3, [4, 4], [4, 4, 3], 0, 1 << 31, "512"],
        "global_attention": ["none", "all", 1],
        "onnx_export": [True],
    },
    "big_bird": {
        **{"attention_type": ["full", 1], "random": ["all", 2], "use_bias": [False]},
        **{"block_size": [0, -4, "64", 2.0], "num_random_blocks": [-1, 1 << 31, "3"]},
    },
    "electra": {"is_decoder": [True], "architectures": [["BertModel"]]},
    "albert": {
        "num_hidden_groups": [2],
        "inner_group_num": [2],
        "embedding_size": [24],
        "hidden_size": [25],
    },
    "vit": {
        **{"hidden_size": [25], "image_size": [9, [8, 8]], "patch_size": [3, 16]},
        **{"qkv_bias": [False], "pooler_act": ["gelu"], "pooler_output_size": [12]},
        "architectures": [["ViTForMaskedImageModeling"]],
    },
    "distilbert": {"dim": [25], "n_heads": [5], "activation": ["exec", 3]},
}


def cases(name: str) -> Iterator[tuple[str, Any]]:
    """(key, impossible value) of a family's config.json."""
    for key in SIZES[name].split():
        yield from ((key, value) for value in NO_SIZES)
    for key in RATES[name].split():
        yield from ((key, value) for value in NO_RATES)
    for key, values in OTHERS[name].items():
        yield from ((key, value) for value in values)


TYPE = {"gpt2": "GPT2LMHeadModel", "openai-gpt": "OpenAIGPTLMHeadModel"}
TYPE |= {"modernbert": "ModernBertForTokenClassification", "t5": "T5ForConditionalGeneration"}
TYPE["led"] = "LEDForConditionalGeneration"
TYPE["big_bird"] = "BigBirdForSequenceClassification"
TYPE |= {"llama": "LlamaForCausalLM", "vit": "ViTForImageClassification"}
TYPE |= {
    member.lower(): f"{member}ForSequenceClassification"
    for member in ("Bert", "Roberta", "Longformer", "Electra", "Albert", "DistilBert", "Bart")
}
# Keys that leave no trace in any shape: heads share a width, ALBERT's layers their weights.
TRACELESS = {"num_attention_heads", "n_head", "n_heads"}
TRACELESS |= {"encoder_attention_heads", "decoder_attention_heads"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("folders")
    models = {name: model_of(small(family(name), TYPE[name])) for name in THEIRS}
    return {name: saved(top / name, model) for name, model in models.items()}


@pytest.fixture()
def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(config: object) -> None:
        pytest.fail("a model was built for a config that must be refused")

    monkeypatch.setattr(matching, "Transformer", build)


def changed(folder: Path, to: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    to.mkdir()
    for path in folder.iterdir():
        os.link(path, to / path.name)
    hf = json.loads((folder / "config.json").read_text())
    change(hf)
    (to / "config.json").unlink()
    (to / "config.json").write_text(json.dumps(hf))
    return to


def at(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of one value in the table of our own config."""

    def change(hf: dict[str, Any]) -> None:
        *steps, last = path.split(".")
        table = hf[layout.CONVENTIONS_KEY]
        for step in steps:
            table = table[int(step)] if isinstance(table, list) else table[step]
        table[last] = value

    return change


@pytest.mark.usefixtures("nothing_is_built")
@pytest.mark.parametrize("name", THEIRS)
def test_F87_one_value_that_cannot_be(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    for number, (key, value) in enumerate(cases(name)):
        folder = changed(folders[name], tmp_path / str(number), lambda hf: hf.update({key: value}))  # noqa: B023
        with pytest.raises((ConfigError, CheckpointError, ResourceError)) as refused:
            pretrained.load(folder)
        assert str(folder) in str(refused.value), (key, value)
        assert len(str(refused.value)) < 1500, (key, value)


@pytest.mark.parametrize("name", THEIRS)
def test_the_folder_that_is_varied_loads(folders: dict[str, Path], name: str) -> None:
    assert pretrained.load(folders[name]).model_type == name


@pytest.mark.usefixtures("nothing_is_built")
@pytest.mark.parametrize("name", THEIRS)
def test_F87_sizes_are_those_of_the_file(
    folders: dict[str, Path], tmp_path: Path, name: str
) -> None:
    for key in SIZES[name].split():
        if key in TRACELESS or (name, key) == ("albert", "num_hidden_layers"):
            continue
        here = SMALL[name].get(key, 2)
        folder = changed(folders[name], tmp_path / key, lambda hf: hf.update({key: here * 2}))  # noqa: B023
        with pytest.raises(CheckpointError):
            pretrained.load(folder)


@pytest.mark.usefixtures("nothing_is_built")
def test_F87_bytes_are_counted_beforehand(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just below every limit of size, a trillion bytes: refused by arithmetic."""
    huge = {"hidden_size": 1 << 17, "intermediate_size": 1 << 20, "num_hidden_layers": 1024}
    folder = changed(folders["bert"], tmp_path / "huge", lambda hf: hf.update(huge))
    with pytest.raises(ResourceError) as refused:
        pretrained.load(folder)
    found = int(str(refused.value.found).split()[0].replace(",", ""))
    matrices = 1024 * (4 * (1 << 17) ** 2 + 2 * (1 << 17) * (1 << 20)) * 4  # four bytes a number
    assert matrices < found < 1.001 * matrices
    monkeypatch.setattr(pretrained, "free_bytes", lambda: 1000)
    with pytest.raises(ResourceError):
        pretrained.load(folders["bert"])


@pytest.mark.usefixtures("nothing_is_built")
@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("format", [2, 0, "1", True]),
        ("config", [None, []]),
        ("config.width", [-96, 10**9, True]),
        ("config.tokens.vocabulary", [0]),
        ("config.encoder", [None]),
        ("config.encoder.blocks", [[]]),
        ("config.encoder.weights_of", [[0], [1, 0], [0, -1]]),
        ("config.encoder.embeddings.positions.type", ["os.system"]),
        ("config.encoder.embeddings.positions.length", [10**12]),
        ("config.encoder.embeddings.segments", [-3]),
        ("config.encoder.blocks.0.attention.pattern", ["diagonal"]),
        ("config.encoder.blocks.0.attention.heads", [0]),
        ("config.encoder.blocks.0.attention.dropout", [1.5]),
        ("config.encoder.blocks.0.attention.window", [[-5, -5]]),
        ("config.encoder.blocks.0.norm.eps", [-5.0]),
        ("config.encoder.blocks.0.surprise", [1]),
        ("config.heads", [[{"name": n, "kind": "sequence", "labels": 2}] for n in ("a.b", "")]),
    ],
)
def test_F87_our_own_config_is_as_strict(tmp_path: Path, path: str, values: list[Any]) -> None:
    pretrained.save(model_of(twin(causal=False)), None, tmp_path / "twin")
    for number, value in enumerate(values):
        folder = changed(tmp_path / "twin", tmp_path / str(number), at(path, value))
        with pytest.raises((ConfigError, CheckpointError)) as refused:
            pretrained.load(folder)
        assert str(folder / "config.json") in str(refused.value), value


RELATIVE = {"type": "Relative", "buckets": 8, "max_distance": 16}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("config.heads", [{"name": "one", "kind": "sequence", "labels": 2}]),
        ("config.encoder.blocks.1.attention.positions", RELATIVE),
    ],
)
def test_F87_tensors_that_only_the_config_has(tmp_path: Path, path: str, value: Any) -> None:
    """None is left as memory was: the file has to hold it."""
    saved(tmp_path / "twin", model_of(twin(causal=False)))
    folder = changed(tmp_path / "twin", tmp_path / "changed", at(path, value))
    with pytest.raises(CheckpointError) as refused:
        pretrained.load(folder)
    assert "missing [" in str(refused.value.found)


@pytest.mark.parametrize("names", [("keys",), ("train",), ("one", "one")])
def test_names_of_heads_that_are_taken(names: tuple[str, ...]) -> None:
    heads = tuple(Head(name=name, kind="sequence", labels=2) for name in names)
    with pytest.raises(ConfigError, match="taken"):
        Transformer(replace(twin(causal=False), heads=heads))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"\xff", b"{", b'{"model_type":"bert","model_type":3}']
)
def test_a_config_that_is_no_object(folders: dict[str, Path], tmp_path: Path, data: bytes) -> None:
    folder = changed(folders["bert"], tmp_path / "x", lambda hf: None)
    (folder / "config.json").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        pretrained.load(folder)


@pytest.mark.parametrize("name", ["nowhere", "config.json", "a\0b"])
def test_no_folder_is_a_mistake_of_use(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        pretrained.load(folders["bert"] / name)
    with pytest.raises(CheckpointError):  # one without config.json
        pretrained.load(tmp_path)


def test_F91_code_in_a_folder_stays_asleep(folders: dict[str, Path], tmp_path: Path) -> None:
    """`auto_map`, a module beside the weights, a package: nothing of it is imported."""
    canary = tmp_path / "canary"
    code = f"open({str(canary)!r}, 'w').write('awake')"
    wakes = {"AutoConfig": "modeling_x.Config", "AutoModel": "modeling_x.Model"}
    folder = changed(folders["bert"], tmp_path / "x", lambda hf: hf.update(auto_map=wakes))
    for name in ("modeling_x.py", "configuration_x.py", "__init__.py", "bert.py", "setup.py"):
        (folder / name).write_text(code)
    loaded = pretrained.load(folder)
    assert loaded.extra["auto_map"] == wakes and not canary.exists()
