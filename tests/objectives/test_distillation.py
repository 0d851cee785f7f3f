"""Distillation: layers, losses by hand, a teacher that never moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from maskwright.base.errors import ConfigError, IncompatibleError
from maskwright.model.nn.config import Block, TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import encode
from maskwright.model.objectives.modules.distillation import (
    Distillation,
    alternate_layers,
    start_from,
)
from objectives.by_hand import corrupted, framed, make, of
from toys import bert, gpt2


def with_layers(config: TransformerConfig, blocks: Sequence[Block]) -> TransformerConfig:
    """The config with these layers, each with weights of its own."""
    ((name, stack),) = config.stacks.items()
    layers = replace(stack, blocks=tuple(blocks), weights_of=tuple(range(len(blocks))))
    return replace(config, **{name: layers})


def deep(model: Transformer, count: int) -> TransformerConfig:
    """The model's config with `count` layers, and dropout."""
    (stack,) = model.config.stacks.values()
    return with_layers(model.config, [replace(stack.blocks[0], dropout=0.1)] * count)


def student_config(teacher: TransformerConfig, kept: int) -> TransformerConfig:
    (stack,) = teacher.stacks.values()
    chosen = alternate_layers(len(stack.blocks), kept)
    return with_layers(teacher, [stack.blocks[i] for i in chosen])


def equal(one: nn.Module, other: nn.Module) -> bool:
    weights = dict(other.named_parameters())
    return all(torch.equal(weight, weights[name]) for name, weight in one.named_parameters())


def distillation(**options: object) -> Distillation:
    teacher = of(deep(bert(), 4), seed=1, deviation=0.4)
    student = of(student_config(teacher.config, 2))
    return make("distillation", student, {"teacher": teacher}, teacher="there", **options)


@pytest.mark.parametrize(
    ("count", "kept", "layers"),
    [(12, 6, (0, 2, 4, 7, 9, 11)), (24, 2, (0, 23)), (4, 4, (0, 1, 2, 3)), (6, 1, (0,))],
)
def test_alternate_layers(count: int, kept: int, layers: tuple[int, ...]) -> None:
    assert alternate_layers(count, kept) == layers


def test_a_student_is_its_teachers_layers() -> None:
    teacher = of(deep(bert(), 12), seed=3, deviation=0.3).eval()
    student = of(student_config(teacher.config, 6)).eval()
    before = student.logits(student.encode(torch.arange(5, 17)[None]))
    start_from(student, teacher)
    for own, layer in enumerate((0, 2, 4, 7, 9, 11)):
        assert equal(student.encoder.blocks[str(own)], teacher.encoder.blocks[str(layer)])
    after = student.logits(student.encode(torch.arange(5, 17)[None]))
    assert torch.equal(student.tokens.weight, teacher.tokens.weight)
    assert not torch.allclose(before, after)


def silu(block: Block) -> Block:
    return replace(block, feed_forward=replace(block.feed_forward, activation="silu"))


def more_heads(block: Block) -> Block:
    return replace(block, attention=replace(block.attention, heads=4, head_width=4))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (more_heads, "attention.heads"),
        (silu, "feed_forward.activation"),
        (lambda block: replace(block, placement="pre"), "placement"),
    ],
)
def test_equal_shapes_that_mean_something_else(change: Any, where: str) -> None:
    teacher = of(deep(bert(), 4), seed=3)
    config = student_config(teacher.config, 2)
    student = of(with_layers(config, [change(block) for block in config.encoder.blocks]))
    with pytest.raises(IncompatibleError) as refused:
        start_from(student, teacher)
    assert refused.value.where == f"model: {where}"


def test_shared_layers_and_missing_parts() -> None:
    """A teacher of one shared layer, with a pooler; a student without pooler and segments."""
    config = deep(bert("BertForPreTraining"), 4)
    teacher = of(replace(config, encoder=replace(config.encoder, weights_of=(0,) * 4)), seed=1)
    small = student_config(teacher.config, 2)
    bare = replace(small.encoder, embeddings=replace(small.encoder.embeddings, segments=0))
    student = of(replace(small, encoder=bare, pooler=False, heads=()))
    start_from(student, teacher)
    shared = teacher.encoder.blocks["0"]
    assert all(equal(block, shared) for block in student.encoder.blocks.values())


def losses_by_hand(made: Distillation, own: Tensor, wanted: Tensor) -> dict[str, float]:
    """The two beside the teacher, by PyTorch."""
    scores, theirs = made.product.logits(own), made.teacher.logits(wanted)
    softened = functional.kl_div(
        (scores / 2).log_softmax(-1), (theirs / 2).softmax(-1), reduction="sum"
    )
    near = functional.cosine_embedding_loss(own, wanted, torch.ones(len(own)), reduction="sum")
    return {"divergence": float(softened), "cosine": float(near)}


