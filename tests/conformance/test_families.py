"""Every family keeps the room's contract: one body of tests, run over the catalogue."""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType
from typing import Any, get_args

import numpy as np
import pytest
import torch

from checkpoint.small import TEXTS, model_of, readable, small
from maskwright.base import catalogue
from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.model.checkpoint import layout, pretrained
from maskwright.model.families.base import weights
from maskwright.model.families.base.family import Family, family, family_of
from maskwright.model.nn.config import Sinusoidal, TransformerConfig
from maskwright.model.nn.mask import pattern, reach
from maskwright.model.nn.transformer import Transformer
from maskwright.text.tokenizer.file.roles import Style

NAMES = catalogue.names("families")
FAMILIES = {name: family(name) for name in NAMES}
SIZES = [(name, size) for name in NAMES for size in FAMILIES[name].sizes]
KINDS = [(name, kind) for name in NAMES for kind in FAMILIES[name].architectures]
CONTRACT = {
    *("PAPERS", "STYLE"),
    *("ARCHITECTURES", "COORDINATES", "CONSTANTS", "SIZES", "config", "weights"),
}

# As published; bodies with their pooler where the family has one, else as the class is named.
COUNTS = {
    "BertModel": {
        **{"tiny": 4_385_920, "mini": 11_170_560, "small": 28_763_648, "medium": 41_373_184},
        **{"base": 109_482_240, "base-cased": 108_310_272, "large": 335_141_888},
    },
    "BertForPreTraining": {"base": 110_106_428, "large": 336_226_108},
    "RobertaModel": {"base": 124_645_632, "large": 355_359_744, "distil": 82_118_400},
    "RobertaForMaskedLM": {"base": 124_697_433, "large": 355_412_057},
    "LongformerModel": {"base": 148_659_456, "large": 434_600_960},
    "LongformerForMaskedLM": {"base": 148_711_257},
    "BigBirdModel": {"base": 127_468_800, "large": 359_123_968, "base-trivia": 127_479_552},
    "BigBirdForPreTraining": {"base": 128_112_824, "large": 360_228_024},
    "BigBirdForQuestionAnswering": {"base-trivia": 131_614_466},
    "ElectraModel": {"small": 13_483_008},
    "ElectraForPreTraining": {"small": 13_549_057, "base": 109_483_009, "large": 335_142_913},
    "ElectraForMaskedLM": {
        **{"small-generator": 13_546_682, "base-generator": 33_740_602},
        **{"large-generator": 51_295_290},
    },
    "AlbertModel": {
        **{"base-v1": 11_683_584, "large-v1": 17_683_968, "xlarge-v1": 58_724_864},
        **{"xxlarge-v1": 222_595_584, "base-v2": 11_683_584, "large-v2": 17_683_968},
        **{"xlarge-v2": 58_724_864, "xxlarge-v2": 222_595_584},
    },
    "DistilBertModel": {
        **{"base": 66_362_880, "base-cased": 65_190_912},
        **{"base-multilingual-cased": 134_734_080},
    },
    "DistilBertForMaskedLM": {"base": 66_985_530},
    "StaticVectors": {"google-news": 900_000_000, "glove-6b": 120_000_000},
    "GPT2LMHeadModel": {
        **{"small": 124_439_808, "medium": 354_823_168, "large": 774_030_080},
        **{"xl": 1_557_611_200},
    },
    "LlamaForCausalLM": {
        **{"7b": 6_738_415_616, "13b": 13_015_864_320, "70b": 68_976_648_192},
        **{"tinyllama-1.1b": 1_100_048_384, "smollm-135m": 134_515_008},
        **{"smollm-360m": 361_821_120, "smollm-1.7b": 1_711_376_384},
    },
    "OpenAIGPTLMHeadModel": {"base": 116_534_784},
    "ModernBertModel": {"base": 149_014_272, "large": 394_781_696},
    "ModernBertForMaskedLM": {"base": 149_655_232, "large": 395_881_664},
    "T5ForConditionalGeneration": {
        **{"small": 60_506_624, "base": 222_903_552, "large": 737_668_096},
        **{"3b": 2_851_598_336, "11b": 11_307_321_344, "v1.1-small": 76_961_152},
        **{"v1.1-base": 247_577_856, "v1.1-large": 783_150_080, "v1.1-xl": 2_849_757_184},
        **{"v1.1-xxl": 11_135_332_352},
    },
    "BartForConditionalGeneration": {"base": 139_420_416, "large": 406_291_456},
    "LEDForConditionalGeneration": {"base": 161_844_480, "large": 459_801_600},
    "ViTModel": {
        **{"tiny-patch16-224": 5_561_472, "small-patch16-224": 21_813_504},
        **{"base-patch16-224": 86_389_248, "base-patch16-384": 86_681_088},
        **{"base-patch32-224": 88_045_824, "base-patch32-384": 88_118_784},
        **{"large-patch16-224": 304_351_232, "large-patch16-384": 304_740_352},
        **{"large-patch32-384": 306_657_280, "huge-patch14-224": 632_404_480},
    },
    # 93.6 million as published, and the bytes of each word of the vocabulary.
    "Elmo": {"original": 93_600_816 + 51 * 793_471},
    # No count is published: tables, and 4H(I + H + 1) for each layer.
    "UlmfitForCausalLM": {
        "base": 60_002 * 401
        + sum(4 * h * (i + h + 1) for i, h in [(400, 1_150), (1_150, 1_150), (1_150, 400)])
    },
}
PUBLISHED = {
    (name, size, kind): count
    for name, kind in KINDS
    for size, count in COUNTS.get(kind, {}).items()
}


