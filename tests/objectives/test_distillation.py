"""Distillation: layers, losses by hand, a teacher that never moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional

from maskwright.base.errors import ConfigError, IncompatibleError
from maskwright.model.nn.config import Learned, Stack, TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import encode
from maskwright.model.objectives.modules.distillation import (
    Distillation,
    alternate_layers,
    start_from,
)
from objectives.by_hand import epochs, framed, make, of
from toys import bert, gpt2


def deep(model: Transformer, count: int) -> TransformerConfig:
    """The model's config with `count` layers, and dropout."""
    ((name, stack),) = model.config.stacks.items()
    block = replace(stack.blocks[0], dropout=0.1)
    deeper = replace(stack, blocks=(block,) * count, weights_of=tuple(range(count)))
    return with_stack(model.config, name, deeper)


def with_stack(config: TransformerConfig, name: str, stack: Stack) -> TransformerConfig:
    if name == "encoder":
        return replace(config, encoder=stack)
    return replace(config, decoder=stack)


def student_config(teacher: TransformerConfig, kept: int) -> TransformerConfig:
    """The teacher's config with `kept` of its stack's layers, each with weights of its own."""
    ((name, stack),) = teacher.stacks.items()
    blocks = tuple(stack.blocks[i] for i in alternate_layers(len(stack.blocks), kept))
    return with_stack(teacher, name, replace(stack, blocks=blocks, weights_of=tuple(range(kept))))


def distillation(**options: object) -> Distillation:
    teacher = of(deep(bert(), 4), seed=1, deviation=0.4)
    student = of(student_config(teacher.config, 2))
    made = make("distillation", student, {"teacher": teacher}, teacher="there", **options)
    assert isinstance(made, Distillation)
    return made


@pytest.mark.parametrize(
    ("count", "kept", "layers"),
    [
        (12, 6, (0, 2, 4, 7, 9, 11)),  # as published
        (24, 2, (0, 23)),
        (4, 2, (0, 3)),
        (4, 4, (0, 1, 2, 3)),
        (6, 1, (0,)),
    ],
)
def test_alternate_layers(count: int, kept: int, layers: tuple[int, ...]) -> None:
    assert alternate_layers(count, kept) == layers


def test_a_student_is_its_teachers_layers() -> None:
    """Run the teacher's tables, layers 0, 2, 4, 7, 9, 11 and head by themselves: the student."""
    teacher = of(deep(bert(), 12), seed=3, deviation=0.3).eval()
    student = of(student_config(teacher.config, 6)).eval()
    before = student.logits(student.encode(torch.arange(5, 17)[None]))
    start_from(student, teacher)
    assert teacher.encoder is not None and student.encoder is not None
    for own, layer in enumerate((0, 2, 4, 7, 9, 11)):
        theirs = dict(teacher.encoder.blocks[str(layer)].named_parameters())
        for name, parameter in student.encoder.blocks[str(own)].named_parameters():
            assert torch.equal(parameter, theirs[name])
    after = student.logits(student.encode(torch.arange(5, 17)[None]))
    assert torch.equal(student.tokens.weight, teacher.tokens.weight)
    assert not torch.allclose(before, after)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (
            lambda b: replace(
                b,
                attention=replace(
                    b.attention, heads=b.attention.heads * 2, head_width=b.attention.head_width // 2
                ),
            ),
            "attention.heads",
        ),
        (
            lambda b: replace(b, feed_forward=replace(b.feed_forward, activation="silu")),
            "feed_forward.activation",
        ),
        (lambda b: replace(b, placement="pre"), "placement"),
    ],
)
def test_equal_shapes_that_mean_something_else(change: Any, where: str) -> None:
    teacher = of(deep(bert(), 4), seed=3)
    config = student_config(teacher.config, 2)
    assert config.encoder is not None
    blocks = tuple(map(change, config.encoder.blocks))
    student = of(replace(config, encoder=replace(config.encoder, blocks=blocks)))
    with pytest.raises(IncompatibleError) as refused:
        start_from(student, teacher)
    assert refused.value.where == f"model: {where}"


def test_equal_tables_of_positions_that_begin_elsewhere() -> None:
    """RoBERTa's first position stands in row 2 of its table, BERT's in row 0."""
    config = deep(bert(), 2)
    assert config.encoder is not None
    table = config.encoder.embeddings.positions
    assert isinstance(table, Learned)
    shifted = replace(table, length=table.length - 2, offset=2)
    entry = replace(config.encoder.embeddings, positions=shifted)
    teacher = of(replace(config, encoder=replace(config.encoder, embeddings=entry)))
    with pytest.raises(IncompatibleError) as refused:
        start_from(of(config), teacher)
    assert refused.value.where == "model: embeddings.positions.offset"
    assert (refused.value.found, refused.value.wanted) == ("0", "2")
    start_from(of(teacher.config), teacher)


