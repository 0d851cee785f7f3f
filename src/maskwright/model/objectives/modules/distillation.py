"""The module of `distillation`; for the method and its options see `../distillation.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.nn.config import Block, Learned, Recurrent, TransformerConfig
from maskwright.model.nn.kernels.vocabulary_loss import vocabulary_divergence, vocabulary_loss
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives import causal
from maskwright.model.objectives.base.objective import (
    Loss,
    NetworkWork,
    Objective,
    Part,
    Vocabulary,
    at_targets,
    encode,
    encode_targets,
)
from maskwright.model.objectives.base.spec import require_option
from maskwright.model.objectives.distillation import Options
from maskwright.model.objectives.modules.causal import Causal
from maskwright.model.objectives.modules.masked import Masked
from maskwright.text.store.rows import Rows


class Distillation(Objective):
    """A student, which is the product, and its frozen teacher."""

    def __init__(
        self, model: Transformer, options: Options, vocabulary: Vocabulary, teacher: Transformer
    ) -> None:
        super().__init__()
        _require_fit(model.config, teacher.config, options)
        self.product = model
        self.options = options
        self.text: Masked | Causal
        if model.config.encoder is not None:
            self.text = Masked(model, options.masking, vocabulary)
        else:
            self.text = Causal(model, causal.Options(), vocabulary)
        self.is_language_model, self.framing = self.text.is_language_model, self.text.framing
        self.teacher = teacher.requires_grad_(False).eval()

    def start_run(self) -> None:
        if self.options.initialise:
            start_from(self.product, self.teacher)

    def train(self, mode: bool = True) -> Distillation:
        """Switch the student's mode; the teacher stays in evaluation mode."""
        super().train(mode)
        self.teacher.eval()
        return self

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        return self.text.corrupt(rows, epochs, seed, progress)

    def counts(self, batch: Batch) -> dict[str, int]:
        ((text, count),) = self.text.counts(batch).items()
        names = ["divergence", *(["cosine"] if self.options.alpha_cos else [])]
        num_compared = count if (positions := self._compared(batch)) is None else len(positions)
        return {text: count, **dict.fromkeys(names, num_compared)}

    def _compared(self, batch: Batch) -> Tensor | None:
        """Return the flat positions where the networks are compared; None for the targets."""
        if not self.options.everywhere:
            return None
        if batch.documents is None:
            return torch.arange(batch.tokens.numel(), device=batch.tokens.device)
        return batch.documents.flatten().nonzero()[:, 0]

    def forward(self, batch: Batch) -> Loss:
        assert batch.targets is not None
        options, student, teacher = self.options, self.product, self.teacher
        positions = self._compared(batch)
        if positions is None:
            compared, hidden = batch, encode_targets(student, batch)
            states = target_states = student.head_hidden(hidden)
        else:
            compared, all_states = replace(batch, index=positions), encode(student, batch)
            hidden = at_targets(all_states, compared)
            states = student.head_hidden(hidden)
            target_states = student.head_hidden(at_targets(all_states, batch))
        bias = student.head_bias
        text, _ = vocabulary_loss(target_states, student.head_weight, bias, batch.targets)
        with torch.no_grad():
            teacher_states = encode_targets(teacher, compared)
            teacher_head_states = teacher.head_hidden(teacher_states)
        teacher_bias = teacher.head_bias
        softened, _ = vocabulary_divergence(
            states / options.temperature,
            student.head_weight,
            None if bias is None else bias / options.temperature,
            teacher_head_states / options.temperature,
            teacher.head_weight,
            None if teacher_bias is None else teacher_bias / options.temperature,
        )
        (name,) = self.text.counts(batch)
        weight = options.alpha_mlm if name == "masked" else options.alpha_clm
        parts = {name: Part(text, weight)}
        parts["divergence"] = Part(softened, options.alpha_ce * options.temperature**2)
        if options.alpha_cos:
            cosine = functional.cosine_similarity(hidden.float(), teacher_states.float(), dim=-1)
            parts["cosine"] = Part((1 - cosine).sum(), options.alpha_cos)
        return Loss(parts)

    def work(self, batch: Batch) -> list[NetworkWork]:
        (student_work,) = super().work(batch)
        positions = self._compared(batch)
        if positions is None:
            return [
                replace(student_work, scored=2 * student_work.scored),
                replace(student_work, network=self.teacher),
            ]
        return [
            NetworkWork(self.product, None, student_work.scored + len(positions)),
            NetworkWork(self.teacher, positions, len(positions)),
        ]

    def target_states(self, batch: Batch) -> Tensor:
        return self.text.target_states(batch)


