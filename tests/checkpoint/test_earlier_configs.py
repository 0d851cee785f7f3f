"""What two generations of transformers, and its oldest exports, say in other words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint.small import SMALL, Tensors, changed, config_json, model_of, rewritten, small
from checkpoint.small import saved as save_plain
from maskwright.base.errors import CheckpointError, ConfigError
from maskwright.model.checkpoint import files, pretrained
from maskwright.model.families.base.family import Family, family
from maskwright.model.nn.config import TransformerConfig
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train

MODERN, T5, BART = family("modernbert"), family("t5"), family("bart")
BERT, GPT2, ELECTRA = family("bert"), family("gpt2"), family("electra")
GATED = {"feed_forward_proj": "gated-gelu"}


def saved(folder: Path, config: TransformerConfig, tokenizer: Tokenizer | None = None) -> Path:
    return save_plain(folder, model_of(config), tokenizer)


# ------------------------------------------------------------------------------ cadence and theta
NEW = ("layer_types", "rope_parameters")
OLD = ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta")


@pytest.mark.parametrize("left_out", [NEW, OLD, ()])
def test_either_spelling_of_cadence_and_theta_means_the_same(left_out: tuple[str, ...]) -> None:
    keys = {k: v for k, v in SMALL["modernbert"].items() if k not in left_out}
    assert MODERN.config(keys) == small(MODERN)
    written = MODERN.hf_config(small(MODERN))
    assert all(written[key] == SMALL["modernbert"][key] for key in (*NEW, *OLD))
    # The control: without both, the defaults are another model.
    neither = {k: v for k, v in keys.items() if k not in (*NEW, *OLD)}
    assert MODERN.config(neither) != small(MODERN)


FULL, NEAR = "full_attention", "sliding_attention"
CONTRADICTIONS: dict[str, list[Any]] = {
    "layer_types": [[FULL] * 3 + [NEAR] * 2, [NEAR] * 5, [FULL, NEAR], FULL, [FULL, "chunked"] * 2],
    "global_attn_every_n_layers": [3],
    "global_rope_theta": [501.0],
    "rope_parameters": [
        *({FULL: {"rope_type": "yarn", "rope_theta": 500.0}}, {FULL: {"rope_theta": -1}}, [500.0]),
    ],
    "rope_scaling": [{"factor": 2.0}],
    "num_hidden_layers": [2000],
    "num_attention_heads": [8],  # rotary positions turn pairs
    "classifier_bias": [True],
    "classifier_pooling": ["max"],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in CONTRADICTIONS.items() for value in values]
)
def test_what_the_two_would_read_differently_is_refused(key: str, value: Any) -> None:
    kind = {"architectures": ["ModernBertForSequenceClassification"]}
    with pytest.raises(ConfigError):
        MODERN.config({**SMALL["modernbert"], **kind, key: value})


# ------------------------------------------------------------------------------ null
@pytest.mark.parametrize(
    ("member", "key"),
    [
        *((BERT, key) for key in ("position_embedding_type", "is_decoder", "hidden_act")),
        *((T5, key) for key in ("is_gated_act", "is_encoder_decoder")),
        *((MODERN, key) for key in ("rope_scaling", "sparse_prediction")),
        *((GPT2, "add_cross_attention"), (BART, "normalize_before")),
    ],
)
def test_null_is_as_if_the_key_were_not_there(member: Family, key: str) -> None:
    assert small(member, **{key: None}) == small(member)


# ------------------------------------------------------------------------------ of no concern
@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("BartForConditionalGeneration", "encoder_layerdrop", 0.1),
        ("BartForConditionalGeneration", "decoder_layerdrop", 0.1),
        ("ModernBertForMaskedLM", "sparse_prediction", True),
    ],
)
def test_what_training_alone_needs_is_kept(tmp_path: Path, kind: str, key: str, value: Any) -> None:
    member = next(m for m in (BART, MODERN) if kind in m.architectures)
    folder = changed(saved(tmp_path / "m", small(member, kind)), **{key: value})
    loaded = pretrained.load(folder)
    assert loaded.config == small(member, kind) and loaded.extra[key] == value
    # A recipe that asks for it is told that nothing here does it.
    with pytest.raises(ConfigError) as refused:
        member.require_known([key], {**SMALL[member.name], key: value}, "model.settings")
    assert refused.value.where == f"model.settings.{key}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("summary_type", "mean"),
        *(("summary_use_proj", value) for value in (False, None)),
        *(("summary_activation", value) for value in ("tanh", None)),
    ],
)
@pytest.mark.parametrize("kind", ELECTRA.architectures)
def test_a_summary_concerns_only_who_has_one(kind: str, key: str, value: Any) -> None:
    if kind == "ElectraForMultipleChoice":
        with pytest.raises(ConfigError, match=key):
            small(ELECTRA, kind, **{key: value})
    else:
        assert small(ELECTRA, kind, **{key: value}) == small(ELECTRA, kind)


# ------------------------------------------------------------------------------ tied or scaled
def t5(**keys: Any) -> TransformerConfig:
    return small(T5, "T5ForConditionalGeneration", **keys)


@pytest.mark.parametrize("own", [True, False])
def test_the_newer_form_of_an_unscaled_head(tmp_path: Path, own: bool) -> None:
    """`tied`, but not scaled: whether the projection is shared, the file alone can tell."""
    folder = saved(tmp_path / "m", t5(**GATED, tie_word_embeddings=False))
    changed(folder, tie_word_embeddings=True, scale_decoder_outputs=False)
    if not own:
        rewritten(folder, lambda tensors: tensors.pop("lm_head.weight"))
    head = pretrained.load(folder).config.vocabulary_head
    assert head is not None and (head.tied, head.scaled) == (not own, False)


def test_a_shared_but_unscaled_head_is_written_in_the_older_form(tmp_path: Path) -> None:
    shared = t5(**GATED, tie_word_embeddings=False, lm_head_is_shared=True)
    folder = saved(tmp_path / "m", shared)
    tensors = files.open_folder(folder)
    assert torch.equal(tensors.read("lm_head.weight"), tensors.read("shared.weight"))
    hf = config_json(folder)
    assert hf["tie_word_embeddings"] is False and "scale_decoder_outputs" not in hf
    assert pretrained.load(folder).config == shared
    rewritten(folder, lambda tensors: tensors["lm_head.weight"].add_(1))
    with pytest.raises(CheckpointError):
        pretrained.load(folder)


# ------------------------------------------------------------------------------ old exports
@pytest.mark.parametrize(("member", "name"), [(T5, "T5WithLMHeadModel"), (BART, "BartForMaskedLM")])
def test_a_class_may_have_the_name_it_had_once(tmp_path: Path, member: Family, name: str) -> None:
    today = next(kind for kind in member.architectures if kind.endswith("ConditionalGeneration"))
    folder = changed(saved(tmp_path / "m", small(member, today)), architectures=[name])
    loaded = pretrained.load(folder)
    assert loaded.config == small(member, today)
    pretrained.save(loaded.model, None, tmp_path / "again")
    assert config_json(tmp_path / "again")["architectures"] == [today]


def test_names_that_old_exports_carry(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", t5())

    def old(tensors: Tensors) -> None:
        for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head"):
            tensors[f"{name}.weight"] = tensors["shared.weight"].clone()
        first = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
        tensors[first] = torch.ones(8, 4)

    before = pretrained.load(folder).model.state_dict()
    loaded = pretrained.load(rewritten(folder, old))
    assert loaded.unused == ()
    assert all(torch.equal(before[n], p) for n, p in loaded.model.named_parameters())


def test_an_encoder_is_read_out_of_a_model_of_two_stacks(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", t5(num_decoder_layers=3))
    whole = pretrained.load(folder)
    part = pretrained.load(changed(folder, architectures=["T5EncoderModel"]))
    tokens = torch.arange(12).view(2, 6)
    assert part.config.decoder is None
    assert torch.equal(part.model.encode(tokens), whole.model.encode(tokens))
    assert part.unused and all(name.startswith("decoder.") for name in part.unused)


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_a_bias_that_has_no_place_is_refused(tmp_path: Path, value: float) -> None:
    folder = saved(tmp_path / "m", small(BART, "BartForConditionalGeneration"))
    zeros = files.open_folder(folder).read("final_logits_bias")
    assert zeros.shape == (1, 61) and not zeros.any()
    rewritten(folder, lambda tensors: tensors["final_logits_bias"][0, 3].fill_(value))
    if value == 0.0:
        assert pretrained.load(folder).unused == ()
        return
    with pytest.raises(CheckpointError) as refused:
        pretrained.load(folder)
    assert "final_logits_bias" in str(refused.value.where)
    rewritten(folder, lambda tensors: tensors.pop("final_logits_bias"))
    assert pretrained.load(folder).unused == ()


def test_classes_that_nobody_named() -> None:
    """BART has three labels where the config is silent, the others two."""
    bart = {k: v for k, v in SMALL["bart"].items() if k != "id2label"}
    kind = {"architectures": ["BartForSequenceClassification"]}
    assert BART.config({**bart, **kind}).heads[0].labels == 3
    assert BART.config({**bart, **kind, "num_labels": 5}).heads[0].labels == 5


# ------------------------------------------------------------------------------ token ids
TEXT = ["the cat sat on the mat", "a dog ran to the sea"] * 3
ENDS = {"decoder_start": "end", "forced_eos": "end", "bos": "begin"}
FRAME = {"cls": "classify", "bos": "classify", "sep": "separator", "eos": "separator"}


@pytest.mark.parametrize(
    ("name", "kind", "style", "roles"),
    [
        ("t5", "T5ForConditionalGeneration", "t5", {"decoder_start": "pad", "eos": "end"}),
        ("bart", "BartForConditionalGeneration", "roberta", ENDS),
        ("modernbert", "ModernBertForMaskedLM", "bert", FRAME),
    ],
)
def test_ids_that_a_family_asks_for(
    tmp_path: Path, name: str, kind: str, style: str, roles: dict[str, str]
) -> None:
    choice = TokenizerChoice(kind="unigram", vocabulary=160, style=style)
    words = train(TEXT, choice)
    config = small(family(name), kind, vocab_size=words.vocabulary_size)
    folder = saved(tmp_path / "m", config, words)
    hf = config_json(folder)
    for key, role in roles.items():
        assert hf[f"{key}_token_id"] == getattr(words, role) is not None, key
    loaded = pretrained.load(folder)
    assert (config.decoder is not None) == (folder / "generation_config.json").exists()
    if config.decoder is None:
        assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 32
        return
    settings = json.loads((folder / "generation_config.json").read_text())
    assert settings["decoder_start_token_id"] == loaded.extra["decoder_start_token_id"]
