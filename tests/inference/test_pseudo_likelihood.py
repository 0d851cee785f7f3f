"""Each likelihood of a text against a loop that asks one token of one sentence at a time."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.model.inference import batches, held_out_loss
from maskwright.model.inference.likelihood import native, scores
from maskwright.model.inference.likelihood_prompts import METHODS
from maskwright.model.nn import mask
from maskwright.model.nn.config import (
    Embeddings,
    Head,
    Learned,
    Tokens,
    TransformerConfig,
    VocabularyHead,
)
from maskwright.model.nn.initialise import build
from maskwright.model.nn.transformer import Transformer
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from nn import points

TEXTS = ("the cat sat on the mat", "a dog ran", "unbelievable cats", "cats sat", "the old tree")
TEXTS += ("dogs unbelievably ran on", "the", "a dog ran", "")
SPANS = ("<pad>", "</s>", "<unk>", "<extra_id_0>")


@functools.cache
def tokenizer(style: str) -> Tokenizer:
    """Small vocabularies in which long words are in pieces; `spans` has sentinels and no mask."""
    marks: Any = {"specials": SPANS} if style == "spans" else {"style": style}
    choice = TokenizerChoice(kind="bpe", vocabulary=60, min_frequency=1, **marks)
    return train([*TEXTS, "abcdefghijklmnopqrstuvwxyz"] * 3, choice)


def model(kind: str, style: str = "bert") -> Transformer:
    block = points.block(points.attention("causal" if kind == "decoder" else "bidirectional"))
    stack = points.stack(block, block, embeddings=Embeddings(positions=Learned(length=40)))
    tokens = Tokens(vocabulary=tokenizer(style).vocabulary_size, width=points.WIDTH)
    if kind == "both":
        chosen = replace(points.POINTS["post-norm encoder-decoder"], tokens=tokens)
    elif kind == "detector":
        told = Head(name="told", kind="token", labels=1)
        chosen = TransformerConfig(width=points.WIDTH, tokens=tokens, encoder=stack, heads=(told,))
    else:
        head = VocabularyHead(bias=True)
        chosen = points.config(tokens=tokens, vocabulary_head=head, **{kind: stack})
    made = build(chosen, torch.Generator().manual_seed(1), deviation=0.4)
    for task in made.heads.values():
        torch.nn.init.normal_(task.weight, generator=torch.Generator().manual_seed(2))
    return made


@torch.no_grad()
def log_probability(network: Transformer, hidden: torch.Tensor, token: int) -> float:
    return float(network.logits(hidden).double().log_softmax(-1)[token])


@torch.no_grad()
def by_hand(network: Transformer, tok: Tokenizer, text: str, how: str) -> float:
    """One forward pass for each token; `how` is told from its name."""
    network.eval()
    ids, total = tok.encode(text), 0.0
    framed = tok.frame(ids)[0]
    begins = [i == 0 or tok.starts_word[t] or tok.ends_word[ids[i - 1]] for i, t in enumerate(ids)]
    words = np.cumsum(begins)
    for place, token in enumerate(ids):
        if how == "causal" and network.config.decoder is not None:
            start = tok.end if tok.end is not None else tok.separator
            hidden = network.decode(torch.tensor([[start, *ids[:place]]]))[0, -1]
        elif how == "causal":  # nothing after the place is even there
            read = torch.tensor([[framed[0], *ids[:place]]])
            hidden = network.encode(read, visible=mask.causal)[0, -1]
        elif how == "sequence-to-sequence":
            source = tok.frame([tok.mask if tok.mask is not None else tok.id(SPANS[3])])[0]
            before = [tok.pad, tok.id(SPANS[3])] if tok.mask is None else [tok.separator, framed[0]]
            memory = network.encode(torch.tensor([source]))
            hidden = network.decode(torch.tensor([before + ids[:place]]), memory=memory)[0, -1]
        elif how == "replaced":
            hidden = network.encode(torch.tensor([framed]))[0, 1 + place]
            total += float(torch.log1p(-torch.sigmoid(network.head("told", hidden).double()))[0])
            continue
        else:
            copy = list(framed)
            for other in range(place, len(ids)):
                together = how.endswith("within-word") and words[other] == words[place]
                if other == place or together:
                    copy[1 + other] = tok.mask
            at = place if how.startswith("masked-next") else 1 + place
            hidden = network.encode(torch.tensor([copy]))[0, at]
        total += log_probability(network, hidden, token)
    return total


CASES = [
    ("causal", "decoder", "gpt2"),
    ("causal", "decoder", "bert"),
    ("causal", "encoder", "bert"),
    ("masked", "encoder", "bert"),
    ("masked-within-word", "encoder", "bert"),
    ("masked-next", "encoder", "bert"),
    ("masked-next-within-word", "encoder", "bert"),
    ("sequence-to-sequence", "both", "bert"),
    ("sequence-to-sequence", "both", "spans"),
    ("replaced", "detector", "bert"),
]


@pytest.mark.parametrize(("how", "kind", "style"), CASES)
def test_every_method_equals_its_definition(how: str, kind: str, style: str) -> None:
    made, tok = model(kind, style), tokenizer(style)
    wanted = [by_hand(made, tok, text, how) for text in TEXTS]
    found = scores(made, tok, TEXTS, how)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert found[1] == found[7] and found[8] == 0.0
    assert len(set(np.round(found[:7], 3))) == 7  # the texts do differ
    if how.endswith("within-word"):
        assert len(tok.encode("unbelievable")) > 1, "else no word is in pieces"


def test_every_method_has_a_case() -> None:
    assert {how for how, _, _ in CASES} == set(METHODS)


@pytest.mark.parametrize(("how", "kind", "style"), CASES)
def test_order_and_batches_change_nothing(
    how: str, kind: str, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, tok = model(kind, style), tokenizer(style)
    whole = scores(made, tok, TEXTS, how)
    back = scores(made, tok, TEXTS[::-1], how)[::-1]
    alone = np.concatenate([scores(made, tok, [text], how) for text in TEXTS])
    monkeypatch.setattr(batches, "RAGGED", 20)
    monkeypatch.setattr(held_out_loss, "SCORES_AT_ONCE", 150)
    small = scores(made, tok, TEXTS, how)
    for other in (back, alone, small):
        np.testing.assert_allclose(other, whole, rtol=1e-5, atol=1e-5)


def test_the_score_of_a_masked_token_does_not_see_the_token() -> None:
    """The control of the oracle."""
    made, tok = model("encoder"), tokenizer("bert")
    ids = tok.encode("the cat")
    hidden = made.eval().encode(torch.tensor([tok.frame(ids)[0]]))[0]
    open_eyes = sum(log_probability(made, hidden[1 + i], t) for i, t in enumerate(ids))
    assert abs(open_eyes - by_hand(made, tok, "the cat", "masked")) > 1e-2


def test_half_precision_weights_are_scored_in_float32() -> None:
    made, tok = model("encoder").train(), tokenizer("bert")
    half = model("encoder").bfloat16()
    rounded = model("encoder").bfloat16().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = scores(half, tok, TEXTS)
    np.testing.assert_array_equal(found, scores(rounded, tok, TEXTS))
    assert half.tokens.weight.dtype == torch.bfloat16
    scores(made, tok, TEXTS)
    assert made.training


def test_the_native_method_follows_from_the_shape() -> None:
    found = [native(model(kind)) for kind in ("encoder", "decoder", "both", "detector")]
    assert found == ["masked", "causal", "sequence-to-sequence", "replaced"]
    bare = replace(model("encoder").config, vocabulary_head=None)
    with pytest.raises(IncompatibleError, match="model"):
        native(Transformer(bare))


@pytest.mark.parametrize(
    ("how", "kind", "style", "says"),
    [
        ("masked", "decoder", "bert", "an encoder"),
        ("masked", "encoder", "gpt2", "a mask token"),
        ("masked", "detector", "bert", "a vocabulary head"),
        ("causal", "both", "bert", "a single stack"),
        ("replaced", "encoder", "bert", "one score per token"),
        ("sequence-to-sequence", "encoder", "bert", "an encoder and a decoder"),
        ("sequence-to-sequence", "both", "gpt2", "<extra_id_0>"),
    ],
)
def test_what_cannot_be_asked_is_refused(how: str, kind: str, style: str, says: str) -> None:
    with pytest.raises(IncompatibleError, match=says):
        scores(model(kind, style), tokenizer(style), ["the"], how)


@pytest.mark.parametrize(("text", "how"), [("the", "maskd"), ("the cat " * 30, "masked")])
def test_unknown_methods_and_long_texts_are_refused(text: str, how: str) -> None:
    with pytest.raises(UsageError):
        scores(model("encoder"), tokenizer("bert"), [text], how)
