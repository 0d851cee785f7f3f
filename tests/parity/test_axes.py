"""Axes without a family around them, against transformers' own modules:
relative distances, unscaled attention, RMS norms, rotary positions, local windows, two stacks with
positions from an offset, and one set of weights for all layers.

Weights are copied by hand, name by name, into tiny random models; hidden states agree to 1e-5 of
the largest value.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from maskwright.model.nn.config import (
    Embeddings,
    FeedForward,
    Learned,
    Norm,
    Relative,
    Rotary,
    Tokens,
    TransformerConfig,
    VocabularyHead,
)
from maskwright.model.nn.mask import real
from maskwright.model.nn.transformer import Transformer
from nn.points import BARE, VOCABULARY, WIDTH, attention, block, config, stack, tokens

transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
pytestmark = pytest.mark.interop

KEEP = torch.tensor([[True] * 12, [True] * 9 + [False] * 3, [True] * 5 + [False] * 7])


def loaded(point: TransformerConfig, theirs: torch.nn.Module, names: dict[str, str]) -> Transformer:
    """Our model with the weights `{our name: their name}`; every one of ours must be given."""
    model = Transformer(point).eval()
    state = theirs.state_dict()
    model.load_state_dict({ours: state[name] for ours, name in names.items()})
    return model


def parts(ours: str, theirs: str, names: dict[str, str], bias: bool) -> dict[str, str]:
    ends = ("weight", "bias") if bias else ("weight",)
    return {f"{ours}.{a}.{end}": f"{theirs}.{b}.{end}" for a, b in names.items() for end in ends}


def same(ours: Tensor, theirs: Tensor, keep: Tensor | None = None) -> None:
    if keep is not None:
        ours, theirs = ours[keep], theirs[keep]
    assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()
    # Negative control: the measure is no wider than the difference of neighbouring positions.
    assert (ours[1:] - theirs[:-1]).abs().max() > 1e-2 * theirs.abs().max()


def spread(model: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + mean)
    return model.eval()


@pytest.mark.parametrize("gated", [False, True])
def test_relative_distances_in_two_stacks(gated: bool) -> None:
    theirs = spread(
        transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                vocab_size=VOCABULARY,
                d_model=WIDTH,
                d_kv=8,
                d_ff=32,
                num_layers=2,
                num_heads=2,
                feed_forward_proj="gated-gelu" if gated else "relu",
                dropout_rate=0.0,
                relative_attention_num_buckets=8,
                relative_attention_max_distance=10,
                decoder_start_token_id=0,
                pad_token_id=0,
            )
        )
    )
    bare = {"bias": False, "scaled": False}
    near = {"positions": Relative(buckets=8, max_distance=10), **bare}
    common = {
        "norm": Norm(kind="rms", eps=1e-6),
        "feed_forward": FeedForward(
            width=32, activation="gelu_new" if gated else "relu", gated=gated, bias=False
        ),
    }
    encoder = block(attention(**near), "pre", **common)
    decoder = block(attention("causal", **near), "pre", cross_attention=attention(**bare), **common)
    entry = {"embeddings": Embeddings(), "final_norm": True}
    point = config(
        encoder=stack(encoder, encoder, **entry),
        decoder=stack(decoder, decoder, **entry),
        vocabulary_head=VocabularyHead(scaled=True),
    )
    names = {"tokens.weight": "shared.weight"}
    mixer = {"query": "q", "key": "k", "value": "v", "output": "o"}
    inner = {"up": "wi_1", "gate": "wi_0", "down": "wo"} if gated else {"up": "wi", "down": "wo"}
    for side, crosses in (("encoder", False), ("decoder", True)):
        first = f"{side}.block.0.layer.0.SelfAttention"
        names[f"{side}.relative.weight"] = f"{first}.relative_attention_bias.weight"
        names[f"{side}.final_norm.weight"] = f"{side}.final_layer_norm.weight"
        for i in (0, 1):
            ours, other = f"{side}.blocks.{i}", f"{side}.block.{i}.layer"
            last = 2 if crosses else 1
            names |= parts(f"{ours}.attention", f"{other}.0.SelfAttention", mixer, False)
            names |= parts(f"{ours}.feed_forward", f"{other}.{last}.DenseReluDense", inner, False)
            names[f"{ours}.attention_norm.weight"] = f"{other}.0.layer_norm.weight"
            names[f"{ours}.feed_forward_norm.weight"] = f"{other}.{last}.layer_norm.weight"
            if crosses:
                names |= parts(
                    f"{ours}.cross_attention", f"{other}.1.EncDecAttention", mixer, False
                )
                names[f"{ours}.cross_attention_norm.weight"] = f"{other}.1.layer_norm.weight"
    model = loaded(point, theirs, names)
    out = theirs(
        input_ids=tokens(), attention_mask=KEEP.long(), decoder_input_ids=tokens(3, 10, seed=1)
    )
    memory = model.encode(tokens(), visible=real(KEEP))
    same(memory, out.encoder_last_hidden_state, KEEP)
    hidden = model.decode(tokens(3, 10, seed=1), memory=memory, memory_visible=real(KEEP))
    same(model.logits(hidden), out.logits)


def test_rotary_positions_and_local_windows() -> None:
    theirs = spread(
        transformers.ModernBertModel(
            transformers.ModernBertConfig(
                vocab_size=VOCABULARY,
                hidden_size=WIDTH,
                intermediate_size=24,
                num_hidden_layers=4,
                num_attention_heads=2,
                local_attention=4,
                global_attn_every_n_layers=3,
                global_rope_theta=100.0,
                local_rope_theta=10.0,
                pad_token_id=0,
            )
        )
    )
    inner = FeedForward(width=24, gated=True, bias=False)
    everywhere = block(
        attention(positions=Rotary(theta=100.0), bias=False), "pre", norm=BARE, feed_forward=inner
    )
    nearby = replace(
        everywhere,
        attention=attention(positions=Rotary(theta=10.0), window=(2, 2), bias=False),
    )
    blocks = (replace(everywhere, attention_norm=False), nearby, nearby, everywhere)
    point = config(
        encoder=stack(*blocks, embeddings=Embeddings(norm=BARE), final_norm=True),
        vocabulary_head=None,
    )
    model, state = Transformer(point).eval(), theirs.state_dict()
    ours = {
        "tokens.weight": state["embeddings.tok_embeddings.weight"],
        "encoder.embeddings.norm.weight": state["embeddings.norm.weight"],
        "encoder.final_norm.weight": state["final_norm.weight"],
    }
    for i in range(4):
        to, of = f"encoder.blocks.{i}", f"layers.{i}"
        for name, part in zip(
            ("query", "key", "value"), state[f"{of}.attn.Wqkv.weight"].chunk(3), strict=True
        ):
            ours[f"{to}.attention.{name}.weight"] = part
        for name, part in zip(("gate", "up"), state[f"{of}.mlp.Wi.weight"].chunk(2), strict=True):
            ours[f"{to}.feed_forward.{name}.weight"] = part
        ours[f"{to}.attention.output.weight"] = state[f"{of}.attn.Wo.weight"]
        ours[f"{to}.feed_forward.down.weight"] = state[f"{of}.mlp.Wo.weight"]
        ours[f"{to}.feed_forward_norm.weight"] = state[f"{of}.mlp_norm.weight"]
        if i:
            ours[f"{to}.attention_norm.weight"] = state[f"{of}.attn_norm.weight"]
    model.load_state_dict(ours)
    out = theirs(input_ids=tokens(), attention_mask=KEEP.long(), output_hidden_states=True)
    same(model.encode(tokens(), visible=real(KEEP)), out.last_hidden_state, KEEP)
    states = model.hidden_states(tokens(), visible=real(KEEP))
    assert len(states) == len(out.hidden_states)
    for mine, other in zip(states, out.hidden_states, strict=True):
        same(mine, other, KEEP)


def test_positions_from_an_offset_in_two_stacks() -> None:
    theirs = spread(
        transformers.BartModel(
            transformers.BartConfig(
                vocab_size=VOCABULARY,
                d_model=WIDTH,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=2,
                decoder_attention_heads=2,
                encoder_ffn_dim=32,
                decoder_ffn_dim=32,
                max_position_embeddings=16,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                decoder_start_token_id=2,
                forced_eos_token_id=None,
            )
        )
    )
    entry = {"embeddings": Embeddings(positions=Learned(length=16, offset=2), norm=Norm(eps=1e-5))}
    encoder = block(attention())
    decoder = block(attention("causal"), cross_attention=attention())
    point = config(
        encoder=stack(encoder, encoder, **entry),
        decoder=stack(decoder, decoder, **entry),
        vocabulary_head=None,
    )
    names = {"tokens.weight": "shared.weight"}
    mixer = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    for side, crosses in (("encoder", False), ("decoder", True)):
        names[f"{side}.embeddings.position.weight"] = f"{side}.embed_positions.weight"
        names |= parts(f"{side}.embeddings", side, {"norm": "layernorm_embedding"}, True)
        for i in (0, 1):
            ours, other = f"{side}.blocks.{i}", f"{side}.layers.{i}"
            names |= parts(f"{ours}.attention", f"{other}.self_attn", mixer, True)
            names |= parts(f"{ours}.feed_forward", other, {"up": "fc1", "down": "fc2"}, True)
            norms = {
                "attention_norm": "self_attn_layer_norm",
                "feed_forward_norm": "final_layer_norm",
            }
            if crosses:
                names |= parts(f"{ours}.cross_attention", f"{other}.encoder_attn", mixer, True)
                norms["cross_attention_norm"] = "encoder_attn_layer_norm"
            names |= parts(ours, other, norms, True)
    model = loaded(point, theirs, names)
    target = tokens(3, 10, seed=1)
    out = theirs(input_ids=tokens(), attention_mask=KEEP.long(), decoder_input_ids=target)
    memory = model.encode(tokens(), visible=real(KEEP))
    same(memory, out.encoder_last_hidden_state, KEEP)
    same(model.decode(target, memory=memory, memory_visible=real(KEEP)), out.last_hidden_state)


def test_one_set_of_weights_for_all_layers() -> None:
    theirs = spread(
        transformers.AlbertForMaskedLM(
            transformers.AlbertConfig(
                vocab_size=VOCABULARY,
                embedding_size=8,
                hidden_size=WIDTH,
                num_hidden_layers=3,
                num_attention_heads=2,
                intermediate_size=32,
                max_position_embeddings=24,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                pad_token_id=0,
            )
        )
    )
    exact = Norm(eps=1e-12)
    one = block(attention(), norm=exact, feed_forward=FeedForward(width=32, activation="gelu_new"))
    point = config(
        encoder=stack(
            one,
            one,
            one,
            weights_of=(0, 0, 0),
            embeddings=Embeddings(positions=Learned(length=24), segments=2, norm=exact),
        ),
        tokens=Tokens(vocabulary=VOCABULARY, width=8),
        vocabulary_head=VocabularyHead(transform="gelu_new", norm=exact, bias=True),
    )
    entry, layer = "albert.embeddings", "albert.encoder.albert_layer_groups.0.albert_layers.0"
    ours = "encoder.blocks.0"
    names = {
        "tokens.weight": f"{entry}.word_embeddings.weight",
        "encoder.embeddings.position.weight": f"{entry}.position_embeddings.weight",
        "encoder.embeddings.segment.weight": f"{entry}.token_type_embeddings.weight",
        "vocabulary_head.bias": "predictions.bias",
    }
    names |= parts("encoder.embeddings", entry, {"norm": "LayerNorm"}, True)
    names |= parts(
        "encoder.embeddings", "albert.encoder", {"project": "embedding_hidden_mapping_in"}, True
    )
    mixer = {"query": "query", "key": "key", "value": "value", "output": "dense"}
    names |= parts(f"{ours}.attention", f"{layer}.attention", mixer, True)
    names |= parts(ours, layer, {"feed_forward_norm": "full_layer_layer_norm"}, True)
    names |= parts(ours, f"{layer}.attention", {"attention_norm": "LayerNorm"}, True)
    names |= parts(f"{ours}.feed_forward", layer, {"up": "ffn", "down": "ffn_output"}, True)
    head = {"transform": "dense", "norm": "LayerNorm"}
    names |= parts("vocabulary_head", "predictions", head, True)
    model = loaded(point, theirs, names)
    segments = (torch.arange(12) > 5).long().expand(3, -1)
    out = theirs(input_ids=tokens(), attention_mask=KEEP.long(), token_type_ids=segments)
    hidden = model.encode(tokens(), segments=segments, visible=real(KEEP))
    same(model.logits(hidden), out.logits, KEEP)
