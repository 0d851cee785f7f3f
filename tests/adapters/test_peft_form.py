"""Folders of adapters in the format of `peft`: what stands in them, and what is read of others'.

That `peft` computes with them what we compute is tests/parity/test_peft.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from checkpoint.small import SMALL, model_of, small
from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.base.storage import commit
from maskwright.model.adapters.base import folder, peft_format
from maskwright.model.adapters.base.adapter import Adapter, attach
from maskwright.model.adapters.base.settings import Settings
from maskwright.model.adapters.lora import LoRA
from maskwright.model.checkpoint import pretrained
from maskwright.model.families.base.family import family
from maskwright.model.nn.transformer import Transformer

KINDS = {"bert": "BertForSequenceClassification", "gpt2": "GPT2LMHeadModel"}


def model(name: str = "bert", kind: str | None = None) -> Transformer:
    return model_of(small(family(name), kind or KINDS[name]))


def adapt(network: Transformer, settings: Settings, heads: tuple[str, ...] = ()) -> Adapter:
    adapter = attach(settings, network, torch.Generator().manual_seed(0), heads=heads)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in adapter.trainable().values():
            parameter += 0.1 * torch.randn(parameter.shape, generator=draw)
    return adapter


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = json.loads((path / peft_format.CONFIG).read_text())
    return config, load_file(path / peft_format.WEIGHTS)


# ------------------------------------------------------------------------------ what stands there
def test_keys_and_config_of_a_classifier(tmp_path: Path) -> None:
    adapter = adapt(model(), LoRA(rank=2, alpha=4.0, dropout=0.1), ("classifier",))
    manifest = folder.save(adapter, tmp_path / "a", base="some/bert")
    config, tensors = read(tmp_path / "a")
    usual = dict.fromkeys(("layers_pattern", "layers_to_transform", "revision", "auto_mapping"))
    usual |= dict.fromkeys(("fan_in_fan_out", "use_dora", "use_rslora"), False)
    usual |= dict.fromkeys(("inference_mode", "init_lora_weights"), True)
    usual |= {"alpha_pattern": {}, "rank_pattern": {}, "bias": "none", "peft_type": "LORA"}
    sizes = {"r": 2, "lora_alpha": 4.0, "lora_dropout": 0.1, "target_modules": ["query", "value"]}
    task = {"task_type": "SEQ_CLS", "modules_to_save": ["classifier"]}
    assert config == usual | sizes | task | {"base_model_name_or_path": "some/bert"}
    path = "base_model.model.bert.encoder.layer.{}.attention.self.{}.lora_{}.weight"
    wanted = {path.format(i, r, s) for i in range(3) for r in ("query", "value") for s in "AB"}
    wanted |= {f"base_model.model.classifier.{part}" for part in ("weight", "bias")}
    assert tensors.keys() == wanted
    assert tensors[path.format(0, "query", "A")].shape == (2, 24)
    assert tensors[path.format(0, "query", "B")].shape == (24, 2)
    card = (tmp_path / "a" / "README.md").read_text()
    assert "library_name: peft" in card and "base_model:adapter:some/bert" in card
    commit.verify(tmp_path / "a")
    assert manifest.about == {"base": "some/bert", "kind": "adapter"}


@pytest.mark.parametrize(
    ("name", "kind", "task"),
    [
        ("bert", "BertModel", "FEATURE_EXTRACTION"),
        ("bert", "BertForTokenClassification", "TOKEN_CLS"),
        *(("bert", kind, None) for kind in ("BertForMaskedLM", "BertForQuestionAnswering")),
        ("roberta", "RobertaForQuestionAnswering", "QUESTION_ANS"),
        ("gpt2", "GPT2LMHeadModel", "CAUSAL_LM"),
        ("t5", "T5ForConditionalGeneration", "SEQ_2_SEQ_LM"),
    ],
)
def test_heads_tell_the_task(name: str, kind: str, task: str | None, tmp_path: Path) -> None:
    adapter = adapt(model(name, kind), LoRA())
    folder.save(adapter, tmp_path / "a", base="base")
    config, tensors = read(tmp_path / "a")
    assert config["task_type"] == task
    # A head is saved though it was not trained; the vocabulary's is the base's.
    heads = [n for n in tensors if ".lora_" not in n]
    assert bool(heads) == bool(adapter.model.heads) == bool(config["modules_to_save"])


@pytest.mark.parametrize(
    ("kind", "heads", "modules"),
    [
        ("BertForSequenceClassification", ("classifier", "pooler"), ["bert.pooler", "classifier"]),
        ("BertForMaskedLM", ("vocabulary_head",), ["cls"]),
        ("BertForPreTraining", ("pooler",), ["bert.pooler", "cls.seq_relationship"]),
    ],
)
def test_heads_are_saved_as_the_modules_that_hold_nothing_else(
    kind: str, heads: tuple[str, ...], modules: list[str], tmp_path: Path
) -> None:
    network, other = model("bert", kind), model("bert", kind)
    adapter = adapt(network, LoRA(), heads)
    folder.save(adapter, tmp_path / "a", base="base")
    assert read(tmp_path / "a")[0]["modules_to_save"] == modules
    loaded = folder.load(other, tmp_path / "a")
    assert set(adapter.own_names) <= set(loaded.own_names)
    assert all(torch.equal(loaded.state()[n], t) for n, t in adapter.state().items())


def test_a_fused_projection_holds_a_block_for_each_part(tmp_path: Path) -> None:
    adapter = adapt(model("gpt2"), LoRA(rank=2, alpha=6.0, targets=("query", "value", "up")))
    folder.save(adapter, tmp_path / "a", base="base")
    config, tensors = read(tmp_path / "a")
    assert config["target_modules"] == ["c_attn", "c_fc"] and config["fan_in_fan_out"] is True
    assert config["rank_pattern"] == {"c_attn": 6} and config["alpha_pattern"] == {"c_attn": 18.0}
    first = tensors["base_model.model.transformer.h.0.attn.c_attn.lora_B.weight"]
    assert first.shape == (72, 6)
    assert not first[24:48].any() and not first[:24, 2:].any() and bool(first[48:, 4:].all())
    back = folder.load(model("gpt2"), tmp_path / "a")
    assert back.settings == LoRA(rank=2, alpha=6.0, targets=("query", "up", "value"))


def test_a_role_that_means_other_modules_too_is_named_with_more_of_its_path(tmp_path: Path) -> None:
    folder.save(adapt(model(), LoRA(rank=2, targets=("down",))), tmp_path / "a", base="base")
    config, _ = read(tmp_path / "a")
    assert config["target_modules"] == [f"{layer}.output.dense" for layer in range(3)]
    both = adapt(model(), LoRA(rank=2, targets=("down", "attention.output")))
    folder.save(both, tmp_path / "both", base="base")
    assert read(tmp_path / "both")[0]["target_modules"] == ["output.dense"]


# ------------------------------------------------------------------------------ loading others'
def foreign(path: Path, tensors: dict[str, Tensor], **config: Any) -> Path:
    path.mkdir()
    usual = {"peft_type": "LORA", "bias": "none", "r": 3, "lora_alpha": 6, "lora_dropout": 0.0}
    usual |= {"target_modules": ["c_attn"], "fan_in_fan_out": True}
    (path / peft_format.CONFIG).write_text(json.dumps({**usual, **config}))
    save_file({f"base_model.model.{n}": t for n, t in tensors.items()}, path / peft_format.WEIGHTS)
    return path


def fused() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(3)
    path = "transformer.h.{}.attn.c_attn.lora_{}.weight"
    shapes = {"A": (3, 24), "B": (72, 3)}
    return {
        path.format(i, side): torch.randn(shape, generator=draw) * 0.1
        for i in range(3)
        for side, shape in shapes.items()
    }


def test_a_fused_pair_of_others_is_read(tmp_path: Path) -> None:
    network, base = model("gpt2"), model("gpt2")
    adapter = folder.load(network, foreign(tmp_path / "a", fused()))
    assert adapter.settings == LoRA(rank=3, alpha=6.0, targets=("key", "query", "value"))
    pair = [fused()[f"transformer.h.1.attn.c_attn.lora_{side}.weight"] for side in "AB"]
    with torch.no_grad():
        for i, role in enumerate(("query", "key", "value")):
            module = f"decoder.blocks.1.attention.{role}"
            x = torch.randn(4, 24)
            gained = network.get_submodule(module)(x) - base.get_submodule(module)(x)
            wanted = 2.0 * x @ (pair[1][24 * i : 24 * (i + 1)] @ pair[0]).T
            torch.testing.assert_close(gained, wanted, rtol=1e-4, atol=1e-5)


def test_a_scale_by_the_root_of_the_rank_is_read(tmp_path: Path) -> None:
    network = model("gpt2")
    adapter = folder.load(network, foreign(tmp_path / "a", fused(), use_rslora=True))
    assert adapter.settings.alpha / 3 == pytest.approx(6 / 3**0.5)


UNSUPPORTED: dict[str, list[Any]] = {
    "peft_type": ["PREFIX_TUNING"],
    "use_dora": [True],
    "alora_invocation_tokens": [[7, 8]],
    "bias": ["all"],
    "lora_scale_by_layer": [[1, 2]],
    "init_lora_weights": ["pissa_niter_16", "olora"],
    "alpha_pattern": [{"0.attn.c_attn": 7}],  # no rank and scale in common
}
INVALID: dict[str, list[Any]] = {
    "alpha_pattern": [{r"\d+\.attn\.(c_attn|x)": "y"}, {"(": 7}, {"(a+)+$": 7}, [1]],
    "rank_pattern": [{"(.*)*x": 7}],
    "r": [-1, 10**9, 10**400, "3"],
    "lora_alpha": ["six", 0, -6],
    "lora_dropout": [1.5],
    "use_rslora": ["false"],
    "target_modules": [["c_proj"], {"c_attn": 1}, r".*\.c_proj"],
    "exclude_modules": [["h.1.attn.c_attn"], r"^.*c_attn$"],
    "layers_to_transform": [[0, 1], 2],
    "modules_to_save": [5],
}


def changes(table: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [{key: value} for key, values in table.items() for value in values]


RANKS = {"r": 3, "rank_pattern": {"h.1.attn.c_attn": 4}}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        *((change, IncompatibleError) for change in changes(UNSUPPORTED)),
        *((change, CheckpointError) for change in [*changes(INVALID), RANKS]),
    ],
)
def test_what_is_not_built_here_is_refused(
    change: dict[str, Any], error: type[Exception], tmp_path: Path
) -> None:
    network = model("gpt2")
    with pytest.raises(error) as refused:
        folder.load(network, foreign(tmp_path / "a", fused(), **change))
    assert peft_format.CONFIG in str(refused.value.where)
    if error is CheckpointError:
        assert f"{peft_format.CONFIG}: {next(iter(change))}" in str(refused.value.where)
    assert "adapters" not in dict(network.named_children())


@pytest.mark.parametrize(
    "change",
    [
        {"target_modules": "all-linear"},
        {"target_modules": r".*\.(c_attn|c_fc)"},
        {"target_modules": r"^transformer\.h\.\d+\.attn\.c_attn$"},
        {"target_modules": "(a+)+$"},
        {"exclude_modules": r".*\.mlp\..*"},
        {"layers_to_transform": [0, 1, 2]},
        {"rank_pattern": {"attn.c_attn": 3}, "r": 8},
        {"alpha_pattern": {r"h\.[0-9]+\.attn\.c_attn": 6}, "lora_alpha": 1},
        {"lora_dropout": None},
        {"peft_version": "0.21.2", "qalora_group_size": 16, "a_new_setting": None, "r": None},
    ],
)
def test_what_says_the_same_is_read(change: dict[str, Any], tmp_path: Path) -> None:
    """The controls: of a pattern that is not of a simple form the matrices say what it chooses."""
    adapter = folder.load(model("gpt2"), foreign(tmp_path / "a", fused(), **change))
    assert adapter.settings == LoRA(rank=3, alpha=6.0, targets=("key", "query", "value"))


def misfits() -> dict[str, dict[str, Tensor]]:
    """Tensors that fit no GPT-2 of this size, or not each other."""
    pairs, name = fused(), "transformer.h.0.attn.c_attn.lora_A.weight"
    return {
        "no rank": {n: t[:0] if "_A." in n else t[:, :0] for n, t in pairs.items()},
        "whole numbers": {n: torch.ones(t.shape, dtype=torch.int64) for n, t in pairs.items()},
        "a stranger": {**pairs, "more.lora_A.weight": torch.ones(1)},
        "not finite": {**pairs, name: pairs[name] / 0},
        "too wide": {n: torch.cat([t, t], 1) if "_A." in n else t for n, t in pairs.items()},
        "another rank": {**pairs, name: torch.ones(4, 24)},
        "another model": {n.replace("transformer.", "decoder."): t for n, t in pairs.items()},
    }


@pytest.mark.parametrize("name", misfits())
def test_tensors_that_do_not_fit_are_refused(name: str, tmp_path: Path) -> None:
    network = model("gpt2")
    with pytest.raises(CheckpointError):
        folder.load(network, foreign(tmp_path / "a", misfits()[name], r=None))
    assert "adapters" not in dict(network.named_children())


def test_of_a_head_of_layers_peft_saves_the_last_alone(tmp_path: Path) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ModernBertConfig(**SMALL["modernbert"], pad_token_id=0)
    base = transformers.ModernBertForSequenceClassification(config).eval()
    base.save_pretrained(tmp_path / "base")
    settings = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["Wqkv"])
    theirs = peft.get_peft_model(base, settings).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                parameter += 0.1 * torch.randn(parameter.shape)
    theirs.save_pretrained(tmp_path / "adapter")
    tokens = torch.randint(3, 61, (2, 9))
    with torch.no_grad():
        wanted = theirs(input_ids=tokens).logits
    ours = pretrained.load(tmp_path / "base").model.eval()
    folder.load(ours, tmp_path / "adapter", family="modernbert")
    with torch.no_grad():
        (head,) = ours.config.heads
        hidden = ours.encode(tokens)
        found = ours.head(head.name, hidden[:, 0] if head.pools else hidden)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    # What is said to be saved, and is not, is a torn file.
    config_file = tmp_path / "adapter" / "adapter_config.json"
    told = json.loads(config_file.read_text())
    config_file.write_text(json.dumps({**told, "modules_to_save": ["classifier", "head"]}))
    with pytest.raises(CheckpointError):
        folder.load(pretrained.load(tmp_path / "base").model, tmp_path / "adapter")