def on_meta(member: Family, size: str, kind: str) -> Transformer:
    with torch.device("meta"):
        return Transformer(member.size(size, kind))


# ------------------------------------------------------------------------------ the contract
@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_its_registration(name: str) -> None:
    module = catalogue.load("families", name)
    assert isinstance(module, ModuleType) and family(name).name == name
    assert set(vars(module)) >= CONTRACT
    assert all(paper.startswith("https://") for paper in module.PAPERS)
    assert module.STYLE in get_args(Style)


# ------------------------------------------------------------------------------ configs
@pytest.mark.parametrize(("name", "size"), SIZES)
def test_published_config_comes_back(name: str, size: str) -> None:
    member = FAMILIES[name]
    for kind in member.architectures:
        config = member.size(size, kind)
        back = member.hf_config(config)
        assert {key: back[key] for key in member.sizes[size]} == member.sizes[size]
        assert back["architectures"] == [kind] and back["model_type"] == name
        assert member.config(back) == config


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_config_with_odd_values_comes_back(name: str, kind: str) -> None:
    member = FAMILIES[name]
    config = small(member, kind)
    assert member.config(member.read(config)) == config
    assert member.belongs(config) and family_of(config) is not None
    assert member.architecture(config) == kind


# Keys that say again what others say, and so cannot change alone (checkpoint/test_earlier_configs).
TWICE = {
    "modernbert": {
        *("layer_types", "global_attn_every_n_layers", "num_hidden_layers", "rope_parameters"),
        *("global_rope_theta", "local_rope_theta", "norm_bias", "classifier_bias"),
    },
    "t5": {"is_gated_act", "num_decoder_layers"},
    "llama": {"rope_parameters", "rope_theta"},
    "vit": {"pooler_output_size", "encoder_stride", "patch_size"},
    "elmo": {"filter_widths", "filters"},
}
# Keys that only an unusual member says.
UNUSUAL = {
    "longformer": {"global_attention": "first"},
    "led": {"global_attention": "answer"},
    "big_bird": {"random": "fresh"},
    "static-vectors": {
        **{"subword_buckets": 50, "shortest_subword": 2, "longest_subword": 4},
        "max_characters": 9,
    },
    "t5": {"tie_word_embeddings": False, "lm_head_is_shared": True},
}