@torch.no_grad()
def test_the_three_losses_are_pytorchs() -> None:
    made, rows = distillation(initialise=False).eval(), framed(6, 24)
    batch = corrupted(made, rows)
    loss, n = made(batch), len(batch.targets)
    own, wanted = (
        encode(network, batch).view(-1, 16)[batch.index] for network in (made.product, made.teacher)
    )
    text = functional.cross_entropy(made.product.logits(own), batch.targets, reduction="sum")
    sums = {"masked": float(text), **losses_by_hand(made, own, wanted)}
    assert {name: float(part.total) for name, part in loss.parts.items()} == pytest.approx(
        sums, rel=1e-4
    )
    weights = {name: part.weight for name, part in loss.parts.items()}
    assert weights == {"masked": 2.0, "divergence": 5.0 * 4, "cosine": 1.0}
    assert made.counts(batch) == {"masked": n, "divergence": n, "cosine": n}
    mean = sum(weights[name] * total / n for name, total in sums.items())
    assert float(loss.scaled(made.counts(batch))) == pytest.approx(mean, rel=1e-4)


@torch.no_grad()
def test_compared_everywhere_as_published() -> None:
    """distiller.py: the text at its targets, divergence and cosine wherever there is text."""
    made, rows = distillation(initialise=False, everywhere=True).eval(), framed(6, 24)
    rows.documents[:, 20:] = 0  # padding, where nothing is compared
    rows.special[:, 20:] = True
    batch = corrupted(made, rows)
    own, wanted = (encode(m, batch)[:, :20].flatten(0, 1) for m in (made.product, made.teacher))
    loss, targets = made(batch), batch.targets.numel()
    for name, total in losses_by_hand(made, own, wanted).items():
        assert float(loss.parts[name].total) == pytest.approx(total, rel=1e-4)
    assert made.counts(batch) == {"masked": targets, "divergence": 120, "cosine": 120}
    assert targets < 120


def test_only_a_run_that_starts_from_nothing_starts_from_its_teacher() -> None:
    made = distillation()
    before = {name: p.clone() for name, p in made.product.named_parameters()}
    assert not torch.equal(before["tokens.weight"], made.teacher.tokens.weight)
    made.start_run()
    assert torch.equal(made.product.tokens.weight, made.teacher.tokens.weight)
    unasked = distillation(initialise=False)
    unasked.start_run()
    assert not torch.equal(unasked.product.tokens.weight, unasked.teacher.tokens.weight)


def test_the_teacher_never_moves_and_never_drops() -> None:
    made = distillation().train()
    assert made.product.training and not made.teacher.training
    assert not any(n.startswith("teacher.") for n, p in made.named_parameters() if p.requires_grad)
    batch = corrupted(made, framed(4, 24))
    with torch.no_grad():
        one, two = (encode(made.teacher, batch) for _ in range(2))
        own, again = (encode(made.product, batch) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(own, again)  # the control: the student drops
    made(batch).scaled(made.counts(batch)).backward()
    assert all(p.grad is None for p in made.teacher.parameters())
    assert made.product.tokens.weight.grad is not None


def test_a_causal_student() -> None:
    teacher = of(deep(gpt2(), 4), seed=1, deviation=0.4)
    student = of(student_config(teacher.config, 2))
    made = make("distillation", student, {"teacher": teacher}, teacher="there", alpha_clm=0.5)
    batch = corrupted(made, framed(4, 17))
    loss = made(batch)
    weights = {name: part.weight for name, part in loss.parts.items()}
    assert weights == {"causal": 0.5, "divergence": 20.0, "cosine": 1.0}
    assert made.counts(batch) == dict.fromkeys(loss.parts, 4 * 16)
    assert made.is_language_model and not distillation().is_language_model


def test_without_the_cosine_widths_may_differ() -> None:
    teacher = of(deep(bert(), 2), seed=1)
    block = teacher.config.encoder.blocks[0]
    narrow = replace(block, attention=replace(block.attention, heads=1))
    student = of(replace(with_layers(teacher.config, [narrow] * 2), width=8))
    given = {"teacher": teacher}
    made = make("distillation", student, given, teacher="x", initialise=False, alpha_cos=0.0)
    batch = corrupted(made, framed(4, 16))
    assert set(made(batch).parts) == set(made.counts(batch)) == {"masked", "divergence"}
    with pytest.raises(IncompatibleError, match="alpha_cos"):
        make("distillation", student, given, teacher="x", initialise=False)
    made = make("distillation", student, given, teacher="x", alpha_cos=0.0)
    with pytest.raises(IncompatibleError):
        made.start_run()


def test_refusals() -> None:
    teacher = of(deep(bert(), 2), seed=1)
    other = of(replace(teacher.config, tokens=replace(teacher.config.tokens, vocabulary=60)))
    for where, student, network in (
        ("model", gpt2(), teacher),
        ("model.tokens.vocabulary", bert(), other),
    ):
        with pytest.raises(IncompatibleError) as refused:
            make("distillation", student, {"teacher": network}, teacher="x")
        assert refused.value.where == where
    with pytest.raises(ConfigError) as deeper:
        make("distillation", of(deep(bert(), 3)), {"teacher": teacher}, teacher="x").start_run()
    assert deeper.value.where == "layers"