def alternate_layers(count: int, number: int) -> tuple[int, ...]:
    """Return `number` of `count` layer indices, evenly spaced from first to last."""
    require_option(None, "layers", 1 <= number <= count, f"1 to {count}", value=number)
    return tuple(round(layer) for layer in np.linspace(0, count - 1, number).tolist())


@torch.no_grad()
def start_from(student: Transformer, teacher: Transformer) -> None:
    """Copy the teacher's embeddings, heads and `alternate_layers` to the student, if it has them.

    Raises:
        IncompatibleError: corresponding weights differ in shape or meaning.
    """
    ((name, ours),), ((_, theirs),) = student.config.stacks.items(), teacher.config.stacks.items()
    remedy = "make both alike, or set objective.options.initialise = false"
    chosen = alternate_layers(len(theirs.blocks), len(ours.blocks))
    for block, layer in zip(ours.blocks, chosen, strict=True):
        pairs = zip(_meanings(block), _meanings(theirs.blocks[layer]), strict=False)
        for (field, value), (_, teachers) in pairs:
            _require_equal(f"model: {field}", value, teachers, remedy)
    table, teachers_table = ours.embeddings.positions, theirs.embeddings.positions
    if isinstance(table, Learned) and isinstance(teachers_table, Learned):
        where = "model: embeddings.positions.offset"
        _require_equal(where, table.offset, teachers_table.offset, remedy)
    source = {
        f"{name}.blocks.{student_layer}.": f"{name}.blocks.{theirs.weights_of[layer]}."
        for student_layer, layer in zip(ours.weights_of, chosen, strict=True)
    }
    teacher_parameters = dict(teacher.named_parameters())
    for parameter_name, parameter in student.named_parameters():
        teacher_name = parameter_name
        for student_prefix, teacher_prefix in source.items():
            if parameter_name.startswith(student_prefix):
                teacher_name = teacher_prefix + parameter_name.removeprefix(student_prefix)
        weight = teacher_parameters.get(teacher_name)
        if weight is not None:
            shapes = tuple(parameter.shape), tuple(weight.shape)
            _require_equal(f"model: {parameter_name}", *shapes, remedy)
            parameter.copy_(weight)


def _meanings(block: Block | Recurrent) -> list[tuple[str, object]]:
    """The fields that change what weights of equal shapes mean."""
    if isinstance(block, Recurrent):
        return [("layer", "recurrent"), ("residual", block.residual)]
    return [
        ("layer", "attention"),
        ("attention.heads", block.attention.heads),
        ("feed_forward.activation", block.feed_forward.activation),
        ("placement", block.placement),
    ]


def _require_equal(where: str, ours: object, theirs: object, remedy: str) -> None:
    if ours != theirs:
        raise IncompatibleError(
            "the student does not fit its teacher",
            where=where,
            found=ours,
            wanted=theirs,
            do=remedy,
        )


def _require_fit(student: TransformerConfig, teacher: TransformerConfig, options: Options) -> None:
    if set(student.stacks) != set(teacher.stacks) or len(student.stacks) != 1:
        raise IncompatibleError(
            "student and teacher must both be encoders, or both decoders",
            where="model",
            found=f"{list(student.stacks)}, teacher {list(teacher.stacks)}",
            do="name another objective.options.teacher",
        )
    if teacher.vocabulary_head is None:
        raise IncompatibleError(
            "the teacher has no vocabulary head",
            where="objective.options.teacher",
            do="name a teacher that was pretrained to predict tokens",
        )
    _require_equal(
        "model.tokens.vocabulary",
        student.tokens.vocabulary,
        teacher.tokens.vocabulary,
        "take the teacher's tokenizer: --set tokenizer.folder=TEACHER",
    )
    if options.alpha_cos:
        remedy = "give the student its teacher's width, or set objective.options.alpha_cos = 0"
        _require_equal("model.width", student.width, teacher.width, remedy)


build = Distillation
