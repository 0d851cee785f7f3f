"""A model folder: saved, loaded, and refused where weights, config and tokenizer disagree."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from checkpoint.small import (
    Tensors,
    changed,
    config_json,
    member_of,
    model_of,
    rewritten,
    same,
    small,
    tensors_of,
    twin,
)
from checkpoint.small import saved as save_plain
from maskwright.base.errors import CheckpointError, ConfigError, IncompatibleError
from maskwright.model.checkpoint import files, pretrained
from maskwright.model.checkpoint.layout import About
from maskwright.model.families.base.family import family
from maskwright.model.nn.transformer import Transformer
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train

BERT, GPT2, ELECTRA = family("bert"), family("gpt2"), family("electra")


def saved(folder: Path, kind: str, **keys: object) -> Transformer:
    """A small model of that architecture, saved in `folder` without a manifest."""
    model = model_of(small(member_of(kind), kind, **keys))
    save_plain(folder, model)
    return model


# ------------------------------------------------------------------------------ foreign habits
def with_old_norm(name: str) -> str:
    stem, _, last = name.rpartition(".")
    return f"{stem}.{'gamma' if last == 'weight' else 'beta'}" if "LayerNorm" in name else name


HABITS: dict[str, Callable[[str, str], str]] = {
    "old names of norms": lambda name, prefix: with_old_norm(name),
    "a prefix too many": lambda name, prefix: prefix + name,
    "a prefix too few": lambda name, prefix: name.removeprefix(prefix),
}
HEADED = ("BertForSequenceClassification", "DistilBertForSequenceClassification", "GPT2LMHeadModel")
HEADED += ("RobertaForMaskedLM", "ElectraForPreTraining", "AlbertForPreTraining")
BARE = [f"{name}Model" for name in ("Bert", "DistilBert", "GPT2", "Roberta", "Electra", "Albert")]
NORMED = ("BertForMaskedLM", "RobertaModel", "ElectraForMaskedLM", "AlbertForPreTraining")


@pytest.mark.parametrize(
    ("habit", "kind"),
    [
        *(("old names of norms", kind) for kind in NORMED),
        *(("a prefix too many", kind) for kind in BARE),
        *(("a prefix too few", kind) for kind in HEADED),
    ],
)
def test_names_as_others_have_them(habit: str, kind: str, tmp_path: Path) -> None:
    model, prefix = saved(tmp_path / "m", kind), member_of(kind).prefix
    names = tensors_of(tmp_path / "m").keys()

    def rename(tensors: Tensors) -> None:
        for name in names:
            tensors[HABITS[habit](name, prefix)] = tensors.pop(name)

    rewritten(tmp_path / "m", rename)
    assert tensors_of(tmp_path / "m").keys() != names
    assert same(pretrained.load(tmp_path / "m").model, model)


def test_buffers_that_are_no_weights(tmp_path: Path) -> None:
    bert, gpt2 = saved(tmp_path / "b", "BertModel"), saved(tmp_path / "g", "GPT2Model")
    ids = {"embeddings.position_ids": torch.arange(32)[None]}
    rewritten(tmp_path / "b", lambda tensors: tensors.update(ids))
    triangle = {"h.0.attn.bias": torch.ones(1, 1, 8, 8).tril().bool()}
    triangle["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    rewritten(tmp_path / "g", lambda tensors: tensors.update(triangle))
    for folder, model in (("b", bert), ("g", gpt2)):
        loaded = pretrained.load(tmp_path / folder)
        assert same(loaded.model, model) and loaded.unused == ()


@pytest.mark.parametrize("kind", ["BertModel", "RobertaModel", "AlbertModel"])
def test_a_body_saved_without_pooler(tmp_path: Path, kind: str) -> None:
    saved(tmp_path / "m", kind)

    def drop(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.startswith("pooler.")]:
            del tensors[name]

    loaded = pretrained.load(rewritten(tmp_path / "m", drop))
    assert not loaded.config.pooler and member_of(kind).belongs(loaded.config)
    pretrained.save(loaded.model, None, tmp_path / "again")
    assert config_json(tmp_path / "again")["add_pooling_layer"] is False
    assert same(pretrained.load(tmp_path / "again").model, loaded.model)


# ------------------------------------------------------------------------------ F29: ties
@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertForPreTraining", "GPT2LMHeadModel"])
def test_F29_tied_tensors_are_saved_once_and_tied_again(tmp_path: Path, kind: str) -> None:
    saved(tmp_path / "m", kind)
    bert = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
    copies = ("lm_head.weight",) if kind == "GPT2LMHeadModel" else bert
    assert not tensors_of(tmp_path / "m").keys() & set(copies)
    model = pretrained.load(tmp_path / "m").model
    assert model.head_weight.data_ptr() == model.tokens.weight.data_ptr()
    copy = model.tokens.weight.detach().clone()
    rewritten(tmp_path / "m", lambda tensors: tensors.update({copies[0]: copy}))
    assert same(pretrained.load(tmp_path / "m").model, model)
    copy[3, 4] += 1e-3
    rewritten(tmp_path / "m", lambda tensors: tensors.update({copies[0]: copy}))
    with pytest.raises(CheckpointError) as refused:
        pretrained.load(tmp_path / "m")
    assert copies[0] in str(refused.value.where)


BERT_TABLE = "bert.embeddings.word_embeddings.weight"
T5_TABLES = ["decoder.embed_tokens.weight", "lm_head.weight"]


@pytest.mark.parametrize(
    ("kind", "name", "kept"),
    [
        ("GPT2LMHeadModel", "transformer.wte.weight", ["lm_head.weight"]),
        ("BertForMaskedLM", BERT_TABLE, ["cls.predictions.decoder.weight"]),
        ("BertForMaskedLM", "cls.predictions.bias", ["cls.predictions.decoder.bias"]),
        ("BartModel", "shared.weight", ["encoder.embed_tokens.weight"]),
        ("T5ForConditionalGeneration", "shared.weight", T5_TABLES),
    ],
)
def test_F29_a_tied_tensor_may_stand_under_another_of_its_names(
    tmp_path: Path, kind: str, name: str, kept: list[str]
) -> None:
    model = saved(tmp_path / "m", kind)

    def renamed(tensors: Tensors) -> None:
        tensors.update(dict.fromkeys(kept, tensors.pop(name)))

    loaded = pretrained.load(rewritten(tmp_path / "m", renamed))
    assert same(loaded.model, model) and loaded.unused == ()
    for other in kept[1:]:
        rewritten(tmp_path / "m", lambda tensors: tensors[other].add_(1))  # noqa: B023
        with pytest.raises(CheckpointError):
            pretrained.load(tmp_path / "m")


def test_F29_an_untied_table_is_not_read_from_the_other(tmp_path: Path) -> None:
    saved(tmp_path / "m", "GPT2LMHeadModel", tie_word_embeddings=False)
    rewritten(tmp_path / "m", lambda tensors: tensors.__delitem__("transformer.wte.weight"))
    with pytest.raises(CheckpointError, match=r"missing \['transformer.wte.weight'\]"):
        pretrained.load(tmp_path / "m")


@pytest.mark.parametrize("absent", ["cls.predictions.bias", "cls.predictions.decoder.bias"])
def test_untied_bert_is_read_from_either_name_of_its_bias(tmp_path: Path, absent: str) -> None:
    model = saved(tmp_path / "m", "BertForMaskedLM", tie_word_embeddings=False)
    rewritten(tmp_path / "m", lambda tensors: tensors.__delitem__(absent))
    loaded = pretrained.load(tmp_path / "m").model
    assert same(loaded, model)
    assert loaded.head_weight.data_ptr() != loaded.tokens.weight.data_ptr()
    assert config_json(tmp_path / "m")["tie_word_embeddings"] is False


# ------------------------------------------------------------------------------ F28, F89: tensors
@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "GPT2LMHeadModel"])
def test_F28_every_tensor_is_needed_and_no_other(tmp_path: Path, kind: str) -> None:
    saved(tmp_path / "m", kind)
    names = list(tensors_of(tmp_path / "m"))
    whole = (tmp_path / "m" / files.WEIGHTS).read_bytes()
    for name in [*names[:3], *names[-3:], "surprise"]:
        (tmp_path / "m" / files.WEIGHTS).write_bytes(whole)
        change = {"surprise": torch.zeros(2)} if name == "surprise" else {}
        rewritten(tmp_path / "m", lambda t: t.update(change) if change else t.pop(name))  # noqa: B023
        with pytest.raises(CheckpointError, match=name):
            pretrained.load(tmp_path / "m")


def test_F28_tensors_of_another_architecture_are_reported(tmp_path: Path) -> None:
    """As in the published BERT files: declared masked only, with pooler and pair head inside."""
    whole = saved(tmp_path / "m", "BertForPreTraining")
    changed(tmp_path / "m", **{"architectures": ["BertForMaskedLM"]})
    loaded = pretrained.load(tmp_path / "m")
    modules = ("bert.pooler.dense", "cls.seq_relationship")
    assert loaded.unused == tuple(
        f"{name}.{part}" for name in modules for part in ("bias", "weight")
    )
    assert torch.equal(loaded.model.tokens.weight, whole.tokens.weight)
    changed(tmp_path / "m", **{"architectures": ["BertForTokenClassification"]})
    with pytest.raises(CheckpointError, match=r"missing \['classifier.bias'"):
        pretrained.load(tmp_path / "m")


def test_unknown_architectures_are_refused(tmp_path: Path) -> None:
    saved(tmp_path / "m", "BertForMaskedLM")
    pretrained.save(model_of(twin(causal=False)), None, tmp_path / "ours")
    for folder, asked in (("m", "BertForMaskedLMs"), ("ours", "BertModel")):
        with pytest.raises(IncompatibleError) as refused:
            pretrained.described(tmp_path / folder, architecture=asked)
        assert asked in str(refused.value.found)
        assert refused.value.where == str(tmp_path / folder / "config.json")


def test_an_architecture_asked_for_wins(tmp_path: Path) -> None:
    saved(tmp_path / "m", "BertForMaskedLM")
    changed(tmp_path / "m", **{"architectures": ["BertForEverything"]})
    for read in (pretrained.load, pretrained.described):
        with pytest.raises(ConfigError, match="BertForEverything"):
            read(tmp_path / "m")
    pretrained.described(tmp_path / "m", architecture="BertForMaskedLM")


@pytest.mark.parametrize(
    "tensor",
    [
        *map(torch.zeros, [(24,), (24, 23), (23, 24), (24, 24, 1), (1, 24, 24), (0, 24), ()]),
        torch.zeros(24, 24, dtype=torch.int32),
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)} {tensor.dtype}",
)
def test_F89_a_tensor_of_another_shape_or_type(tmp_path: Path, tensor: torch.Tensor) -> None:
    saved(tmp_path / "m", "BertModel")
    odd = {"pooler.dense.weight": tensor}
    rewritten(tmp_path / "m", lambda tensors: tensors.update(odd))
    with pytest.raises(CheckpointError, match=r"pooler\.dense\.weight"):
        pretrained.load(tmp_path / "m")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_F89_weights_that_are_no_numbers(tmp_path: Path, value: float, dtype: torch.dtype) -> None:
    model = saved(tmp_path / "m", "GPT2Model")

    def spoil(tensors: Tensors) -> None:
        tensors["h.1.attn.c_attn.weight"] = tensors["h.1.attn.c_attn.weight"].to(dtype)
        tensors["h.1.attn.c_attn.weight"][3, 50] = value

    with pytest.raises(CheckpointError) as refused:
        pretrained.load(rewritten(tmp_path / "m", spoil))
    assert "h.1.attn.c_attn.weight" in str(refused.value.where)
    assert refused.value.found == "1 of 1728"
    with torch.no_grad():
        model.tokens.weight[3, 4] = value
    with pytest.raises(CheckpointError) as refused:
        pretrained.save(model, None, tmp_path / "no")
    assert refused.value.where == "tokens.weight" and not (tmp_path / "no").exists()


# ------------------------------------------------------------------------------ our own layout
@pytest.mark.parametrize(("causal", "count"), [(True, 186_368), (False, 186_430)])
def test_the_twins_of_no_family_come_back(tmp_path: Path, causal: bool, count: int) -> None:
    model = model_of(twin(causal=causal))
    assert model.num_parameters() == count
    pretrained.save(model, None, tmp_path / "m")
    assert config_json(tmp_path / "m")["model_type"] == "maskwright"
    loaded = pretrained.load(tmp_path / "m")
    assert loaded.model_type == "maskwright" and loaded.config == model.config
    assert same(loaded.model, model)


# ------------------------------------------------------------------------------ dtypes, shards
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_are_loaded_in_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    model = model_of(small(GPT2, "GPT2LMHeadModel")).to(dtype)
    pretrained.save(model, None, tmp_path / "m")
    name = str(dtype).removeprefix("torch.")
    hf = config_json(tmp_path / "m")
    assert (hf["dtype"], hf["torch_dtype"]) == (name, name)
    wide = pretrained.load(tmp_path / "m").model
    assert {parameter.dtype for parameter in wide.parameters()} == {torch.float32}
    assert torch.equal(wide.tokens.weight.to(dtype), model.tokens.weight)


def test_shards_whose_index_lists_tied_names(tmp_path: Path) -> None:
    """google/flan-t5-xl: the index has names of the token table that the files dropped."""
    model = model_of(small(family("t5"), "T5ForConditionalGeneration"))
    pretrained.save(model, None, tmp_path / "m", About(largest_shard=20_000))
    (tmp_path / "m" / "MANIFEST.json").unlink()
    index = json.loads((tmp_path / "m" / files.INDEX).read_text())
    first = next(iter(index["weight_map"].values()))
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        index["weight_map"][name] = first
    (tmp_path / "m" / files.INDEX).write_text(json.dumps(index))
    assert same(pretrained.load(tmp_path / "m").model, model)


def test_a_tensor_that_only_the_index_has_is_missing(tmp_path: Path) -> None:
    pretrained.save(model_of(small(BERT)), None, tmp_path / "m", About(largest_shard=20_000))
    (tmp_path / "m" / "MANIFEST.json").unlink()
    name, opened = "pooler.dense.bias", files.open_folder(tmp_path / "m")
    path = opened.entries[name].file
    there = {n: opened.read(n) for n, e in opened.entries.items() if e.file == path and n != name}
    path.write_bytes(b"".join(files.chunks(there)))
    with pytest.raises(CheckpointError, match=r"missing \['pooler.dense.bias'\]"):
        pretrained.load(tmp_path / "m")


# ------------------------------------------------------------------------------ labels
@pytest.mark.parametrize("names", [[0, 1, 2], [-1.5, 0, "x"], [False, True, "x"]])
def test_labels_that_are_numbers_are_read_as_texts(tmp_path: Path, names: list[object]) -> None:
    model = saved(tmp_path / "m", "BertForSequenceClassification")
    named = {str(number): name for number, name in enumerate(names)}
    changed(tmp_path / "m", **{"id2label": named})
    loaded = pretrained.load(tmp_path / "m")
    assert same(loaded.model, model) and loaded.about.labels == tuple(map(str, names))


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertForQuestionAnswering"])
def test_labels_that_nobody_classifies_by_are_not_read(tmp_path: Path, kind: str) -> None:
    """Those of a classifier are numbered from 0."""
    odd = {"1": "a", "2": "b"}
    for name in (kind, "BertForTokenClassification"):
        saved(tmp_path / name, name)
        changed(tmp_path / name, **{"id2label": odd})
    loaded = pretrained.load(tmp_path / kind)
    assert loaded.about.labels == () and loaded.extra["id2label"] == odd
    with pytest.raises(ConfigError, match="id2label"):
        pretrained.load(tmp_path / "BertForTokenClassification")


def test_labels_keep_their_names(tmp_path: Path) -> None:
    model = model_of(small(BERT, "BertForSequenceClassification"))
    about = About(labels=("no", "yes", "perhaps"), problem_type="single_label_classification")
    pretrained.save(model, None, tmp_path / "m", about)
    hf = config_json(tmp_path / "m")
    assert hf["id2label"] == {"0": "no", "1": "yes", "2": "perhaps"}
    assert hf["label2id"] == {"no": 0, "yes": 1, "perhaps": 2}
    assert pretrained.load(tmp_path / "m").about == replace(about, family="bert")
    for labels in (("no", "yes"), ("no", "no", "yes")):
        with pytest.raises(ConfigError, match="labels"):
            pretrained.save_files(model, None, About(labels=labels))


# ------------------------------------------------------------------------------ tokenizers
def tokenizer(text: str = "the cat sat on the mat", style: str = "bert") -> Tokenizer:
    choice = TokenizerChoice(kind="character", style=style)
    return train([text], choice)


@pytest.mark.parametrize(("style", "pad"), [("bert", 0), ("roberta", 1), ("gpt2", None)])
def test_a_tokenizer_pads_as_positions_expect(tmp_path: Path, style: str, pad: int | None) -> None:
    """RoBERTa's positions are counted from the padding token's id, which the folder repeats."""
    words, roberta = tokenizer(style=style), family("roberta")
    if pad is not None:
        model = model_of(small(roberta, pad_token_id=pad))
        pretrained.save(model, words, tmp_path / "m")
        assert config_json(tmp_path / "m")["pad_token_id"] == pad
        assert same(pretrained.load(tmp_path / "m").model, model)
    with pytest.raises(IncompatibleError) as refused:
        pretrained.save(model_of(small(roberta, pad_token_id=2)), words, tmp_path / "no")
    assert refused.value.where == "pad_token_id"
    assert refused.value.found == ("no such token" if pad is None else str(pad))


# ------------------------------------------------------------------------------ families
def test_a_model_of_two_families_keeps_the_one_it_came_from(tmp_path: Path) -> None:
    """A generator with a token table as wide as itself is a BERT as well."""
    model = model_of(small(ELECTRA, "ElectraForMaskedLM", embedding_size=24))
    assert ELECTRA.belongs(model.config) and BERT.belongs(model.config)
    pretrained.save(model, None, tmp_path / "m", About(family="electra"))
    loaded = pretrained.load(tmp_path / "m")
    assert loaded.model_type == "electra" and same(loaded.model, model)
    pretrained.save(loaded.model, None, tmp_path / "again", loaded.about)
    assert config_json(tmp_path / "again")["architectures"] == ["ElectraForMaskedLM"]
    pretrained.save(model, None, tmp_path / "bert")
    as_bert = pretrained.load(tmp_path / "bert")
    assert as_bert.model_type == "bert" and same(as_bert.model, model)
    with pytest.raises(IncompatibleError):
        pretrained.save(model, None, tmp_path / "no", About(family="gpt2"))


def test_F30_another_tokenizer_is_refused(tmp_path: Path) -> None:
    words, others = tokenizer(), tokenizer("the dog ran")
    pretrained.save(model_of(small(BERT)), words, tmp_path / "m")
    for name, data in others.files().items():
        (tmp_path / "m" / name).write_bytes(data)
    with pytest.raises(IncompatibleError) as refused:
        pretrained.load(tmp_path / "m")
    assert (refused.value.found, refused.value.wanted) == (others.fingerprint, words.fingerprint)


def test_F31_ids_beyond_the_table(tmp_path: Path) -> None:
    """A table may have as many rows as there are tokens, or more, and not one fewer."""
    words = tokenizer()
    for rows in (words.vocabulary_size, words.vocabulary_size + 1):
        pretrained.save(model_of(small(BERT, vocab_size=rows)), words, tmp_path / str(rows))
        assert pretrained.load(tmp_path / str(rows)).tokenizer is not None
    model = model_of(small(BERT, vocab_size=words.vocabulary_size - 1))
    with pytest.raises(IncompatibleError):
        pretrained.save(model, words, tmp_path / "m")
    pretrained.save(model, None, tmp_path / "m")
    for name, data in words.files().items():
        (tmp_path / "m" / name).write_bytes(data)
    with pytest.raises(IncompatibleError) as refused:
        pretrained.load(tmp_path / "m")
    assert refused.value.where == "tokens.vocabulary"