def other(value: Any) -> Any:
    """Another value that the same key can have."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        others = {"relu": "gelu", "cls": "mean", "mean": "max", "block_sparse": "original_full"}
        return others.get(value, "relu")
    return value * 2 if isinstance(value, int) else value / 2 or 0.25


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_every_key_of_the_coordinates_moves_the_config(name: str, kind: str) -> None:
    """Each by itself, and back; what a body without heads cannot say is said by one with them."""
    member = FAMILIES[name]
    here = small(member, kind, id2label=None)
    for key, value in member.read(here).items():
        bound = key == "tie_word_embeddings" and here.vocabulary_head is None
        if key == "architectures" or bound or key in TWICE.get(name, ()):
            continue
        there = small(member, kind, **{"id2label": None, key: other(value)})
        assert there != here, key
        assert member.read(there)[key] == other(value)


RATES = {
    "hidden_dropout_prob": 0.2,
    "dropout": 0.2,
    "classifier_dropout": 0.3,
    "classifier_dropout_prob": 0.3,
    "seq_classif_dropout": 0.3,
    "summary_last_dropout": 0.4,
    "qa_dropout": 0.4,
}


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("BertForPreTraining", 0.0, 0.0),
        ("BertForSequenceClassification", 0.0, 0.3),
        ("BertForQuestionAnswering", 0.0, 0.0),
        ("BertForMultipleChoice", 0.0, 0.3),
        ("RobertaForSequenceClassification", 0.3, 0.3),
        ("RobertaForTokenClassification", 0.0, 0.3),
        ("RobertaForMultipleChoice", 0.0, 0.2),
        ("LongformerForSequenceClassification", 0.2, 0.2),
        ("LongformerForTokenClassification", 0.0, 0.2),
        ("LongformerForQuestionAnswering", 0.0, 0.0),
        ("LongformerForMultipleChoice", 0.0, 0.2),
        ("BigBirdForPreTraining", 0.0, 0.0),
        ("BigBirdForSequenceClassification", 0.3, 0.3),
        ("BigBirdForTokenClassification", 0.0, 0.3),
        ("BigBirdForQuestionAnswering", 0.2, 0.0),
        ("BigBirdForMultipleChoice", 0.0, 0.2),
        ("ElectraForPreTraining", 0.0, 0.0),
        ("ElectraForSequenceClassification", 0.3, 0.3),
        ("ElectraForTokenClassification", 0.0, 0.3),
        ("ElectraForMultipleChoice", 0.0, 0.4),
        ("AlbertForPreTraining", 0.0, 0.3),
        ("AlbertForTokenClassification", 0.0, 0.3),
        ("AlbertForQuestionAnswering", 0.0, 0.0),
        ("DistilBertForSequenceClassification", 0.0, 0.3),
        ("DistilBertForTokenClassification", 0.0, 0.2),
        ("DistilBertForQuestionAnswering", 0.0, 0.4),
        ("DistilBertForMultipleChoice", 0.0, 0.3),
        ("GPT2ForSequenceClassification", 0.0, 0.0),
        ("GPT2ForTokenClassification", 0.0, 0.3),
        ("LlamaForTokenClassification", 0.0, 0.3),
        ("T5ForSequenceClassification", 0.3, 0.3),
        ("T5ForTokenClassification", 0.0, 0.3),
    ],
)
def test_where_each_head_has_its_dropout(kind: str, before: float, after: float) -> None:
    """As transformers' modules have it: before a dense layer, before the projection."""
    (name,) = (name for name, known in KINDS if known == kind)
    (head,) = small(FAMILIES[name], kind, **RATES).heads
    assert (head.input_dropout, head.dropout) == (before, after)


@pytest.mark.parametrize("name", NAMES)
def test_every_coordinate_is_said_by_some_architecture(name: str) -> None:
    member = FAMILIES[name]
    said = {
        key
        for kind in member.architectures
        for unusual in ({}, UNUSUAL.get(name, {}))
        for key in member.read(small(member, kind, **unusual))
    }
    assert said >= set(catalogue.load("families", name).COORDINATES) - set(member.switches)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ("placement", "encoder.blocks.0.placement"),
        ("positions", "encoder.embeddings.positions.type"),
        ("head", "heads.0.name"),
    ],
)
def test_what_departs_is_named(change: str, place: str) -> None:
    member = FAMILIES["bert"]
    config = small(member, "BertForSequenceClassification")
    stack = config.encoder
    assert stack is not None and member.departures(config) == []
    if change == "placement":
        blocks = tuple(replace(b, placement="pre") for b in stack.blocks)
        config = replace(config, encoder=replace(stack, blocks=blocks))
    elif change == "positions":
        entry = replace(stack.embeddings, positions=Sinusoidal(length=32))
        config = replace(config, encoder=replace(stack, embeddings=entry))
    else:
        config = replace(config, heads=(replace(config.heads[0], name="mood"),))
    assert place in [line.split(":")[0] for line in member.departures(config)]
    assert not member.belongs(config) and family_of(config) is None
    with pytest.raises(IncompatibleError):
        member.hf_config(config)


@pytest.mark.parametrize("name", NAMES)
def test_families_do_not_claim_each_other(name: str) -> None:
    """Whatever one has nothing of is named, too."""
    config = small(FAMILIES[name])
    assert [other for other in NAMES if FAMILIES[other].belongs(config)] == [name]
    for member in FAMILIES.values():
        assert bool(member.departures(config)) == (member.name != name)


# ------------------------------------------------------------------------------ weights
@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_every_tensor_is_named_once(name: str, kind: str) -> None:
    member = FAMILIES[name]
    for size in [None, *member.sizes]:
        config = small(member, kind) if size is None else member.size(size, kind)
        rules = member.weights(config)
        ours = [part for rule in weights.carriers(rules) for part in rule.parts()]
        theirs = [foreign for rule in weights.carriers(rules) for foreign in rule.names()]
        theirs += [rule.theirs for rule in weights.ties(rules)]
        assert sorted(ours) == sorted(layout.parameter_shapes(config))
        assert len(theirs) == len(set(theirs))
        assert set(theirs) <= member.known_names(config)


