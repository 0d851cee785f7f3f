"""The reference library, live: its models are ours and ours are its, to 1e-5 in float32.

Tiny random models of every architecture, with padding and segments: scores, all hidden states and
all gradients, relative to the largest value of each. Theirs are saved and loaded by us; ours are
saved and loaded by them through the classes a user would call.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from checkpoint.small import SMALL, model_of, small
from maskwright.checkpoint import pretrained
from maskwright.families import weights
from maskwright.families.family import Family, family
from maskwright.nn.mask import AttentionMask, real, visible_of
from maskwright.nn.transformer import Transformer

transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
pytestmark = pytest.mark.interop

TOLERANCE = 1e-5
ROWS, LENGTH, CHOICES = 4, 13, 2
# Their table gives the row of the padding token no gradient: here a token that no row has.
NO_IDS = {"pad_token_id": 60, "bos_token_id": None, "eos_token_id": None}
KINDS = [(name, kind) for name in SMALL for kind in family(name).architectures]
AUTO = {
    "BertModel": "AutoModel",
    "BertForMaskedLM": "AutoModelForMaskedLM",
    "BertForPreTraining": "AutoModelForPreTraining",
    "BertForSequenceClassification": "AutoModelForSequenceClassification",
    "BertForTokenClassification": "AutoModelForTokenClassification",
    "BertForQuestionAnswering": "AutoModelForQuestionAnswering",
    "BertForNextSentencePrediction": "AutoModelForNextSentencePrediction",
    "BertForMultipleChoice": "AutoModelForMultipleChoice",
    "GPT2Model": "AutoModel",
    "GPT2LMHeadModel": "AutoModelForCausalLM",
    "OpenAIGPTModel": "AutoModel",
    "OpenAIGPTLMHeadModel": "AutoModelForCausalLM",
    "OpenAIGPTForSequenceClassification": "AutoModelForSequenceClassification",
    "ModernBertModel": "AutoModel",
    "ModernBertForMaskedLM": "AutoModelForMaskedLM",
    "ModernBertForSequenceClassification": "AutoModelForSequenceClassification",
    "ModernBertForTokenClassification": "AutoModelForTokenClassification",
    "ModernBertForQuestionAnswering": "AutoModelForQuestionAnswering",
    "ModernBertForMultipleChoice": "AutoModelForMultipleChoice",
    "T5Model": "AutoModel",
    "T5EncoderModel": "AutoModelForTextEncoding",
    "T5ForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "BartModel": "AutoModel",
    "BartForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "BartForSequenceClassification": "AutoModelForSequenceClassification",
    "BartForQuestionAnswering": "AutoModelForQuestionAnswering",
}
# Classes that read a text's last state; one of them finds it by the end token.
LAST = ("OpenAIGPTForSequenceClassification", "BartForSequenceClassification")
END = 59
FAMILY = {kind: name for name, kind in KINDS}
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
# Biases that the softmax does not see: their gradient is zero up to rounding.
UNFELT = ("key.bias", "k_proj.bias")


def apart(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    assert ours.shape == theirs.shape
    return float((ours - theirs).detach().abs().max() / theirs.detach().abs().max())


def theirs_of(member: Family, kind: str, **keys: Any) -> Any:
    """A random model of theirs: every parameter moved, so that none is a plain 0 or 1."""
    torch.manual_seed(0)
    chosen = {**SMALL[member.name], **NO_IDS, **keys}
    if not kind.endswith("Classification"):
        chosen.pop("id2label", None)
    config = transformers.CONFIG_MAPPING[member.name](**chosen)
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def inputs(member: Family, kind: str, both: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The same batch for both: rows of several lengths, two segments; targets for two stacks."""
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(60, (ROWS, LENGTH), generator=draw)
    lengths = torch.tensor([LENGTH, 9, 1, 5])
    keep = torch.arange(LENGTH)[None] < lengths[:, None]
    if kind in LAST:
        tokens = tokens.clamp(max=END - 1)
        tokens[:, -1] = END
    theirs = {"input_ids": tokens, "attention_mask": keep.long()}
    ours: dict[str, Any] = {"tokens": tokens, "visible": real(keep)}
    if member.name == "bert":
        segments = (torch.arange(LENGTH)[None] >= lengths[:, None] // 2).long()
        theirs["token_type_ids"] = ours["segments"] = segments
    if both:
        width = LENGTH if kind in LAST else LENGTH - 2
        target = torch.randint(60, (ROWS, width), generator=draw)
        written = torch.arange(width)[None] < torch.tensor([[8], [1], [11], [4]])
        theirs |= {"decoder_input_ids": target, "decoder_attention_mask": written.long()}
        ours["target"], ours["target_visible"] = target, real(written)
    return theirs, ours


def states_of(model: Transformer, given: dict[str, Any]) -> dict[str, list[Tensor]]:
    """Our hidden states under the names of their outputs."""
    given = dict(given)
    target, visible = given.pop("target", None), given.pop("target_visible", None)
    states = model.hidden_states(**given)
    if target is None:
        return {"hidden_states": states}
    seen = {"memory": states[-1], "memory_visible": given["visible"]}
    written = model.hidden_states(target, visible=visible, **seen)
    return {"encoder_hidden_states": states, "decoder_hidden_states": written}


def outputs(model: Transformer, kind: str, hidden: Tensor) -> dict[str, Tensor]:
    """Our scores under the names of their outputs."""
    if model.vocabulary_head is None and not model.config.heads:
        pooled = {} if model.pooler is None else {"pooler_output": model.pool(hidden[:, 0])}
        return {"last_hidden_state": hidden, **pooled}
    if kind == "BertForPreTraining":
        pair = model.head("pair", hidden[:, 0])
        return {"prediction_logits": model.logits(hidden), "seq_relationship_logits": pair}
    if model.vocabulary_head is not None:
        return {"logits": model.logits(hidden)}
    (head,) = model.config.heads
    place = -1 if kind in LAST else 0
    scores = model.head(head.name, hidden[:, place] if head.pools else hidden)
    if head.kind == "choice":
        return {"logits": scores.view(-1, CHOICES)}
    if head.kind == "span":
        return {"start_logits": scores[..., 0], "end_logits": scores[..., 1]}
    return {"logits": scores}


def compare(theirs: Any, ours: Transformer, member: Family, kind: str) -> float:
    """The largest relative difference over hidden states, scores and gradients."""
    their_inputs, our_inputs = inputs(member, kind, len(ours.config.stacks) == 2)
    if kind.endswith("MultipleChoice"):
        their_inputs = {k: v.unflatten(0, (-1, CHOICES)) for k, v in their_inputs.items()}
    theirs.config.eos_token_id, theirs.config.pad_token_id = END, NO_IDS["pad_token_id"]
    reference = theirs(**their_inputs, output_hidden_states=True)
    worst, states = [], []
    for name, states in states_of(ours, our_inputs).items():
        worst += [apart(a, b) for a, b in zip(states, reference[name], strict=True)]
    results = outputs(ours, kind, states[-1])
    # One number from all scores, so that every parameter gets a gradient.
    draw = torch.Generator().manual_seed(2)
    total, their_total = torch.zeros(()), torch.zeros(())
    for name, scores in results.items():
        worst.append(apart(scores, reference[name]))
        mix = torch.randn(scores.shape, generator=draw)
        total = total + (scores * mix).sum()
        their_total = their_total + (reference[name] * mix).sum()
    total.backward()
    their_total.backward()
    gradients = {n: p.grad for n, p in ours.named_parameters() if p.grad is not None}
    named = weights.save(member.weights(ours.config), gradients, torch.cat)
    compared = unfelt = 0
    for name, parameter in theirs.named_parameters():
        if parameter.grad is None or name.endswith("decoder.bias"):
            continue
        if name.endswith(UNFELT):
            assert named[name].abs().max() < 1e-4
            unfelt += 1
            continue
        worst.append(apart(named[name], parameter.grad))
        compared += 1
    assert compared + unfelt >= len(list(theirs.parameters())) - 2
    return max(worst)


# ------------------------------------------------------------------------------ both directions
@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_we_load_theirs(name: str, kind: str, tmp_path: Path) -> None:
    member = family(name)
    theirs = theirs_of(member, kind)
    theirs.save_pretrained(tmp_path)
    loaded = pretrained.load(tmp_path)
    assert loaded.unused == () and member.architecture(loaded.config) == kind
    assert loaded.model.num_parameters() == theirs.num_parameters()
    assert compare(theirs, loaded.model, member, kind) < TOLERANCE


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_they_load_ours(name: str, kind: str, tmp_path: Path) -> None:
    member = family(name)
    ours = model_of(small(member, kind))
    pretrained.save(ours, None, tmp_path / "m")
    for entrance in (kind, AUTO[kind]):
        theirs, report = getattr(transformers, entrance).from_pretrained(
            tmp_path / "m", output_loading_info=True
        )
        assert type(theirs).__name__ == kind and theirs.dtype == torch.float32
        assert not any(report.values()), report
        ours.zero_grad()
        assert compare(theirs.eval(), ours, member, kind) < TOLERANCE


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_there_and_back_is_the_same_bit_for_bit(name: str, kind: str, tmp_path: Path) -> None:
    theirs = theirs_of(family(name), kind)
    theirs.save_pretrained(tmp_path / "theirs")
    pretrained.save(pretrained.load(tmp_path / "theirs").model, None, tmp_path / "ours")
    back = getattr(transformers, kind).from_pretrained(tmp_path / "ours").state_dict()
    for key, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, back[key]), key


