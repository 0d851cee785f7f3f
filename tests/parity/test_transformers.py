"""transformers, live: its models are ours and ours are its, to 1e-5 in float32.

Tiny random models of every architecture, with padding and segments: scores, all hidden states and
all gradients, relative to the largest value of each. Theirs are saved and loaded by us; ours are
saved and loaded by them through the classes a user would call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from checkpoint.small import SMALL, TEXTS, THEIRS, model_of, readable, small
from maskwright.model.checkpoint import pretrained
from maskwright.model.families.base import weights
from maskwright.model.families.base.family import Family, family
from maskwright.model.nn.config import Patches, Rotary, TransformerConfig
from maskwright.model.nn.mask import AttentionMask, real, visible_of
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.spec import member_of
from maskwright.model.opening import special_tokens
from maskwright.text.store.rows import Rows

transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
pytestmark = pytest.mark.interop

TOLERANCE = 1e-5
ROWS, LENGTH = 4, 13
# Their table gives the row of the padding token no gradient: here a token that no row has, as 1.
NO_IDS = {"pad_token_id": 60, "bos_token_id": None, "eos_token_id": None}
KINDS = [(name, kind) for name in THEIRS for kind in family(name).architectures]
AUTO = {
    "Model": "AutoModel",
    "EncoderModel": "AutoModelForTextEncoding",
    "LMHeadModel": "AutoModelForCausalLM",
    "ForConditionalGeneration": "AutoModelForSeq2SeqLM",
}
CHOICES, END = 2, 59
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
# Before 5.0, a query whose window has only padding got the mean of all values, where ours are 0;
# states of ModernBERT ended before the final norm; only eager kernels read `scale_attn_weights`.
OLDER = transformers.__version__.startswith("4.")
EAGER = {"attn_implementation": "eager"} if OLDER else {}
# What the comparison of hidden states has seen, or nothing of ours.
ELSEWHERE = {"past_key_values", "encoder_last_hidden_state", "loss"}
# Biases that the softmax does not see, unless they are turned: their gradient is all rounding.
UNFELT = ("key.bias", "key_global.bias", "k_lin.bias", "k_proj.bias")


def apart(ours: Tensor, theirs: Tensor, keep: Tensor | None = None) -> float:
    """The largest difference, relative to the largest value; of states where `keep` is true."""
    assert ours.shape == theirs.shape
    if keep is not None and ours.shape[:2] == keep.shape:
        ours, theirs = ours[keep], theirs[keep]
    return float((ours - theirs).detach().abs().max() / theirs.detach().abs().max())


def entrance(kind: str) -> str:
    """The class through which a user loads a folder of that architecture."""
    ends = [end for end in AUTO if kind.endswith(end)]
    return AUTO[max(ends, key=len)] if ends else f"AutoModelFor{kind.partition('For')[2]}"


def theirs_of(member: Family, kind: str, **keys: Any) -> Any:
    """A random model of theirs: every parameter moved, so that none is a plain 0 or 1."""
    torch.manual_seed(0)
    chosen = {**NO_IDS, **SMALL[member.name], **EAGER, **keys}
    if not kind.endswith("Classification"):
        chosen.pop("id2label", None)
    config = transformers.CONFIG_MAPPING[member.name](**chosen)
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def inputs(config: TransformerConfig) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The same batch for both: rows of several lengths, two segments; choices stand in pairs. A
    class that pools the last state of a decoder finds it by the padding or the end token."""
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(2, 60, (ROWS, LENGTH), generator=draw)
    if isinstance(config.tokens, Patches):
        return images(config.tokens, readable(model_of(config), tokens))
    lengths = torch.tensor([LENGTH, 9, 1, 5])
    blocks = None if config.encoder is None else config.encoder.blocks[0].attention.blocks
    if blocks is not None and blocks.splits(LENGTH):
        lengths[:] = LENGTH  # their blocks are those of the padded row
    keep = torch.arange(LENGTH)[None] < lengths[:, None]
    last = config.decoder is not None and any(head.pools for head in config.heads)
    if last:
        tokens = tokens.clamp(max=END - 1)
        tokens[:, -1] = END
    rule = None if config.encoder is None else config.encoder.global_tokens
    if rule is not None and rule.which in ("question", "answer"):
        tokens[tokens == rule.separator] = 3
        tokens[:, [3, 4, LENGTH - 1]] = rule.separator
    theirs = {"input_ids": tokens, "attention_mask": keep.long()}
    ours: dict[str, Any] = {"tokens": tokens, "visible": real(keep)}
    if rule is not None:  # their padding has attention outputs of zero
        ours["visible"] = visible_of(keep.to(torch.int32))
    by_head = config.decoder is None and any(head.kind != "token" for head in config.heads)
    if rule is not None and rule.which != "none" and not by_head:
        chosen = torch.zeros_like(tokens)
        chosen[:, : 1 if rule.which == "first" else 3] = 1
        theirs["global_attention_mask"] = chosen
    if config.encoder is not None and config.encoder.embeddings.segments > 1:
        segments = (torch.arange(LENGTH)[None] >= lengths[:, None] // 2).long()
        theirs["token_type_ids"] = ours["segments"] = segments
    if any(head.kind == "choice" for head in config.heads):
        theirs = {name: tensor.unflatten(0, (-1, CHOICES)) for name, tensor in theirs.items()}
    if len(config.stacks) == 2:
        width = LENGTH if last else LENGTH - 2
        target = torch.randint(2, 60, (ROWS, width), generator=draw)
        written = torch.arange(width)[None] < torch.tensor([[8], [1], [11], [4]])
        theirs |= {"decoder_input_ids": target, "decoder_attention_mask": written.long()}
        ours["target"], ours["target_visible"] = target, real(written)
        ours["memory_visible"] = real(keep)
    return theirs, ours


def images(patches: Patches, rows: Tensor) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Values of patches, and the images (B, C, H, W) that they are of."""
    across, edge = patches.image_size // patches.patch_size, patches.patch_size
    grid = rows[:, 1:].unflatten(1, (across, across)).unflatten(3, (patches.channels, edge, edge))
    pixels = grid.permute(0, 3, 1, 4, 2, 5).flatten(2, 3).flatten(3, 4)
    hidden = {"bool_masked_pos": rows[:, 1:, 0].isnan().long()} if patches.mask else {}
    return {"pixel_values": pixels.nan_to_num(), **hidden}, {"tokens": rows}


def states_of(model: Transformer, given: dict[str, Any]) -> dict[str, list[Tensor]]:
    """Our hidden states under the names of their outputs."""
    given = dict(given)
    names = ("target", "target_visible", "memory_visible")
    target, visible, memory_visible = (given.pop(name, None) for name in names)
    states = model.hidden_states(**given)
    if target is None:
        return {"hidden_states": states}
    seen = {"memory": states[-1], "memory_visible": memory_visible}
    written = model.hidden_states(target, visible=visible, **seen)
    return {"encoder_hidden_states": states, "decoder_hidden_states": written}


def outputs(model: Transformer, hidden: Tensor, names: Collection[str]) -> dict[str, Tensor]:
    """Our scores under `names`, those of their outputs."""
    heads = model.config.heads
    if model.vocabulary_head is None and not heads:
        pooled = {} if model.pooler is None else {"pooler_output": model.pool(hidden[:, 0])}
        return {"last_hidden_state": hidden, **pooled}
    if model.vocabulary_head is not None and not heads:
        return {"logits": model.logits(hidden)}
    (head,) = heads
    place = 0 if model.decoder is None else -1
    scores = model.head(head.name, hidden[:, place] if head.pools else hidden)
    if head.kind == "span":
        return {"start_logits": scores[..., 0], "end_logits": scores[..., 1]}
    if head.kind == "choice":
        scores = scores.view(-1, CHOICES)
    if head.kind == "patch":
        assert isinstance(model.config.tokens, Patches)
        return {"reconstruction": images(model.config.tokens, scores)[0]["pixel_values"]}
    if head.kind == "token" and head.labels == 1:
        scores = scores.squeeze(-1)
    if model.vocabulary_head is None:
        return {"logits": scores}
    (pair,) = {"seq_relationship_logits", "sop_logits"}.intersection(names)
    return {"prediction_logits": model.logits(hidden), pair: scores}


def compare(theirs: Any, ours: Transformer, member: Family) -> float:
    """The largest relative difference over hidden states, scores and gradients."""
    return max(differences(theirs, ours, member).values())


def differences(theirs: Any, ours: Transformer, member: Family) -> dict[str, float]:
    """The largest relative difference of each kind."""
    their_inputs, our_inputs = inputs(ours.config)
    if ours.decoder is not None:
        theirs.config.eos_token_id, theirs.config.pad_token_id = END, NO_IDS["pad_token_id"]
    reference = theirs(**their_inputs, output_hidden_states=True)
    found = states_of(ours, our_inputs)
    last = [*found.values()][-1][-1]
    before_norm = isinstance(ours.config.tokens, Patches) or (OLDER and member.name == "modernbert")
    if before_norm:  # theirs ends before the final norm
        found = {name: states[:-1] for name, states in found.items()}
        reference["hidden_states"] = reference["hidden_states"][:-1]
    keep = None
    if OLDER and ours.decoder is None and "attention_mask" in their_inputs:
        keep = their_inputs["attention_mask"].flatten(0, -2).bool()
    pairs = [pair for n, states in found.items() for pair in zip(states, reference[n], strict=True)]
    worst = {"hidden states": max(apart(*pair, keep) for pair in pairs)}
    results = outputs(ours, last, reference.keys())
    assert results.keys() == reference.keys() - found.keys() - ELSEWHERE
    # One number from all scores, so that every parameter gets a gradient.
    draw = torch.Generator().manual_seed(2)
    total, their_total = torch.zeros(()), torch.zeros(())
    for name, scores in results.items():
        worst["scores"] = max(worst.get("scores", 0.0), apart(scores, reference[name], keep))
        mix = torch.randn(scores.shape, generator=draw)
        if keep is not None and mix.shape[:2] == keep.shape:
            mix[~keep] = 0
        total = total + (scores * mix).sum()
        their_total = their_total + (reference[name] * mix).sum()
    total.backward()
    their_total.backward()
    gradients = {
        n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in ours.named_parameters()
    }
    rules = member.weights(ours.config)
    named = weights.save(rules, gradients, torch.cat)
    aliases = [rule for rule in rules if isinstance(rule, weights.Tie) and rule.ours in gradients]
    named |= {rule.theirs: gradients[rule.ours] for rule in aliases}
    stack = ours.config.decoder or ours.config.encoder
    turned = stack is not None and isinstance(stack.blocks[0].attention.positions, Rotary)
    compared = unfelt = 0
    for name, parameter in theirs.named_parameters():
        if parameter.grad is None or name.endswith("decoder.bias"):
            continue
        if name.endswith(UNFELT) and not turned:
            assert named[name].abs().max() < 1e-4
            unfelt += 1
            continue
        gradient = apart(named[name], parameter.grad)
        worst["gradients"] = max(worst.get("gradients", 0.0), gradient)
        compared += 1
    unread = ("_global.", "pooler.")
    still = {
        n for n, p in ours.named_parameters() if p.grad is None and any(u in n for u in unread)
    }
    assert compared + unfelt + len(still) >= len(list(theirs.parameters())) - 2
    return worst


# ------------------------------------------------------------------------------ both directions
def we_load_theirs(name: str, kind: str, folder: Path) -> dict[str, float]:
    """Their model, saved by them and read by us."""
    member = family(name)
    theirs = theirs_of(member, kind)
    theirs.save_pretrained(folder)
    loaded = pretrained.load(folder)
    assert loaded.unused == () and member.architecture(loaded.config) == kind
    assert loaded.model.num_parameters() == theirs.num_parameters()
    return differences(theirs, loaded.model, member)


def they_load_ours(name: str, kind: str, folder: Path) -> dict[str, float]:
    """Our model, saved by us and read by their class and by the one that finds it."""
    member = family(name)
    ours = model_of(small(member, kind))
    pretrained.save(ours, None, folder)
    for name_of_class in (entrance(kind), kind):
        theirs, report = getattr(transformers, name_of_class).from_pretrained(
            folder, output_loading_info=True
        )
        assert type(theirs).__name__ == kind and theirs.dtype == torch.float32
        assert not any(report.values()), report
    return differences(theirs.eval(), ours, member)


@pytest.mark.parametrize("direction", [we_load_theirs, they_load_ours])
@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_both_compute_the_same(
    name: str, kind: str, direction: Callable[..., dict[str, float]], tmp_path: Path
) -> None:
    found = direction(name, kind, tmp_path / "model")
    assert set(found) == {"hidden states", "scores", "gradients"}
    assert max(found.values()) < TOLERANCE, found


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_there_and_back_is_the_same_bit_for_bit(name: str, kind: str, tmp_path: Path) -> None:
    theirs = theirs_of(family(name), kind)
    theirs.save_pretrained(tmp_path / "theirs")
    pretrained.save(pretrained.load(tmp_path / "theirs").model, None, tmp_path / "ours")
    back = getattr(transformers, kind).from_pretrained(tmp_path / "ours").state_dict()
    for key, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, back[key]), key


def test_the_loss_of_hidden_patches_is_theirs(tmp_path: Path) -> None:
    theirs = theirs_of(family("vit"), "ViTForMaskedImageModeling")
    theirs.save_pretrained(tmp_path)
    ours = pretrained.load(tmp_path).model
    member = member_of("masked-image")
    objective = member.build(ours, member.options(), special_tokens.vocabulary(None))
    pixels = np.random.default_rng(0).integers(0, 256, (ROWS, 8 * 8 * 2))
    names = ("positions", "documents", "special", "starts_word")
    unread: dict[str, Any] = dict.fromkeys(names, np.zeros((ROWS, 0), np.int64))
    clean = Rows(tokens=pixels, ids=np.arange(ROWS), **unread)
    batch = objective.corrupt(clean, np.zeros(ROWS, np.int64), 0)
    assert isinstance(ours.config.tokens, Patches)
    given = images(ours.config.tokens, batch.tokens)[0]
    values = torch.from_numpy(pixels.reshape(ROWS, 8, 8, 2) / 255).float()
    given["pixel_values"] = values.permute(0, 3, 1, 2)
    loss = objective(batch).scaled(objective.counts(batch))
    assert float(loss.detach()) == pytest.approx(float(theirs(**given).loss.detach()), abs=1e-6)
    given["bool_masked_pos"] = given["bool_masked_pos"].roll(1, 1)  # the control
    assert float(loss.detach()) != pytest.approx(float(theirs(**given).loss.detach()), abs=1e-5)


def test_the_comparison_notices_a_small_change(tmp_path: Path) -> None:
    """The negative control: one weight moved by a thousandth, or one key seen too many."""
    member = family("bert")
    theirs = theirs_of(member, "BertForMaskedLM")
    theirs.save_pretrained(tmp_path)
    model = pretrained.load(tmp_path).model
    with torch.no_grad():
        model.get_parameter("encoder.blocks.1.attention.query.weight")[0, 0] += 1e-3
    assert compare(theirs, model, member) > TOLERANCE


# ------------------------------------------------------------------------------ variations
@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("BertForMaskedLM", {"tie_word_embeddings": False}),
        ("BertForMaskedLM", {"hidden_act": "gelu_new"}),
        ("BertForMaskedLM", {"hidden_act": "relu", "layer_norm_eps": 1e-5}),
        ("BertModel", {"hidden_act": "silu", "type_vocab_size": 5}),
        ("RobertaForMaskedLM", {"tie_word_embeddings": False}),
        ("RobertaForMaskedLM", {"hidden_act": "relu", "pad_token_id": 0, "type_vocab_size": 2}),
        ("RobertaForSequenceClassification", {"id2label": {0: "score"}, "pad_token_id": 0}),
        ("ElectraForMaskedLM", {"tie_word_embeddings": False}),
        ("ElectraForMaskedLM", {"hidden_act": "relu", "type_vocab_size": 3}),
        ("ElectraForPreTraining", {"hidden_act": "relu", "embedding_size": 24}),
        ("ElectraForSequenceClassification", {"hidden_act": "gelu_new", "embedding_size": 40}),
        ("AlbertForMaskedLM", {"tie_word_embeddings": False}),
        ("AlbertForPreTraining", {"hidden_act": "relu", "embedding_size": 40}),
        ("DistilBertForMaskedLM", {"tie_word_embeddings": False, "activation": "relu"}),
        ("DistilBertModel", {"sinusoidal_pos_embds": True}),
        ("GPT2LMHeadModel", {"tie_word_embeddings": False}),
        ("GPT2LMHeadModel", {"activation_function": "gelu", "n_inner": None}),
        ("GPT2LMHeadModel", {"scale_attn_weights": False, "layer_norm_epsilon": 1e-3}),
        ("OpenAIGPTLMHeadModel", {"tie_word_embeddings": False, "afn": "relu"}),
        ("OpenAIGPTModel", {"afn": "silu", "layer_norm_epsilon": 1e-3}),
        ("LlamaForCausalLM", {"tie_word_embeddings": True, "num_key_value_heads": 1}),
        ("LlamaForCausalLM", {"num_key_value_heads": None, "head_dim": None, "mlp_bias": True}),
        ("LlamaModel", {"attention_bias": True, "hidden_act": "gelu", "rms_norm_eps": 1e-3}),
        ("T5ForConditionalGeneration", GATED),
        ("T5ForConditionalGeneration", {**GATED, "tie_word_embeddings": True}),
        ("T5EncoderModel", {"feed_forward_proj": "gated-silu", "layer_norm_epsilon": 1e-3}),
        ("T5Model", {"feed_forward_proj": "gelu", "num_decoder_layers": None}),
        ("BartForConditionalGeneration", {"scale_embedding": True}),
        ("BartModel", {"activation_function": "gelu_new"}),
        ("LEDModel", {"attention_window": [4, 8, 16], "global_attention": "none"}),
        ("LongformerForMaskedLM", {"attention_window": 40, "global_attention": "first"}),
        (
            "LongformerModel",
            {"attention_window": [4, 8, 4], "pad_token_id": 0, "type_vocab_size": 3},
        ),
        ("LongformerForTokenClassification", {"global_attention": "first"}),
        ("BigBirdForMaskedLM", {"tie_word_embeddings": False, "rescale_embeddings": True}),
        ("BigBirdForTokenClassification", {"attention_type": "original_full", "block_size": 1}),
        ("ModernBertForMaskedLM", {"tie_word_embeddings": False, "decoder_bias": False}),
        ("ModernBertForMaskedLM", {"classifier_activation": "silu", "hidden_activation": "relu"}),
        ("ModernBertForMaskedLM", {"norm_bias": True, "classifier_bias": True, "mlp_bias": True}),
        ("ModernBertModel", {"attention_bias": True, "layer_types": None, "local_attention": 7}),
    ],
)
def test_variations_within_a_family(kind: str, keys: dict[str, Any], tmp_path: Path) -> None:
    member = next(m for m in map(family, THEIRS) if kind in m.architectures)
    theirs = theirs_of(member, kind, **keys)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = pretrained.load(tmp_path / "theirs").model
    assert compare(theirs, ours, member) < TOLERANCE
    pretrained.save(ours, None, tmp_path / "ours")
    again = getattr(transformers, kind).from_pretrained(tmp_path / "ours", **EAGER).eval()
    ours.zero_grad()
    assert compare(again, ours, member) < TOLERANCE


BLOCKS = {"block_size": 1, "num_random_blocks": 2, "num_attention_heads": 2}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", [kind for name, kind in KINDS if name == "big_bird"])
def test_blocks_of_long_texts(kind: str, training: bool, tmp_path: Path) -> None:
    """In training with random blocks of each head and layer, in evaluation with the first block
    more often; NumPy's stream stays as it was. The control is the other mode."""
    member = family("big_bird")
    theirs = theirs_of(member, kind, **BLOCKS, **NO_DROPOUT).train(training)
    theirs.save_pretrained(tmp_path)
    ours = pretrained.load(tmp_path).model.train(training)
    before = np.random.get_state()[1].tolist()
    with torch.no_grad():
        ours.encode(torch.ones(1, LENGTH, dtype=torch.long))
    assert np.random.get_state()[1].tolist() == before
    assert compare(theirs, ours, member) < TOLERANCE
    assert compare(theirs, ours.train(not training), member) > 100 * TOLERANCE


@pytest.mark.parametrize("length", [992, 1020, 1024])
def test_random_blocks_are_theirs(length: int, tmp_path: Path) -> None:
    """Lengths of the paper have a plan of their own, in which a block may be drawn that is seen
    already; the states at some positions come from the matrix of all queries and keys."""
    keys = {"block_size": 32, "num_random_blocks": 2, "max_position_embeddings": 1024}
    theirs = theirs_of(family("big_bird"), "BigBirdModel", **keys, **NO_DROPOUT).train()
    theirs.save_pretrained(tmp_path)
    ours = pretrained.load(tmp_path).model.train()
    tokens = torch.randint(2, 60, (1, length), generator=torch.Generator().manual_seed(5))
    at = torch.arange(0, length, 31)
    with torch.no_grad():
        reference = theirs(tokens).last_hidden_state
        assert apart(ours.encode(tokens), reference) < TOLERANCE
        assert apart(ours.encode(tokens, at=at), reference[0, at]) < TOLERANCE


def test_a_projection_of_its_own_survives_their_saving(tmp_path: Path) -> None:
    """Their newer generation says `tied` of a T5 1.1 whose projection is not the token table."""
    member, kind = family("t5"), "T5ForConditionalGeneration"
    ours = model_of(small(member, kind, **GATED))
    pretrained.save(ours, None, tmp_path / "ours")
    theirs, report = getattr(transformers, kind).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(report.values()), report
    assert compare(theirs.eval(), ours, member) < TOLERANCE
    theirs.save_pretrained(tmp_path / "theirs")
    again = pretrained.load(tmp_path / "theirs")
    assert again.config == ours.config
    theirs.zero_grad()
    assert compare(theirs, again.model, member) < TOLERANCE


@pytest.mark.parametrize(
    "name", [n for n in THEIRS if n in TEXTS and len(small(family(n)).stacks) == 1]
)
def test_packed_documents_are_as_documents_alone(name: str, tmp_path: Path) -> None:
    """Several documents in a row, with positions that restart, against each of them by itself."""
    member = family(name)
    theirs = theirs_of(member, next(k for k, kit in member.architectures.items() if kit.vocabulary))
    theirs.save_pretrained(tmp_path)
    model = pretrained.load(tmp_path).model
    tokens = torch.randint(2, 60, (1, 20), generator=torch.Generator().manual_seed(3))
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