def test_shared_layers_and_missing_parts() -> None:
    """A teacher of one shared layer, with a pooler; a student without pooler and segments."""
    config = deep(bert("BertForPreTraining"), 4)
    assert config.encoder is not None
    teacher = of(replace(config, encoder=replace(config.encoder, weights_of=(0,) * 4)), seed=1)
    small = student_config(teacher.config, 2)
    assert small.encoder is not None
    bare = replace(small.encoder, embeddings=replace(small.encoder.embeddings, segments=0))
    student = of(replace(small, encoder=bare, pooler=False, heads=()))
    start_from(student, teacher)
    assert student.encoder is not None and teacher.encoder is not None
    for block in student.encoder.blocks.values():
        for name, parameter in block.named_parameters():
            assert torch.equal(
                parameter, dict(teacher.encoder.blocks["0"].named_parameters())[name]
            )


def test_the_three_losses_are_pytorchs() -> None:
    made = distillation(initialise=False).eval()
    rows = framed(6, 24)
    batch = made.corrupt(rows, epochs(rows), 0)
    assert batch.index is not None and batch.targets is not None
    with torch.no_grad():
        loss = made(batch)
        own = encode(made.product, batch).view(-1, 16)[batch.index]
        wanted = encode(made.teacher, batch).view(-1, 16)[batch.index]
        scores, theirs = made.product.logits(own), made.teacher.logits(wanted)
        text = functional.cross_entropy(scores, batch.targets, reduction="sum")
        softened = functional.kl_div(
            (scores / 2).log_softmax(-1), (theirs / 2).softmax(-1), reduction="sum"
        )
        near = functional.cosine_embedding_loss(own, wanted, torch.ones(len(own)), reduction="sum")
    sums = {name: float(part.total) for name, part in loss.parts.items()}
    assert sums["masked"] == pytest.approx(float(text), rel=1e-5)
    assert sums["divergence"] == pytest.approx(float(softened), rel=1e-4)
    assert sums["cosine"] == pytest.approx(float(near), rel=1e-5)
    weights = {name: part.weight for name, part in loss.parts.items()}
    assert weights == {"masked": 2.0, "divergence": 5.0 * 4, "cosine": 1.0}
    n = len(own)
    assert made.counts(batch) == {"masked": n, "divergence": n, "cosine": n}
    mean = 2 * float(text) / n + 5 * 4 * float(softened) / n + float(near) / n
    assert float(loss.scaled(made.counts(batch))) == pytest.approx(mean, rel=1e-4)


def test_compared_everywhere_as_published() -> None:
    """distiller.py: the text at its targets, divergence and cosine wherever there is text."""
    made = distillation(initialise=False, everywhere=True).eval()
    rows = framed(6, 24)
    rows.documents[:, 20:] = 0  # padding, where nothing is compared
    rows.special[:, 20:] = True
    batch = made.corrupt(rows, epochs(rows), 0)
    assert batch.targets is not None
    with torch.no_grad():
        loss = made(batch)
        own, wanted = (encode(m, batch)[:, :20].flatten(0, 1) for m in (made.product, made.teacher))
        softened = functional.kl_div(
            (made.product.logits(own) / 2).log_softmax(-1),
            (made.teacher.logits(wanted) / 2).softmax(-1),
            reduction="sum",
        )
        near = functional.cosine_embedding_loss(own, wanted, torch.ones(len(own)), reduction="sum")
    assert float(loss.parts["divergence"].total) == pytest.approx(float(softened), rel=1e-4)
    assert float(loss.parts["cosine"].total) == pytest.approx(float(near), rel=1e-5)
    targets = batch.targets.numel()
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
    rows = framed(4, 24)
    batch = made.corrupt(rows, epochs(rows), 0)
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
    rows = framed(4, 17)
    batch = made.corrupt(rows, epochs(rows), 0)
    loss = made(batch)
    assert {n: p.weight for n, p in loss.parts.items()} == {
        "causal": 0.5,
        "divergence": 20.0,
        "cosine": 1.0,
    }
    assert made.counts(batch) == dict.fromkeys(loss.parts, 4 * 16)
    assert made.is_language_model and not distillation().is_language_model


def test_without_the_cosine_widths_may_differ() -> None:
    teacher = of(deep(bert(), 2), seed=1)
    config = teacher.config
    assert config.encoder is not None
    block = config.encoder.blocks[0]
    narrow = replace(block, attention=replace(block.attention, heads=1))
    narrow_stack = replace(config.encoder, blocks=(narrow,) * 2)
    student = of(replace(config, width=8, encoder=narrow_stack))
    given = {"teacher": teacher}
    made = make("distillation", student, given, teacher="x", initialise=False, alpha_cos=0.0)
    rows = framed(4, 16)
    batch = made.corrupt(rows, epochs(rows), 0)
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