def test_the_comparison_notices_a_small_change(tmp_path: Path) -> None:
    """The negative control: one weight moved by a thousandth, or one key seen too many."""
    member = family("bert")
    theirs = theirs_of(member, "BertForMaskedLM")
    theirs.save_pretrained(tmp_path)
    model = pretrained.load(tmp_path).model
    with torch.no_grad():
        model.get_parameter("encoder.blocks.1.attention.query.weight")[0, 0] += 1e-3
    assert compare(theirs, model, member, "BertForMaskedLM") > TOLERANCE


# ------------------------------------------------------------------------------ variations
@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("BertForMaskedLM", {"tie_word_embeddings": False}),
        ("BertForMaskedLM", {"hidden_act": "gelu_new"}),
        ("BertForMaskedLM", {"hidden_act": "relu", "layer_norm_eps": 1e-5}),
        ("BertModel", {"hidden_act": "silu", "type_vocab_size": 5}),
        ("GPT2LMHeadModel", {"tie_word_embeddings": False}),
        ("GPT2LMHeadModel", {"activation_function": "gelu", "n_inner": None}),
        ("GPT2LMHeadModel", {"scale_attn_weights": False, "layer_norm_epsilon": 1e-3}),
        ("OpenAIGPTLMHeadModel", {"tie_word_embeddings": False, "afn": "relu"}),
        ("OpenAIGPTModel", {"afn": "silu", "layer_norm_epsilon": 1e-3}),
        ("T5ForConditionalGeneration", GATED),
        ("T5ForConditionalGeneration", {**GATED, "tie_word_embeddings": True}),
        ("T5EncoderModel", {"feed_forward_proj": "gated-silu", "layer_norm_epsilon": 1e-3}),
        ("T5Model", {"feed_forward_proj": "gelu", "num_decoder_layers": None}),
        ("BartForConditionalGeneration", {"scale_embedding": True}),
        ("BartModel", {"activation_function": "gelu_new"}),
        ("ModernBertForMaskedLM", {"tie_word_embeddings": False, "decoder_bias": False}),
        ("ModernBertForMaskedLM", {"classifier_activation": "silu", "hidden_activation": "relu"}),
        ("ModernBertForMaskedLM", {"norm_bias": True, "classifier_bias": True, "mlp_bias": True}),
        ("ModernBertModel", {"attention_bias": True, "layer_types": None, "local_attention": 7}),
    ],
)
def test_variations_within_a_family(kind: str, keys: dict[str, Any], tmp_path: Path) -> None:
    member = family(FAMILY[kind])
    theirs = theirs_of(member, kind, **keys)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = pretrained.load(tmp_path / "theirs").model
    assert compare(theirs, ours, member, kind) < TOLERANCE
    pretrained.save(ours, None, tmp_path / "ours")
    again = getattr(transformers, kind).from_pretrained(tmp_path / "ours").eval()
    ours.zero_grad()
    assert compare(again, ours, member, kind) < TOLERANCE


