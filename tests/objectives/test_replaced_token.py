"""Replaced-token detection: what is put into the holes, who judges it, what is shared."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from torch.nn import functional

from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.families.base.family import family
from maskwright.model.nn.config import Head
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.masked import Options as Masking
from maskwright.model.objectives.modules.replaced_token import (
    ReplacedToken,
    generator_config,
    share_embeddings,
)
from nn.points import POINTS
from objectives.by_hand import corrupted, discriminator, framed, make, of, rows_of
from toys import CLS, PAD, SEP, VOCABULARY, bert


def objective(**options: object) -> ReplacedToken:
    return make("replaced-token", discriminator(), **options).eval()


def shout(made: ReplacedToken, token: int) -> None:
    head = made.generator.vocabulary_head
    with torch.no_grad():
        head.bias.zero_()
        head.bias[token] = 1e4


def of_sevens(*text: int) -> tuple[ReplacedToken, Batch]:
    """A generator that puts 7 into every hole, and all of this text as holes."""
    made = objective(masking=Masking(rate=1.0, mask_rate=0.85, random_rate=0.0))
    shout(made, 7)
    return made, corrupted(made, rows_of([CLS, *text, SEP, PAD]))


def test_a_row_by_hand() -> None:
    """Where 7 stood before, nothing was replaced; all but the padding is decided."""
    made, batch = of_sevens(7, 8, 7, 9, 7, 7, 10)
    _, filled, put = made.fill(batch)
    assert filled.tokens.tolist() == [[CLS, 7, 7, 7, 7, 7, 7, 7, SEP, PAD]]
    assert put.tolist() == [[0, 0, 1, 0, 1, 0, 0, 1, 0, 0]]
    assert made.counts(batch) == {"masked": 7, "replaced": 9}
    scores, truth = made.decisions(batch)
    assert truth.tolist() == put[0, :-1].bool().tolist()
    loss = functional.binary_cross_entropy_with_logits(scores, truth.float(), reduction="sum")
    torch.testing.assert_close(loss, made(batch).parts["replaced"].total)


def test_the_loss_by_hand() -> None:
    """A judge that always says 0.8 "replaced", two of nine replaced: 2 · -ln 0.8 + 7 · -ln 0.2."""
    made, batch = of_sevens(7, 8, 7, 9, 7, 7, 7)
    judge = made.product.heads["discriminator"]
    with torch.no_grad():
        judge.weight.zero_()
        judge.bias.fill_(log(0.8 / 0.2))
        part = made(batch).parts["replaced"]
    assert float(part.total) == pytest.approx(-2 * log(0.8) - 7 * log(0.2), rel=1e-5)
    assert part.weight == 50.0


def test_drawn_tokens_follow_the_generator_and_their_keys() -> None:
    rows = framed(600, 32)
    made = objective()
    batch = corrupted(made, rows)
    with torch.no_grad():
        drawn = made.fill(batch)[1].tokens.reshape(-1)[batch.index]
        states = made.generator.logits(made.target_states(batch))
        shares = states.softmax(-1).mean(0)
        n = len(drawn)
        got = torch.bincount(drawn, minlength=VOCABULARY.size) / n
        assert ((got - shares).abs() < 5 * (shares * (1 - shares) / n).sqrt()).all()
        # Any split of the batch draws the same.
        some = rows.take(np.arange(40, 60))
        part = made.fill(corrupted(made, some))[1].tokens
        assert torch.equal(part, made.fill(batch)[1].tokens[40:60])
    again = corrupted(made, rows, 1)
    assert again.uniforms is not None and again.uniforms[0] != batch.uniforms[0]
    u = batch.uniforms
    assert abs(float(u.mean()) - 0.5) < 4 / np.sqrt(12 * len(u)) and u.min() >= 0 and u.max() < 1


def test_no_gradient_runs_from_the_judge_to_the_generator() -> None:
    rows = framed(4, 32)
    made = objective()
    parts = made(corrupted(made, rows)).parts
    own = [p for n, p in made.named_parameters() if n.startswith("generator.")]
    tied = [made.product.tokens.weight]
    judged = torch.autograd.grad(parts["replaced"].total, own + tied, allow_unused=True)
    assert all(g is None for g in judged[:-1]) and judged[-1] is not None
    learned = torch.autograd.grad(parts["masked"].total, own + tied, allow_unused=True)
    assert all(g is not None for g in learned)
    # And none of the generator's loss to the judge's own layers.
    layers = [p for n, p in made.product.named_parameters() if ".blocks." in n]
    parts = made(corrupted(made, rows)).parts
    reached = torch.autograd.grad(parts["masked"].total, layers, allow_unused=True)
    assert all(gradient is None for gradient in reached)


def test_tables_and_their_norm_are_one() -> None:
    made = objective()
    ours, theirs = made.product, made.generator
    assert theirs.tokens is ours.tokens
    for part in ("position", "segment", "norm"):
        shared = getattr(ours.encoder.embeddings, part)
        assert shared is not None and getattr(theirs.encoder.embeddings, part) is shared


@pytest.mark.parametrize(
    ("size", "share", "width", "heads", "inner", "extra"),
    [
        ("small", 1 / 4, 64, 1, 256, 647_162),
        ("base", 1 / 3, 256, 4, 1024, 33_740_602 - (30_522 + 512 + 2 + 2) * 768),
    ],
)
def test_published_generators(
    size: str, share: float, width: int, heads: int, inner: int, extra: int
) -> None:
    """`extra`: what they add to the parameters of the discriminator, whose tables they share."""
    config = family("electra").size(size, "ElectraForPreTraining")
    made = generator_config(config, share)
    assert (made.width, made.encoder.blocks[0].attention.heads) == (width, heads)
    assert made.encoder.blocks[0].feed_forward.width == inner
    with torch.device("meta"):
        model = Transformer(config)
        generator = share_embeddings(Transformer(made), model)
    shared = {id(p) for p in model.parameters()}
    assert sum(p.numel() for p in generator.parameters() if id(p) not in shared) == extra


@pytest.mark.parametrize(
    "name", ["post-norm encoder", "shared narrow encoder", "rotary alternating encoder"]
)
def test_any_encoder_has_a_generator(name: str) -> None:
    point = replace(
        POINTS[name],
        vocabulary_head=None,
        pooler=False,
        heads=(Head(name="judge", kind="token", labels=1),),
        tokens=replace(POINTS[name].tokens, vocabulary=VOCABULARY.size),
    )
    made = make("replaced-token", of(point), generator_layers=0.5)
    batch = corrupted(made, framed(4, 16))
    assert torch.isfinite(made(batch).scaled(made.counts(batch)))


def test_a_model_without_a_detector_is_refused() -> None:
    with pytest.raises(IncompatibleError) as refused:
        make("replaced-token", bert())
    assert refused.value.where == "model.heads"