def test_a_rule_too_few_or_too_many_is_noticed() -> None:
    config = small(FAMILIES["bert"])
    rules = FAMILIES["bert"].weights(config)
    ours = {part: np.zeros(shape) for part, shape in layout.parameter_shapes(config).items()}
    for wrong, name in ((rules[:-1], "pooler.bias"), ([*rules, rules[0]], "tokens.weight")):
        with pytest.raises(CheckpointError, match=name):
            weights.save(wrong, ours, np.concatenate)


# ------------------------------------------------------------------------------ sizes


@pytest.mark.parametrize(("name", "size", "kind"), PUBLISHED)
def test_published_parameter_counts(name: str, size: str, kind: str) -> None:
    assert on_meta(FAMILIES[name], size, kind).num_parameters() == PUBLISHED[name, size, kind]
    assert {(name, size) for name, size, _ in PUBLISHED} == set(SIZES)


# ------------------------------------------------------------------------------ behaviour
SOURCE, TARGET = 6, 9


def hidden_of(model: Transformer, tokens: torch.Tensor) -> torch.Tensor:
    """Hidden states of all stacks along one axis: what the first SOURCE tokens give in an encoder
    that has a decoder behind it, then what the others give."""
    if model.encoder is None:
        return model.decode(tokens)
    if model.decoder is None:
        return model.encode(tokens)
    memory = model.encode(tokens[:, :SOURCE])
    return torch.cat([memory, model.decode(tokens[:, SOURCE:], memory=memory)], 1)


def felt_in(config: TransformerConfig) -> torch.Tensor:
    """(output place, input place) of `hidden_of`, by the arithmetic of the masks alone."""
    sizes = [SOURCE, TARGET] if len(config.stacks) == 2 else [TARGET]
    felt = [
        reach([pattern(b.pattern, b.window) for b in stack.blocks], size)[0]
        for stack, size in zip(config.stacks.values(), sizes, strict=True)
    ]
    both = torch.block_diag(*felt).bool()
    # Each place of a decoder reads all of the memory, and so all that the encoder's places feel.
    both[sum(sizes[:-1]) :, : sum(sizes[:-1])] = True
    return both


@pytest.mark.parametrize("name", TEXTS)
def test_mask_law(name: str) -> None:
    """Perturb input j: output i moves if and only if j is reachable from i."""
    config = small(FAMILIES[name])
    model, felt = model_of(config).double(), felt_in(config)
    length = len(felt)
    tokens = torch.randint(61, (1, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        before = hidden_of(model, tokens)[0]
        for j in range(length):
            changed = tokens.clone()
            changed[0, j] = (changed[0, j] + 1) % 61
            moved = (hidden_of(model, changed)[0] - before).abs().amax(-1)
            assert (moved[~felt[:, j]] == 0).all(), "a leak"
            assert (moved[felt[:, j]] > 1e-9).all(), "a blind spot"
    layers = config.encoder is not None and bool(config.encoder.blocks)
    assert felt.all() == (config.decoder is None and layers)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_forward_and_backward(name: str, kind: str) -> None:
    model = model_of(small(FAMILIES[name], kind)).train()
    tokens = torch.arange(30).reshape(2, 15)
    tokens[:, 3] = 2  # where question and answer are parted
    hidden = hidden_of(model, readable(model, tokens))
    total = hidden.square().mean()
    if model.vocabulary_head is not None:
        total = total + model.logits(hidden).logsumexp(-1).mean()
    if model.pooler is not None:
        total = total + model.pool(hidden[:, 0]).sum()
    for head in model.config.heads:
        picked = hidden[:, -1] if head.pools else hidden
        total = total + model.head(head.name, picked).square().sum()
    total.backward()
    assert math.isfinite(total.item())
    rule = None if model.config.encoder is None else model.config.encoder.global_tokens
    for part, parameter in model.named_parameters():
        if part == "tokens.spelling" or ("_global." in part and rule.which == "none"):
            assert parameter.grad is None, part
            continue
        assert parameter.grad is not None and parameter.grad.isfinite().all(), part
        assert parameter.grad.abs().sum() > 0, part


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_saved_and_loaded_is_the_same(name: str, kind: str, tmp_path: object) -> None:
    model = model_of(small(FAMILIES[name], kind))
    folder = f"{tmp_path}/model"
    pretrained.save(model, None, folder)
    loaded = pretrained.load(folder)
    assert loaded.config == model.config and loaded.model_type == name
    theirs = dict(loaded.model.named_parameters())
    for part, parameter in model.named_parameters():
        assert torch.equal(theirs[part], parameter), part