def test_a_projection_of_its_own_survives_their_saving(tmp_path: Path) -> None:
    """Their newer generation says `tied` of a T5 1.1 whose projection is not the token table."""
    member, kind = family("t5"), "T5ForConditionalGeneration"
    ours = model_of(small(member, kind, **GATED))
    pretrained.save(ours, None, tmp_path / "ours")
    theirs, report = getattr(transformers, kind).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(report.values()), report
    assert compare(theirs.eval(), ours, member, kind) < TOLERANCE
    theirs.save_pretrained(tmp_path / "theirs")
    again = pretrained.load(tmp_path / "theirs")
    assert again.config == ours.config
    theirs.zero_grad()
    assert compare(theirs, again.model, member, kind) < TOLERANCE


@pytest.mark.parametrize(
    "kind", ["BertForMaskedLM", "GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "ModernBertForMaskedLM"]
)
def test_packed_documents_are_as_documents_alone(kind: str, tmp_path: Path) -> None:
    """Several documents in a row, with positions that restart, against each of them by itself."""
    theirs = theirs_of(family(FAMILY[kind]), kind)
    theirs.save_pretrained(tmp_path)
    model = pretrained.load(tmp_path).model
    tokens = torch.randint(61, (1, 20), generator=torch.Generator().manual_seed(3))
    pieces = [(0, 7), (7, 12), (12, 17)]
    documents = torch.zeros(1, 20, dtype=torch.int32)
    positions = torch.zeros(1, 20, dtype=torch.int64)
    for number, (first, end) in enumerate(pieces, 1):
        documents[0, first:end] = number
        positions[0, first:end] = torch.arange(end - first)
    visible: AttentionMask | None = visible_of(documents)
    run = model.decode if model.encoder is None else model.encode
    with torch.no_grad():
        scores = model.logits(run(tokens, positions=positions, visible=visible))
        for first, end in pieces:
            alone = theirs(tokens[:, first:end]).logits
            assert apart(scores[:, first:end], alone) < TOLERANCE
